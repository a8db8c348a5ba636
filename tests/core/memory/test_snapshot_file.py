"""Files of allocator snapshots: PyTorch's own format both ways, and nothing in a file is ever called."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from benchmarks import big_snapshot
from torch.cuda import _memory_viz

from devexplorer.core.base import BadInput, Cancelled
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.engine.link import FRAME_HEAD, decode_event, frame
from devexplorer.core.memory import plain_pickle, snapshot_file
from devexplorer.core.memory.records import AllocatorSnapshot, SnapshotOpened
from devexplorer.core.memory.snapshot_file import digest
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.device.memory import snapshot

MIB = 1 << 20
T4 = load_profiles()["Tesla T4"]


def opened(
    content: bytes, name: str = "file", progress: plain_pickle.Progress = lambda share: None
) -> AllocatorSnapshot:
    return snapshot_file.read(io.BytesIO(content), len(content), name, name, progress)


def allocate(gpu: VirtualGpu, *sizes: int) -> list[Any]:
    return [gpu.memory.allocate(size) for size in sizes]


@pytest.fixture
def gpu() -> VirtualGpu:
    """A virtual card with two segments: one that is in use, and a split one with a hole."""
    made = VirtualGpu(1, T4)
    made.memory.record(True)
    blocks = allocate(made, 4 * MIB, 700, 5000, 3000)
    made.memory.free(blocks[2])
    return made


def test_what_is_saved_opens_again_with_every_block(gpu: VirtualGpu, tmp_path: Path) -> None:
    path = str(tmp_path / "one.pickle")
    taken = snapshot(gpu)
    assert snapshot_file.save(taken, path) == os.path.getsize(path)
    assert pickle.loads(Path(path).read_bytes()) == taken
    found = snapshot_file.load(path, "one.pickle")
    assert found.simulated, "the file itself says so"
    assert found == digest(taken, "one.pickle")
    assert sum(segment.bytes for segment in found.segments) == gpu.memory.reserved_bytes
    assert sum(segment.allocated_bytes for segment in found.segments) == gpu.memory.allocated_bytes
    small = next(segment for segment in found.segments if segment.pool == "small")
    assert [(block.bytes, block.requested_bytes, block.state) for block in small.blocks] == [
        (1024, 700, "active_allocated"),
        (5120, None, "inactive"),
        (3072, 3000, "active_allocated"),
        (2 * MIB - 9216, None, "inactive"),
    ]
    assert [block.address for block in small.blocks[1:]] == [block.address + block.bytes for block in small.blocks[:-1]]
    assert small.device == 1


def test_stacks_are_those_of_the_caller_and_the_largest_is_first(gpu: VirtualGpu) -> None:
    found = digest(snapshot(gpu), "vgpu:1")
    (place,) = found.stacks
    assert (place.bytes, place.blocks) == (gpu.memory.allocated_bytes, 3)
    assert place.frames[0].startswith("test_snapshot_file.py:")
    assert place.frames[0].endswith(" <listcomp>") or place.frames[0].endswith(" allocate")
    assert any(line.endswith(" gpu") for line in place.frames)
    assert all(
        block.frame == (0 if block.state == "active_allocated" else -1)
        for segment in found.segments
        for block in segment.blocks
    )
    assert found.trace_entries == 2 + 4 + 2, "two segments, four allocations, one free in two steps"


def test_torch_reads_what_is_saved(gpu: VirtualGpu, tmp_path: Path) -> None:
    path = tmp_path / "two.pickle"
    snapshot_file.save(snapshot(gpu), str(path))
    read = pickle.loads(path.read_bytes())
    flames = _memory_viz.segments(read, format_flamegraph=lambda text: text)
    assert "test_snapshot_file.py" in flames
    assert "active_allocated" in flames
    steps = _memory_viz.trace(read)
    assert "8 entries" in steps
    assert "Device 1" in steps
    assert "total_allocated: 4.0MiB" in _memory_viz.segsum(read)
    assert _memory_viz.trace_plot(read).strip().startswith("<!DOCTYPE html>")
    assert _memory_viz.segment_plot(read)


def test_a_full_device_is_recorded_as_torch_records_it(gpu: VirtualGpu) -> None:
    with pytest.raises(MemoryError):
        gpu.memory.allocate(T4.memory_bytes)
    entry = snapshot(gpu)["device_traces"][1][-1]
    assert entry["action"] == "oom"
    assert entry["device_free"] >= 0
    assert "raise OutOfMemoryError" in _memory_viz.trace(snapshot(gpu))


# --- nothing is called


class Trap:
    """Pickled, it has a function called when it is read."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._call = call, arguments

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path, protocol: int) -> None:
    evidence = tmp_path / "evidence"
    file = tmp_path / "trap.pickle"
    file.write_bytes(pickle.dumps({"segments": [], "device_traces": Trap(os.mkdir, str(evidence))}, protocol))
    with pytest.raises(
        BadInput,
        match=r"trap.pickle was not opened: it asks for \w+\.mkdir; a snapshot of PyTorch has plain values only",
    ):
        snapshot_file.load(str(file), file.name)
    assert not evidence.exists()
    pickle.loads(file.read_bytes())
    assert evidence.exists(), "the trap would have worked"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"(ios\nsystem\n.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"\x80\x04}\x94\x8c\x08__dict__\x94}\x94sb.",
        b"\x80\x02U\x01x\x81.",
    ],
)
def test_every_way_to_a_global_is_closed(content: bytes) -> None:
    with pytest.raises(BadInput, match="was not opened"):
        opened(content)


