"""Behaviour 27: work on a GPU is timed without synchronising, then with: both figures, and why they differ."""

from __future__ import annotations

import pytest
from fakes.products import matmul_seconds
from places import Place

from devexplorer.core.experiments.records import TimeWork, WorkTimed
from devexplorer.core.virtual.device.cost import launch_seconds


def timed(place: Place, command: TimeWork) -> WorkTimed:
    (event,) = place.do(command).events
    assert isinstance(event, WorkTimed)
    return event


def test_both_times_and_why_they_differ(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(TimeWork(device="cuda:0"))
        return
    command = TimeWork(device=place.first, size=1000, iterations=10)
    event = timed(place, command)
    assert event.launched_seconds < event.finished_seconds
    assert event.simulated == (place.kind == "vgpu")
    answer = place.answer(command)
    assert "so a timer that is read when it returns has timed the launches" in answer.words
    assert {"without synchronising", "with synchronising"} <= {fact.label for fact in answer.facts}
    if place.kind == "vgpu":  # launches as the cost model has them; the simulated clock of a T4 for the work
        assert event.launched_seconds == pytest.approx(10 * launch_seconds())
        assert event.finished_seconds == pytest.approx(
            10 * matmul_seconds(place.registry.backend("vgpu:0"), "vgpu:0", 1000, 1000, 1000, "float32")
        )  # type: ignore[attr-defined]
        assert "Both are simulated" in answer.words
        assert "more than the 8.10 TFLOP/s of its datasheet" in answer.words


def test_on_the_cpu_there_is_nothing_to_wait_for(place: Place) -> None:
    event = timed(place, TimeWork(device="cpu", size=64, iterations=3))
    assert not event.simulated
    assert 0 < event.launched_seconds <= event.finished_seconds
    answer = place.answer(TimeWork(device="cpu", size=64, iterations=3))
    assert "On the CPU both times are the same" in answer.words
    assert "synchronize" not in answer.code
