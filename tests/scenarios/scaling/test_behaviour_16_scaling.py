"""Behaviour 16: two matmuls on two GPUs in parallel against both on one, with wall times and the speed-up."""

from __future__ import annotations

import threading

import pytest
from places import Place

from devexplorer.core.base import BadInput
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.records import AddVirtual, StartBenchmark
from devexplorer.core.scaling.kind import ScalingResult, ScalingSpec
from devexplorer.core.scaling.run import ScalingRun, check_scaling


def measured(place: Place, spec: ScalingSpec) -> ScalingResult:
    run = ScalingRun(check_scaling(spec, place.registry), 1, place.registry, threading.Event(), lambda: 0.0)
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    return result


def test_two_jobs_at_once_and_both_on_one(place: Place) -> None:
    second = place.second or "cuda:0"
    spec = ScalingSpec(devices=(place.first, second), size=1000, iterations=1000 if place.kind == "vgpu" else 20)
    if place.second is None:
        explained_with_an_offer(place, spec)
        return
    result = measured(place, spec)
    assert [wall.device for wall in result.walls] == [place.first, second]
    assert result.parallel_seconds is not None
    assert result.sequential_seconds is not None
    assert result.parallel_seconds == max(wall.seconds for wall in result.walls)
    assert result.speedup == result.sequential_seconds / result.parallel_seconds
    assert result.efficiency == result.speedup / 2
    assert result.verified is True
    assert result.simulated == (place.kind == "vgpu")
    if place.kind == "vgpu":  # two identical cards that share nothing
        assert result.speedup == pytest.approx(2)


def test_one_device_alone_is_explained(place: Place) -> None:
    explained_with_an_offer(place, ScalingSpec(devices=(place.first,)), offered=place.kind != "vgpu")


def explained_with_an_offer(place: Place, spec: ScalingSpec, *, offered: bool = True) -> None:
    """Refused with a message that says what is missing, and an offer of virtual GPUs if there are none."""
    with pytest.raises(BadInput) as caught:
        check_scaling(spec, place.registry)
    answer = refusal(caught.value, StartBenchmark(spec=spec))
    assert answer.failed
    assert "there is no device" in answer.words.lower() or "need two of them" in answer.words
    assert ([offer.command for offer in answer.offers] == [AddVirtual(spec="2x Tesla T4")]) == offered
