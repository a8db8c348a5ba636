"""The cost of a recording: bytes of a sample, time of a `put`, time to open an hour of 8 cards and to seek to any time
in it.

    python tests/benchmarks/recording_cost.py [--hours 1] [--cards 8]

The samples have every field of a large card and one process; fields that change on a busy card change at random, the
worst case for compression. "Glance" is the first answer to a jump (cards, coarse curves), "whole" the second (with the
readings of the minutes before), cold and again nearby. The scan that provides the coarse curves continues in the
background."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from devexplorer.core.recording.format import (
    DeviceList,
    FrameKind,
    Header,
    Recorded,
    end_frame,
    entries_frame,
    header_frame,
    open_recording,
    prefix,
)
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.recording.timeline import RecordingTimeline
from devexplorer.core.records import DeviceInfo, DeviceSample, ProcessUse

RATE_HZ = 10
START_S = 1_700_000_000.0
GIB = 1 << 30
TICKS_PER_FRAME = 4
PUTS = 50_000


def sample(card: int, dice: random.Random) -> DeviceSample:
    """A busy card."""
    return DeviceSample(
        device=f"cuda:{card}", time_unix_s=START_S, memory_used_bytes=dice.randrange(64 * GIB),
        memory_free_bytes=dice.randrange(64 * GIB),
        memory_reserved_bytes=GIB // 2, memory_total_bytes=80 * GIB, utilization_percent=float(dice.randrange(100)),
        memory_utilization_percent=float(dice.randrange(100)), encoder_percent=0.0, decoder_percent=0.0,
        temperature_c=float(dice.randrange(60, 64)), memory_temperature_c=70.0, power_w=dice.random() * 400,
        power_instant_w=dice.random() * 400, power_cap_w=700.0, energy_j=dice.random() * 1e9,
        sm_clock_mhz=dice.randrange(1900, 1980),
        memory_clock_mhz=2600, graphics_clock_mhz=1980, video_clock_mhz=1500, performance_state="P0",
        throttle_reasons=(),
        pcie_generation=5, pcie_width=16, pcie_tx_bytes_s=dice.random() * 1e9, pcie_rx_bytes_s=dice.random() * 1e9,
        pcie_replays=0,
        nvlink_tx_bytes_s=0.0, nvlink_rx_bytes_s=0.0, ecc_corrected=0, ecc_uncorrected=0,
        processes=(ProcessUse(pid=1234, name="python", memory_bytes=GIB, user="me", command="python train.py",
                              kind="compute"),),
    )  # fmt: skip


def write(path: Path, hours: float, cards: int) -> int:
    """A recording as the recorder writes it, without waiting; returns how many samples are in it."""
    dice = random.Random(1)
    pool = [[sample(card, dice) for card in range(cards)] for _ in range(600)]
    infos = tuple(DeviceInfo(id=f"cuda:{card}", kind="cuda", name="H100", uuid=f"GPU-{card}") for card in range(cards))
    ticks = round(hours * 3600 * RATE_HZ)
    with path.open("wb") as file:
        file.write(prefix() + header_frame(Header(host="here", time_unix_s=START_S, devices=infos)))
        file.write(entries_frame(FrameKind.EVENTS, [(0, DeviceList(infos))], START_S))
        entries: list[tuple[int, Recorded]] = []
        for tick in range(ticks):
            now = START_S + tick / RATE_HZ
            at_ms = tick * 1000 // RATE_HZ
            entries += [(at_ms, msgspec.structs.replace(each, time_unix_s=now)) for each in pool[tick % len(pool)]]
            if tick % TICKS_PER_FRAME == TICKS_PER_FRAME - 1 or tick == ticks - 1:
                file.write(entries_frame(FrameKind.READINGS, entries, now))
                entries = []
        file.write(end_frame(ticks * 1000 // RATE_HZ, START_S + hours * 3600))
    return ticks * cards


def timed(words: str, work: Callable[[], object]) -> None:
    """Do it once and print how long it took."""
    started = time.perf_counter()
    work()
    print(f"  {words:<58}{(time.perf_counter() - started) * 1e3:>10.1f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cards", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.devx"
        count = write(path, arguments.hours, arguments.cards)
        size = path.stat().st_size
        plain = len(msgspec.msgpack.encode(sample(0, random.Random(1))))
        print(f"  {'bytes of a sample (as msgpack alone)':<58}{size / count:>10.1f} ({plain})")
        print(f"  {f'{arguments.hours:g} h of {arguments.cards} cards at {RATE_HZ} Hz':<58}{size / 1e6:>10.1f} MB")

        problems: list[str] = []
        recorder = Recorder(Path(folder) / "put", on_problem=problems.append)
        one = sample(0, random.Random(1))
        started = time.perf_counter()
        for _ in range(PUTS):
            recorder.put(one)
        took = time.perf_counter() - started
        recorder.close(30)
        assert not problems
        print(f"  {'put':<58}{took / PUTS * 1e6:>10.2f} µs")

        with open_recording(path) or exit("it did not open") as recording:
            timed("open it: every byte read and checked", lambda: (open_recording(path) or recording).close())
            reel = RecordingTimeline(recording)
            middle = reel.length_ms // 2
            timed("jump, glance", lambda: reel.state_at(middle, whole=False))
            timed("jump, whole, cold", lambda: reel.state_at(middle))
            timed("jump nearby, whole", lambda: reel.state_at(middle - 5000))
            timed("looking through", lambda: [None for _ in iter(reel.advance, False)])
            timed("jump, whole, cold, everything before it", lambda: reel.state_at(reel.length_ms - 1000))


if __name__ == "__main__":
    main()
