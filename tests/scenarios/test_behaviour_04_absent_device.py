"""Behaviour 4: asking for a missing cuda:3 falls back to the CPU and says so; all devices are listed, or the CPU."""

from __future__ import annotations

from places import Place

from devexplorer.core.records import NewTensor
from devexplorer.core.workspace.tensors import try_all_gpus, try_gpu

ABSENT = "cuda:13"


def test_try_gpu_falls_back_to_the_cpu_and_says_so(place: Place) -> None:
    device, why = try_gpu(place.registry, 13)
    assert device == "cpu"
    assert why is not None
    assert "the CPU is used instead" in why
    if place.kind != "cpu":
        assert try_gpu(place.registry, 0) == (place.first, None)


def test_try_all_gpus_lists_all_or_the_cpu(place: Place) -> None:
    found = try_all_gpus(place.registry)
    if place.kind == "cpu":
        assert found == ["cpu"]
    else:
        assert place.first in found
        assert "cpu" not in found


def test_a_tensor_for_an_absent_device_lands_on_the_cpu_when_it_may(place: Place) -> None:
    answer = place.answer(NewTensor(shape=(2, 3), device=ABSENT, fall_back=True))
    assert not answer.failed
    assert f"no device '{ABSENT}'" in answer.words
    assert place.snapshot("x").bytes_by_device == {"cpu": 24}


def test_without_falling_back_it_is_refused_and_the_devices_are_named(place: Place) -> None:
    command = NewTensor(shape=(2, 3), device=ABSENT)
    answer = place.answer(command)
    assert answer.failed
    assert "there is no device" in answer.words.lower()
    assert "cpu" in answer.words
    assert place.workspace.names == ()
    assert place.offers_virtual_gpus(command) == (place.kind != "vgpu")
