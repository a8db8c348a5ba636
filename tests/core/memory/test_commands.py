"""Release the cache, record, save and open snapshots through the engine, as the window does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devexplorer.core.commands.registry import title_of
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.memory import snapshot_file
from devexplorer.core.memory.records import (
    AllocatorSnapshot,
    OpenSnapshot,
    RecordAllocator,
    ReleaseCache,
    SaveSnapshot,
    SnapshotOpened,
)
from devexplorer.core.records import AddVirtual, AllocatorSample, Answer, Cancel, Command, NewTensor, Remove
from devexplorer.core.virtual.backend import install

MIB = 1 << 20


@pytest.fixture
def local() -> Iterator[LocalEngine]:
    with LocalEngine("2x Tesla T4") as engine:
        yield engine
    install().reset()


def answer(local: LocalEngine, command: Command) -> Answer:
    return next(event for event in local.run(command) if isinstance(event, Answer))


def opened(local: LocalEngine, command: OpenSnapshot) -> AllocatorSnapshot:
    return next(event.snapshot for event in local.run(command) if isinstance(event, SnapshotOpened))


def tensor(local: LocalEngine, name: str, mib: int) -> None:
    local.run(NewTensor(name=name, shape=(mib, 256, 1024), device="vgpu:0"))


def test_releasing_the_cache_tells_what_it_gave_back_and_what_stays(local: LocalEngine) -> None:
    tensor(local, "small", 1)
    tensor(local, "large", 40)
    local.run(Remove(names=("large",)))
    said = answer(local, ReleaseCache(device="vgpu:0"))
    assert not said.failed
    assert said.title == "vgpu:0 gave back 40.00 MiB"
    facts = {fact.label: fact.value for fact in said.facts}
    assert facts == {
        "used by all processes": "442.00 MiB → 402.00 MiB",
        "reserved by torch": "42.00 MiB → 2.00 MiB",
        "allocated": "1.00 MiB → 1.00 MiB",
        "largest free block": "40.00 MiB → 1.00 MiB",
    }
    assert "1.00 MiB stay cached: their segments still hold tensors" in said.words
    assert said.code.startswith("torch.vgpu.empty_cache()")
    assert install().gpu(0).memory.reserved_bytes == 2 * MIB
    again = answer(local, ReleaseCache(device="vgpu:0"))
    assert again.title == "vgpu:0 had nothing to release"
    assert "No segment was completely free." in again.words


def test_a_cache_in_which_nothing_is_free_is_said_so(local: LocalEngine) -> None:
    tensor(local, "x", 40)
    assert "Nothing was cached" in answer(local, ReleaseCache(device="vgpu:0")).words


def test_the_cpu_has_no_cache_and_no_snapshot(local: LocalEngine) -> None:
    for command, words in (
        (ReleaseCache(device="cpu"), "no cache to release"),
        (OpenSnapshot(device="cpu"), "no caching allocator: torch frees"),
        (ReleaseCache(device="vgpu:7"), "no device"),
    ):
        said = answer(local, command)
        assert said.failed
        assert words in said.words


def test_recording_shows_the_lines_that_hold_memory_also_of_devices_added_later(local: LocalEngine) -> None:
    tensor(local, "before", 1)
    assert answer(local, RecordAllocator(on=True)).title == "Allocations are being recorded"
    local.run(AddVirtual(spec="Tesla T4"))
    tensor(local, "after", 3)
    local.run(NewTensor(name="there", shape=(1024, 1024), device="vgpu:2"))
    found = opened(local, OpenSnapshot(device="vgpu:0"))
    assert [stack.bytes for stack in found.stacks] == [3 * MIB]
    assert found.stacks[0].frames[0].startswith("tensors.py:")
    assert (found.source, found.simulated, found.cut) == ("vgpu:0", True, 0)
    assert len(opened(local, OpenSnapshot(device="vgpu:2")).stacks) == 1
    assert answer(local, RecordAllocator(on=False)).title == "Allocations are no longer recorded"
    tensor(local, "later", 5)
    assert sum(stack.bytes for stack in opened(local, OpenSnapshot(device="vgpu:0")).stacks) == 3 * MIB


def test_without_a_card_recording_is_refused_and_virtual_gpus_offered() -> None:
    with LocalEngine() as local:
        said = answer(local, RecordAllocator(on=True))
    assert said.failed
    assert "allocator here can record" in said.words
    assert any(isinstance(offer.command, AddVirtual) for offer in said.offers)


def test_a_saved_snapshot_opens_as_it_was(local: LocalEngine, tmp_path: Path) -> None:
    local.run(RecordAllocator(on=True))
    tensor(local, "x", 3)
    path = str(tmp_path / "vgpu.pickle")
    said = answer(local, SaveSnapshot(device="vgpu:0", path=path))
    assert not said.failed
    assert "1 segment of 20.00 MiB, 3.00 MiB in use, 2 blocks, 2 recorded steps" in said.words
    assert "simulated" in said.words
    now, later = opened(local, OpenSnapshot(device="vgpu:0")), opened(local, OpenSnapshot(path=path))
    assert later.source == "vgpu.pickle"
    assert later.simulated
    assert (later.segments, later.stacks, later.trace_entries) == (now.segments, now.stacks, now.trace_entries)


def test_what_cannot_be_saved_or_opened_is_reported_in_one_line(local: LocalEngine, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pickle"
    damaged.write_bytes(b"\x80\x04cos\nsystem\n.")
    for command, words in (
        (SaveSnapshot(device="vgpu:0", path=str(tmp_path)), "is a folder"),
        (OpenSnapshot(path=str(damaged)), "asks for os.system"),
        (OpenSnapshot(path=str(tmp_path / "absent")), "could not be read"),
        (OpenSnapshot(), "either a device or a file"),
        (OpenSnapshot(device="vgpu:0", path=str(damaged)), "either a device or a file"),
    ):
        events = local.run(command)
        said = next(event for event in events if isinstance(event, Answer))
        assert said.failed
        assert words in said.words
        assert "\n" not in said.words
        assert not any(isinstance(event, SnapshotOpened) for event in events)


def test_reading_a_large_file_can_be_cancelled(
    local: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large.pickle"
    snapshot_file.save({"segments": [], "device_traces": [[{"addr": number} for number in range(40_000)]]}, str(file))
    whole = snapshot_file.load

    def cancelled_meanwhile(path: str, source: str, progress: snapshot_file.Progress, name: str) -> AllocatorSnapshot:
        local.engine.submit(Cancel(job=request))
        return whole(path, source, progress, name)

    monkeypatch.setattr(snapshot_file, "load", cancelled_meanwhile)
    request = local._requests + 1
    said = answer(local, OpenSnapshot(path=str(file)))
    assert said.failed
    assert "was cancelled" in said.words


def test_the_sampler_tells_what_each_object_holds_and_how_fragmented_the_cache_is(local: LocalEngine) -> None:
    tensor(local, "x", 1)
    tensor(local, "y", 3)
    local.engine.allocator_sampler.read()
    samples = []
    while not local._events.empty():
        samples.append(local._events.get())
    sample = next(one for one in samples if isinstance(one, AllocatorSample) and one.device == "vgpu:0")
    assert [(use.name, use.bytes) for use in sample.objects] == [("y", 3 * MIB), ("x", MIB)]
    assert sample.workspace_bytes == 4 * MIB
    assert (sample.segments, sample.largest_free_block_bytes) == (2, 17 * MIB)


def test_the_status_bar_says_what_is_going_on() -> None:
    assert title_of(ReleaseCache(device="vgpu:0")) == "releasing the cache of vgpu:0"
    assert title_of(OpenSnapshot(path="/home/me/x.pickle")) == "opening x.pickle"
    assert title_of(SaveSnapshot(device="cuda:0", path="x")) == "saving the allocator snapshot of cuda:0"
