"""Behaviour 30: `cuda` without a number is the current device; `cpu` is all cores and all memory; its thread count is
shown and can be set."""

from __future__ import annotations

import psutil
import pytest
import torch
from places import Place

from devexplorer.core.base import BadInput
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import NewTensor


def test_a_kind_without_a_number_is_its_current_device(place: Place) -> None:
    kind = place.first.partition(":")[0]
    place.do(NewTensor(shape=(2,), device=kind))
    assert place.snapshot("x").bytes_by_device == {place.first: 8}
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(NewTensor(shape=(2,), device="cuda"))


def test_cpu_is_the_whole_machine_and_there_is_one(place: Place) -> None:
    info = place.registry.info("cpu")
    assert info.memory_total_bytes == psutil.virtual_memory().total
    assert info.threads == torch.get_num_threads()
    answer = place.answer(NewTensor(shape=(2,), device="cpu:1"))
    assert answer.failed
    assert "there is only one cpu" in answer.words.lower()


def test_the_thread_count_is_set_and_shown(place: Place) -> None:
    backend = place.registry.backend("cpu")
    assert isinstance(backend, TorchBackend)
    before = torch.get_num_threads()
    try:
        backend.set_threads(1)
        assert place.registry.info("cpu").threads == torch.get_num_threads() == 1
        with pytest.raises(BadInput, match="0 threads"):
            backend.set_threads(0)
    finally:
        backend.set_threads(before)