def test_a_global_by_its_number_is_refused_too() -> None:
    copyreg.add_extension("os", "getcwd", 245)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf5.") is os.getcwd, "now it is in copyreg's cache, too"
        with pytest.raises(BadInput, match="extension 245"):
            opened(b"\x80\x02\x82\xf5.")
    finally:
        copyreg.remove_extension("os", "getcwd", 245)


def refusal(content: bytes) -> str | None:
    """Why it is refused; None when it was read. Anything but a refusal fails the test."""
    try:
        opened(content)
    except BadInput as error:
        return str(error)
    return None


@pytest.mark.parametrize("content", [b"Pabc\n.", b"\x80\x04\x8c\x03abcQ."])
def test_a_value_from_outside_the_file_is_refused(content: bytes) -> None:
    with pytest.raises(BadInput, match="values outside the file"):
        opened(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04N" + b"r" + struct.pack("<I", 1 << 24) + b".",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 26),
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40),
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"abc",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    ],
)
def test_sizes_that_a_file_claims_reserve_nothing(content: bytes) -> None:
    tracemalloc.start()
    try:
        assert refusal(content) is not None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MIB


def test_a_file_cut_off_anywhere_gives_one_clear_line(gpu: VirtualGpu) -> None:
    whole = pickle.dumps(snapshot(gpu), 4)
    for length in range(0, len(whole) - 1, 37):
        with pytest.raises(BadInput) as caught:
            opened(whole[:length], "cut.pickle")
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(
            "cut.pickle was not opened: it is no allocator snapshot, or it is damaged or cut off"
        )


def test_a_corrupt_file_is_refused_or_read_and_never_raises_anything_else(gpu: VirtualGpu) -> None:
    whole = pickle.dumps(snapshot(gpu), 4)
    for place in range(0, len(whole), 7):
        damaged = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        assert "\n" not in (refusal(damaged) or "")


def test_a_file_that_is_absent_or_a_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="could not be read: No such file"):
        snapshot_file.load(str(tmp_path / "absent"), "absent")
    with pytest.raises(BadInput, match="is a folder, not a file"):
        snapshot_file.load(str(tmp_path), "folder")


def test_reading_tells_how_far_it_is_and_can_be_stopped() -> None:
    content = pickle.dumps({"segments": [], "device_traces": [[trace_entry(number) for number in range(20_000)]]}, 4)
    told: list[float] = []
    assert opened(content, progress=told.append).trace_entries == 20_000
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] == 1

    def stop(share: float) -> None:
        if share > 0.3:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        opened(content, progress=stop)


# --- saving is all or nothing


