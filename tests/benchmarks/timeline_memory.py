"""Memory of the window's state while a million samples pass through it: flat, because timelines are rings.

Run it: `python tests/benchmarks/timeline_memory.py`. It fills the rings first, then compares resident memory before and
after 1,000,000 more samples of nine devices (a day at 10 Hz and more).
"""

from __future__ import annotations

import gc
import time

import psutil

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records.devices import DeviceInfo, DeviceSample
from devexplorer.core.state import State

SAMPLES = 1_000_000
DEVICES = ("cpu", *(f"vgpu:{index}" for index in range(8)))
MIB = 1 << 20


def main(samples: int = SAMPLES) -> dict[str, float]:
    """Push the samples; returns bytes before and after, their ratio, and microseconds for each sample."""
    state = State()
    state.set_catalog(Catalog(tuple(DeviceInfo(id=name, kind=name.partition(":")[0], name=name) for name in DEVICES)))
    capacity = state.devices["cpu"].memory.capacity
    push(state, 0, 2 * capacity * len(DEVICES))
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    started = time.perf_counter()
    push(state, 2 * capacity, samples)
    seconds = time.perf_counter() - started
    gc.collect()
    after = process.memory_info().rss
    assert len(state.devices["cpu"].memory) == capacity
    return {
        "samples": samples,
        "before_bytes": before,
        "after_bytes": after,
        "ratio": after / before,
        "microseconds_per_sample": seconds / samples * 1e6,
    }


def push(state: State, start: int, count: int) -> None:
    """Feed `count` samples, the devices in turn, one tick of 0.1 s after the other, from tick `start` on."""
    for number in range(count):
        tick, device = divmod(number, len(DEVICES))
        sample = DeviceSample(
            device=DEVICES[device],
            time_unix_s=1.7e9 + (start + tick) * 0.1,
            memory_used_bytes=(number * 4096) % (15 << 30),
            memory_total_bytes=15 << 30,
        )
        state.apply(sample)


if __name__ == "__main__":
    found = main()
    print(
        f"timeline memory: {found['before_bytes'] / MIB:.1f} MiB before, {found['after_bytes'] / MIB:.1f} MiB after "
        f"{found['samples']:,.0f} samples, ratio {found['ratio']:.3f}, "
        f"{found['microseconds_per_sample']:.2f} us a sample"
    )
