"""Queries to torch's CUDA allocator beyond its counters, and their rate. With a fake torch: no GPU."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.cuda import GIB, FakeCudaTorch, FakeGpu, FakeLibcuda

from devexplorer.core.base import Unavailable
from devexplorer.core.devices.cuda_driver import CudaDriver
from devexplorer.core.devices.torch_devices import LOOK_SECONDS, CudaMemory, TorchBackend

CARDS = (FakeGpu("aaaaaaaa-0000-0000-0000-000000000001"), FakeGpu("bbbbbbbb-0000-0000-0000-000000000002"))


def segment(device: int, *blocks: tuple[int, str]) -> dict[str, Any]:
    return {"device": device, "blocks": [{"size": size, "state": state} for size, state in blocks]}


class Setting:
    """Two cards; `touch` gives a card its context."""

    def __init__(self) -> None:
        self.now = 0.0
        self.torch = FakeCudaTorch(2)
        self.library = FakeLibcuda(*CARDS)
        self.backend = TorchBackend(
            module=self.torch, driver=CudaDriver(library=self.library, environ={}), environ={}, clock=lambda: self.now
        )

    def touch(self, index: int, allocated: int = GIB, reserved: int = 3 * GIB) -> None:
        self.torch.contexts.append(index)
        self.library.active.add(index)
        self.torch.cuda.stats = {
            "allocated_bytes.all.current": allocated, "reserved_bytes.all.current": reserved, "segment.all.current": 7,
        }  # fmt: skip

    def largest(self, device: str = "cuda:0") -> int | None:
        sample = self.backend.allocator_sample(device, 0.0)
        assert sample is not None
        assert sample.segments == 7
        return sample.largest_free_block_bytes


def test_the_largest_free_block_is_looked_for_every_two_seconds_at_most() -> None:
    here = Setting()
    here.touch(0)
    here.torch.cuda.segments = [
        segment(0, (5, "inactive"), (9, "active_allocated"), (7, "inactive")),
        segment(1, (8, "inactive")),
    ]
    assert here.largest() == 7
    here.torch.cuda.segments = []
    here.now = LOOK_SECONDS - 0.1
    assert here.largest() == 7
    assert here.torch.cuda.looks == 1
    here.now = LOOK_SECONDS
    assert here.largest() == 0
    assert here.torch.cuda.looks == 2


def test_nothing_cached_needs_no_look() -> None:
    here = Setting()
    here.touch(0, allocated=GIB, reserved=GIB)
    assert here.largest() == 0
    assert here.torch.cuda.looks == 0


def test_it_is_never_said_to_be_larger_than_all_that_is_cached() -> None:
    memory = CudaMemory(FakeCudaTorch(1), clock=lambda: 0.0)
    memory._torch.cuda.segments = [segment(0, (100, "inactive"))]
    assert memory.largest_free_block(0, 100) == 100
    assert memory.largest_free_block(0, 60) == 60


def test_an_allocator_that_has_no_list_is_asked_once_and_not_known() -> None:
    here = Setting()
    here.touch(0)
    calls: list[int] = []

    def refuse(include_traces: bool = True) -> Any:
        calls.append(1)
        raise RuntimeError("cudaMallocAsync does not yet support snapshots")

    here.torch.cuda.memory_snapshot = refuse  # type: ignore[method-assign]
    assert here.largest() is None
    here.now = 100.0
    assert here.largest() is None
    assert len(calls) == 1


def test_a_look_that_takes_long_is_repeated_seldom() -> None:
    here = Setting()
    here.touch(0)
    looks: list[float] = []

    def slow(include_traces: bool = True) -> Any:
        looks.append(here.now)
        here.now += 0.5
        return []

    here.torch.cuda.memory_snapshot = slow  # type: ignore[method-assign]
    for _ in range(200):
        here.largest()
        here.now += 1.0
    assert len(looks) < 6


def test_recording_waits_for_a_context_and_makes_none() -> None:
    here = Setting()
    assert here.backend.record(True) == ("cuda:0", "cuda:1")
    here.backend.allocator_sample("cuda:0", 0.0)
    assert (here.torch.cuda.recorded, here.torch.contexts) == ([], [])
    here.touch(0)
    here.backend.allocator_sample("cuda:0", 0.0)
    here.backend.allocator_sample("cuda:0", 0.0)
    assert here.torch.cuda.recorded == [("all", {"context": "all", "stacks": "python", "max_entries": 100_000})]
    here.backend.record(False)
    assert here.torch.cuda.recorded[1:] == [(None, {})]


def test_a_snapshot_has_the_segments_and_the_trace_of_its_device_only() -> None:
    here = Setting()
    with pytest.raises(Unavailable, match="has nothing on cuda:1 yet"):
        here.backend.snapshot("cuda:1")
    here.touch(1)
    here.torch.cuda.segments = [segment(0, (5, "inactive")), segment(1, (8, "inactive"))]
    found = here.backend.snapshot("cuda:1")
    assert [one["device"] for one in found["segments"]] == [1]
    assert [len(trace) for trace in found["device_traces"]] == [0, 1]
    with pytest.raises(Unavailable, match="no caching allocator"):
        here.backend.snapshot("cpu")


def test_what_everybody_uses_is_asked_only_where_a_context_is_already() -> None:
    here = Setting()
    assert here.backend.used_bytes("cuda:0") is None
    assert here.torch.contexts == []
    here.touch(0)
    assert here.backend.used_bytes("cuda:0") == 5 * GIB
    assert (here.backend.used_bytes("cpu") or 0) > 0