def test_a_full_disk_leaves_the_old_file_whole(
    gpu: VirtualGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.pickle"
    snapshot_file.save(snapshot(gpu), str(file))
    before = file.read_bytes()
    allocate(gpu, 9 * MIB)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"could not be written to .*kept.pickle: No space left on device"):
        snapshot_file.save(snapshot(gpu), str(file))
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["kept.pickle"]


def test_a_place_that_cannot_be_written_is_named(gpu: VirtualGpu, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder; name a file"):
        snapshot_file.save(snapshot(gpu), str(tmp_path))
    with pytest.raises(BadInput, match="could not be written"):
        snapshot_file.save(snapshot(gpu), str(tmp_path / "absent" / "x.pickle"))


# --- other structures


def segment(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    size = sum(block["size"] for block in blocks)
    return {
        "device": 0,
        "address": 4096,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "blocks": list(blocks),
    } | more


def block(size: int, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    return {"size": size, "state": state} | more


def test_snapshots_of_older_versions_open() -> None:
    frames = [{"filename": "/home/me/train.py", "line": 7, "name": "step"}]
    old = [segment(block(512, history=[{"addr": 4096, "real_size": 400, "frames": frames}]), block(1024, "inactive"))]
    found = digest(old, "old")
    assert [one.address for one in found.segments[0].blocks] == [4096, 4608]
    assert found.segments[0].blocks[0].requested_bytes == 400
    assert found.segments[0].allocated_bytes == 512
    assert found.stacks[0].frames == ("train.py:7 step",)
    assert not found.simulated


def test_a_block_that_waits_for_another_stream_keeps_its_state() -> None:
    found = digest({"segments": [segment(block(512, "active_pending_free"), block(512, "active_awaiting_free"))]}, "x")
    assert [one.state for one in found.segments[0].blocks] == ["active_pending_free", "active_awaiting_free"]


_DEEP: list[Any] = []
for _ in range(40):
    _DEEP = [_DEEP, _DEEP]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (7, "Expected `object`, got `int`"),
        ({}, "missing required field `segments`"),
        ({"segments": {}}, "got `object` - at `$.segments`"),
        ({"segments": [3]}, "Expected `object`, got `int`"),
        ({"segments": [], "device_traces": 5}, "Expected `array`, got `int` - at `$.device_traces`"),
        ({"segments": [segment(blocks=None)]}, "Expected `array`, got `null`"),
        ({"segments": [segment(block(512, "lost"))]}, "Invalid enum value 'lost' - at `$[0].state`"),
        ({"segments": [segment(block(512, _DEEP))]}, "Expected `str`, got `array` - at `$[0].state`"),
        ({"segments": [segment(block(-1), total_size=512)]}, "Expected `int` >= 0 - at `$[0].size`"),
        ({"segments": [segment(total_size=True)]}, "got `bool` - at `$.total_size`"),
        ({"segments": [segment(address=10**5000)]}, "Expected `int` <= 9223372036854775807 - at `$.address`"),
        ({"segments": [segment(total_size=float("nan"))]}, "got `float` - at `$.total_size`"),
        ({"segments": [segment(device="cuda")]}, "got `str` - at `$.device`"),
        ({"segments": [segment(address=_DEEP)]}, "got `array` - at `$.address`"),
        ({"segments": [segment(block(512, frames=[5]))]}, "Expected `object`, got `int` - at `$[0]`"),
        (
            {"segments": [segment(block(512, frames=[{"filename": _DEEP, "line": 1, "name": "f"}]))]},
            "got `array` - at `$[0].filename`",
        ),
    ],
)
def test_another_structure_gives_one_clear_line(wrong: object, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        digest(wrong, "x")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_list_of_blocks_in_a_thousand_segments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "MOST_READ", 1000)
    one = segment(*(block(512) for _ in range(100)))
    with pytest.raises(BadInput, match="more than 1,000 blocks"):
        digest({"segments": [one] * 11}, "x")


def test_what_is_too_much_for_the_link_is_cut_to_the_largest_and_counted() -> None:
    many = [
        segment(*(block(512 * (1 + number % 50)) for number in range(10)), address=at << 20, device=0)
        for at in range(2500)
    ]
    large = segment(*(block(MIB + number) for number in range(6000)), address=1 << 50)
    frames = [{"filename": "f.py", "line": 1, "name": "f"}]
    for number, one in enumerate(many):
        one["blocks"][0]["frames"] = [*frames, {"filename": "f.py", "line": number, "name": "g"}]
    found = digest({"segments": [*many, large]}, "x")
    shown = sum(len(one.blocks) for one in found.segments)
    assert found.cut == 2500 * 10 + 6000 - shown > 0
    biggest = max(found.segments, key=lambda one: one.bytes)
    assert biggest.bytes == large["total_size"], "a segment's own size is whole, whatever is cut of its blocks"
    assert min(one.bytes for one in biggest.blocks) == MIB + 2000, "the largest blocks stay"
    assert len(found.segments) == 2000
    assert sum(stack.blocks for stack in found.stacks) == 2500
    assert found.stacks[-1].frames == ("500 more places",)
    event = SnapshotOpened(snapshot=found)
    assert decode_event(frame(event)[FRAME_HEAD:]) == event, "it crosses the link"


# --- any size: what is not shown is passed over, and nothing is held longer than needed


FRAMES = [{"name": f"f{number}", "filename": f"/home/me/{number % 7}.py", "line": number} for number in range(50)]


def trace_entry(number: int, **more: Any) -> dict[str, Any]:
    return {
        "action": "alloc",
        "addr": 0x7F00_0000_0000 + number,
        "size": 512,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + number,
        "compile_context": "".join(["N/", "A"]),
        "user_metadata": "",
        "pool_id": (0, int(str(number))),
        "frames": [FRAMES[(number + place) % 50] for place in range(1 + number % 30)],
    } | more


def stacked(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Segments of three blocks each: of its own stack, of one that others have too, and free."""
    shared = FRAMES[:3]
    made = []
    for number in range(start, start + count):
        blocks = [
            block(512 + number, address=number << 30, frames=[FRAMES[number % 50], FRAMES[number // 50 % 50]]),
            block(1024, address=(number << 30) + 512 + number, frames=shared, requested_size=1000),
            block(4096, "inactive", address=(number << 30) + 1536 + number, frames=[]),
        ]
        made.append(segment(*blocks, address=number << 30, segment_pool_id=(0, 0)))
    return made


TRACE = [trace_entry(number) for number in range(2_500)]
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "a": {"b": [1.5, None, True, 1 << 90]}}
WHOLE = {
    "segments": stacked(1_100),
    "device_traces": [[], TRACE],
    "allocator_settings": SETTINGS,
    "external_annotations": [{"name": "forward", "stage": "START", "time_us": number} for number in range(1_200)],
}


@pytest.mark.parametrize(
    "value",
    [
        WHOLE,
        WHOLE | {"segments": stacked(1)},
        WHOLE | {"segments": []},
        WHOLE | {"segments": stacked(1_001)},
        WHOLE | {"device_traces": []},
        WHOLE | {"device_traces": [[]]},
        WHOLE | {"device_traces": [TRACE[:1]]},
        WHOLE | {"device_traces": [TRACE[:1001]]},
        WHOLE | {"device_traces": [TRACE[:2], [], TRACE[:1], TRACE[5:1500], TRACE[:2]]},
        WHOLE | {"device_traces": [[trace_entry(7, user_metadata="x" * 300_000)], TRACE]},
        WHOLE | {"device_traces": [[trace_entry(7, frames=[{**FRAMES[0], "more": [[], {}, ()]}]), {}, {"a": 1}]]},
        dict(reversed(WHOLE.items())),
        {"segments": stacked(30)},
        stacked(1_100),
        stacked(1),
        [],
    ],
)
def test_read_in_pieces_it_is_what_it_is_as_a_whole(value: Any) -> None:
    expected = digest(pickle.loads(pickle.dumps(value)), "file")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert opened(pickle.dumps(value, protocol)) == expected, protocol


def test_entries_as_torch_writes_them_are_passed_over_at_once() -> None:
    """All but those that bring frames which were not met before, where the pickle begins a frame, and at its end."""
    content = pickle.dumps([trace_entry(number) for number in range(1_000)], 4)
    found = [match for match in plain_pickle.ENTRY.finditer(content) if b"N/A" in match[0]]
    assert 930 < len(found) < 1_000


def test_what_is_almost_an_entry_is_seen_in_one_go() -> None:
    almost = HEAD + b"}\x94(" + b"h\x00" * 20_000 + b"K\x01\x86\x94" * 20 + b"\x8c\x01a\x94" * 20 + b"h\x00" * 20_000
    content = almost + b"ueeu."
    assert opened(content).trace_entries == 1
    assert "cut off" in (refusal(almost) or "")


def test_entries_are_passed_over_without_holding_them() -> None:
    entries = [trace_entry(number) for number in range(20_000)]
    content = pickle.dumps({"segments": stacked(10), "device_traces": [entries]}, 4)
    file = io.BytesIO(content)
    tracemalloc.start()
    try:
        found = snapshot_file.read(file, len(content), "file", "file")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.trace_entries == 20_000
    assert most < 2 * MIB < len(content)


def test_segments_are_forgotten_as_soon_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    hand_over = plain_pickle.PlainUnpickler._hand_over

    def measured(self: plain_pickle.PlainUnpickler, one: object) -> None:
        hand_over(self, one)
        most.append(len(self.memo))

    monkeypatch.setattr(plain_pickle.PlainUnpickler, "_hand_over", measured)
    monkeypatch.setattr(plain_pickle, "MOST_MEMO", 400)
    own = [segment(block(512, frames=[FRAMES[number % 50]])) for number in range(1_500)]
    assert opened(pickle.dumps(own, 4)) == digest(own, "file")
    assert len(most) == 1_500
    # What stays of a segment: its own pool and an empty list at most; stacks up to the limit.
    assert max(most) < 900


def test_what_a_segment_needs_of_the_entries_before_it_is_read_with_them_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = FRAMES[:5]
    value = {
        "device_traces": [[trace_entry(number, frames=frames) for number in range(2_000)]],
        "segments": [segment(block(512, frames=frames))],
    }
    content = pickle.dumps(value, 4)
    assert opened(content).stacks == digest(value, "file").stacks
    monkeypatch.setattr(plain_pickle, "MOST_HELD", MIB)
    with pytest.raises(
        BadInput, match=r"refer to what was recorded before them.* 1 MiB; torch writes the segments first"
    ):
        opened(content)


def test_more_blocks_than_rows_are_held_leave_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    value = [
        segment(*(block(512 * (1 + (7 * number + at) % 1000)) for number in range(600)), address=at << 30)
        for at in range(100)
    ]
    expected = digest(value, "file")
    monkeypatch.setattr(snapshot_file, "MOST_READ", 30_000)
    found = opened(pickle.dumps(value, 4))
    assert found == expected
    assert found.cut == 60_000 - 20_000


def test_more_places_than_are_told_apart_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "MOST_PLACES", 3)
    value = [segment(*(block(512 * (9 - number), frames=[FRAMES[number]]) for number in range(5)))]
    found = opened(pickle.dumps(value, 4))
    assert [stack.bytes for stack in found.stacks] == [4608, 4096, 3584, 3072 + 2560]
    assert found.stacks[3].frames == ("more than 0 more places",)
    assert [one.frame for one in found.segments[0].blocks] == [0, 1, 2, 3, 3]


HEAD = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94]\x94(]\x94("
"""To the entries of the first trace."""
IN_SEGMENT = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94(}\x94("


HOSTILE = [
    (HEAD + b"}cos\nsystem\n", "asks for os.system"),
    (HEAD + b"}\x94(ios\nsystem\n", "asks for os.system"),
    (HEAD + b"}\x8c\x02os\x94\x8c\x06system\x93", "asks for os.system"),
    (HEAD + b"}\x82\xf5", "asks for an extension"),
    (HEAD + b"}Pabc\n", "values outside the file"),
    (HEAD + b"}\x8c\x03abcQ", "values outside the file"),
    (HEAD + b"}KK\x85R", "damaged or cut off"),
    (HEAD + b"}}b", "damaged or cut off"),
    (HEAD + b"}\x8f\x90", "damaged or cut off"),
    (HEAD + b"}ssss", "damaged or cut off"),
    (HEAD + b"}(uuuu", "damaged or cut off"),
    (HEAD + b"}" + b"]" * 50, "damaged or cut off"),
    (HEAD + b"}" + b"(" * 5000, "more than 100 levels deep"),
    (HEAD + b"}X\xff\xff\xff\xff", "damaged or cut off"),
    (HEAD + b"}\x8e" + b"\xff" * 8, "damaged or cut off"),
    (HEAD + b"}\x8b" + b"\xff" * 4, "damaged or cut off"),
    (HEAD + b"}V" + b"x" * 100_000, "damaged or cut off"),
    (HEAD + b"}\x95" + b"\xff" * 8, "damaged or cut off"),
    (b"(" * 5000, "more than 100 levels deep"),
    (IN_SEGMENT + b"\x8f", "damaged or cut off"),
    (IN_SEGMENT + b"h\x63", "damaged or cut off"),
    (IN_SEGMENT + b"X\xff\xff\xff\xff", "claims a value of 4.00 GiB"),
    (IN_SEGMENT + b"\x8d" + struct.pack("<Q", 1 << 40), "claims a value of 1.00 TiB"),
    (IN_SEGMENT + b"K\x01K\x02u}", "Expected `str` - at `key`"),
    (IN_SEGMENT + b"V" + b"x" * 100_000, "damaged or cut off"),
    (b"\x80\x04]\x94h\x00a.", "Expected `object`"),
    (b"\x80\x04]\x94(h\x00h\x00e.", "Expected `object`"),
    (b"\x80\x04]\x94}b.", "damaged or cut off"),
    (b"\x80\x04N.", "Expected `object`, got `null`"),
    (b".", "damaged or cut off"),
    (b"", "damaged or cut off"),
]


def test_hostile_files_are_refused_in_one_line() -> None:
    for content, words in HOSTILE:
        said = refusal(content)
        assert said is not None
        assert words in said
        assert said.startswith("file was not opened: ")
        assert "\n" not in said


@pytest.mark.parametrize(
    "flood",
    [b"]", b"}", b"]\x94", b"}\x94", b"\x94", b"h\x00", b"2", b"K\x07", b"M\xff\xff", b"G@\x09\x21\xfbTD-\x18",
     b")\x85",
     b"(]\x94t", b"\x8c\x04abcd", b"\x8c\x04abcd\x94", b"X\x00\x08\x00\x00" + b"x" * 2048, b"\x8a\x09" + b"\x07" * 9,
     b"r\xff\xff\xff\x7f", b"(l", b"(d", b"](h\x00h\x00h\x00e"],
)  # fmt: skip
@pytest.mark.parametrize("place", [IN_SEGMENT, b"\x80\x04}\x94(\x8c\x01x\x94"])
def test_floods_are_refused_before_they_fill_the_memory(
    flood: bytes, place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_HELD", 2 * MIB)
    file = io.BytesIO(place + b"N" + flood * (MIB // len(flood)))
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="takes more than 2 MiB of memory"):
            snapshot_file.read(file, MIB, "file", "file")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * MIB


def test_a_memo_bomb_between_segments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of blocks in many segments: a few bytes each, and thousands of blocks."""
    monkeypatch.setattr(snapshot_file, "MOST_READ", 20_000)
    one = segment(*(block(512, address=number) for number in range(1_000)))
    content = pickle.dumps([{**one, "address": number} for number in range(50)], 4)
    assert len(content) < 100_000
    with pytest.raises(BadInput, match="more than 20,000 blocks"):
        opened(content)


def test_a_big_file_for_measuring_is_one_that_torch_could_have_written() -> None:
    file = io.BytesIO()
    entries = big_snapshot.write(file, 3_000_000, blocks=400)
    content = file.getvalue()
    assert len(content) >= 3_000_000
    value = pickle.loads(content)
    assert list(value) == ["segments", "device_traces", "allocator_settings", "external_annotations"]
    assert len(value["device_traces"][1]) == entries
    assert all(len(one["frames"]) == big_snapshot.DEPTH for one in value["device_traces"][1])
    assert opened(content) == digest(value, "file")
