"""Recordings for tests: two cards over a few minutes, written frame by frame with times set by the test."""

from __future__ import annotations

from pathlib import Path

from devexplorer.core.recording.format import (
    DeviceList,
    FrameKind,
    Header,
    Recorded,
    Recording,
    end_frame,
    entries_frame,
    header_frame,
    open_recording,
    prefix,
)
from devexplorer.core.records import (
    AllocatorSample,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceInfo,
    DeviceSample,
    Log,
    MatmulResult,
    MatmulSpec,
    Moved,
    MoveReport,
    Problem,
    ProcessUse,
    Spread,
)

START_UNIX_S = 1_700_000_000.0
GIB = 1 << 30
CPU = DeviceInfo(id="cpu", kind="cpu", name="A processor", memory_total_bytes=64 * GIB, threads=8)
CARDS = tuple(
    DeviceInfo(
        id=f"cuda:{index}", kind="cuda", name="NVIDIA A10", uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000",
        nvml_index=index,
        cuda_ordinal=index, memory_total_bytes=24 * GIB,
    )
    for index in range(2)
)  # fmt: skip
PROBLEM = Problem("the fan cannot be read", device="cuda:1", field="fan_percent")
SPEC = MatmulSpec(device="cuda:0", m=64, n=64, k=64)


def sample(device: str, at_s: float, used: int | None, **more: float) -> DeviceSample:
    """A reading `at_s` seconds after the start."""
    return DeviceSample(
        device=device,
        time_unix_s=START_UNIX_S + at_s,
        memory_used_bytes=used,
        memory_total_bytes=24 * GIB,
        temperature_c=40.0,
        performance_state="P0",
        processes=(ProcessUse(pid=7, name="python", memory_bytes=used),),
        **more,  # type: ignore[arg-type]
    )


def used_at(device: str, at_s: float) -> int:
    """The memory in `readings`: it grows by 64 MiB each second, on the second card by 128."""
    return (int(at_s) * (1 + int(device[-1] == "1")) << 26) % (24 * GIB)


def readings(at_s: float, devices: tuple[DeviceInfo, ...] = CARDS) -> list[tuple[int, Recorded]]:
    """One reading of each card."""
    return [(round(at_s * 1000), sample(info.id, at_s, used_at(info.id, at_s))) for info in devices]


def happenings() -> list[tuple[int, Recorded]]:
    """A move after 10 s, a run from 20 s to 30 s, an error after 40 s."""
    report = MoveReport(
        objects=("mlp",), source=("cpu",), destination="cuda:0", dtype=None, parameters=4, buffers=0, gradients=0,
        tensors=0,
        bytes=1024, seconds=0.1, wall_seconds=0.1, gb_per_s=None, simulated=False,
    )  # fmt: skip
    spread = Spread(2.0, 1.5, 2.5)
    result = MatmulResult(
        run=5, spec=SPEC, tflops=spread, iterations=9, blocks=3, seconds=10.0, stopped=False, simulated=False
    )  # fmt: skip
    at = START_UNIX_S
    return [
        (10_000, Moved(report=report, time_unix_s=at + 10)),
        (19_000, BenchPreparing(run=5, spec=SPEC, simulated=False)),
        (20_000, BenchStarted(run=5, time_unix_s=at + 20)),
        (30_000, BenchEnded(run=5, time_unix_s=at + 30, result=result)),
        (40_000, Log(level="error", text="a card was lost", time_unix_s=at + 40)),
    ]


def recording(seconds: int, step_s: float = 0.5, devices: tuple[DeviceInfo, ...] = (CPU, *CARDS)) -> list[bytes]:
    """The parts of a recording: the header, then a frame for every half second, then the end."""
    header = Header(host="forge", time_unix_s=START_UNIX_S, devexplorer="0.1.0", devices=devices)
    pieces = [prefix(), header_frame(header)]
    pieces.append(entries_frame(FrameKind.EVENTS, [(0, DeviceList(devices, (PROBLEM,)))], START_UNIX_S))
    cards = tuple(info for info in devices if info.kind != "cpu")
    waiting = happenings()
    for tick in range(round(seconds / step_s)):
        at_s = tick * step_s
        now = START_UNIX_S + at_s
        if waiting and waiting[0][0] <= at_s * 1000:
            pieces.append(entries_frame(FrameKind.EVENTS, [waiting.pop(0)], now))
        entries = readings(at_s, cards)
        if 20 <= at_s < 30:
            entries.append(
                (
                    entries[-1][0],
                    BenchPoint(run=5, device="cuda:0", time_unix_s=now, tflops=2.0, iterations=3, seconds=0.05),
                )
            )
        allocator = AllocatorSample(device="cuda:0", time_unix_s=now, allocated_bytes=1 << 20, reserved_bytes=2 << 20)
        pieces.append(entries_frame(FrameKind.READINGS, [*entries, (entries[-1][0], allocator)], now))
    pieces.append(end_frame(seconds * 1000, START_UNIX_S + seconds))
    return pieces


def write(path: Path, seconds: int = 60, **more: object) -> Path:
    """A whole recording in a file."""
    path.write_bytes(b"".join(recording(seconds, **more)))  # type: ignore[arg-type]
    return path


def opened(path: Path) -> Recording:
    recording = open_recording(path)
    assert recording is not None
    return recording


def frames(entries: list[tuple[int, DeviceSample]], unix_s: float) -> bytes:
    return b"".join(entries_frame(FrameKind.READINGS, [entry], unix_s + entry[0] / 1000) for entry in entries)
