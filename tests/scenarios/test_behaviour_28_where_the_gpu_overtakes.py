"""Behaviour 28: one product over growing sizes on the CPU and on a GPU: where the GPU overtakes, without and with
copies."""

from __future__ import annotations

from places import Place

from devexplorer.core.experiments.records import Crossover, CrossoverMeasured
from devexplorer.core.records import AddVirtual


def test_the_sizes_are_measured_on_both_with_copies_and_without(place: Place) -> None:
    command = Crossover(device=place.first if place.second else "cuda:0", sizes=(64, 16, 128))
    if place.second is None:
        assert place.offers_virtual_gpus(command)
        return
    outcome = place.do(command)
    (measured,) = outcome.events
    assert isinstance(measured, CrossoverMeasured)
    assert [point.size for point in measured.points] == [16, 64, 128]
    assert measured.simulated == (place.kind == "vgpu")
    for point in measured.points:
        assert min(point.cpu_seconds, point.device_seconds, point.device_with_copies_seconds) > 0
    words = outcome.answer.words
    assert "With the operands already there" in words
    assert "With the operands copied there and the result back" in words
    assert "the CPU was timed here" in words
    assert ("simulated from its datasheet" in words) == (place.kind == "vgpu")


def test_with_copies_it_takes_longer(place: Place) -> None:
    if place.second is None:
        return
    (measured,) = place.do(Crossover(device=place.first, sizes=(64, 16, 128))).events
    assert isinstance(measured, CrossoverMeasured)
    assert all(point.device_seconds < point.device_with_copies_seconds for point in measured.points)


def test_the_cpu_is_not_compared_with_itself(place: Place) -> None:
    answer = place.answer(Crossover(device="cpu"))
    assert answer.failed
    assert "the CPU cannot overtake itself" in answer.words
    assert [offer.command for offer in answer.offers] == (
        [] if place.kind == "vgpu" else [AddVirtual(spec="2x Tesla T4")]
    )
