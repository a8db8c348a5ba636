"""Reports of runs of a script."""

from __future__ import annotations

from devexplorer.core.observe.records import DeviceUse, PhaseTime, RunReport, RunVerdict

NOISE = [1 + 0.01 * (number * 7 % 5 - 2) for number in range(32)]


def report(peak: int = 100 << 20, clock: str = "cpu", **milliseconds: float) -> RunReport:
    """A run whose phases take so long."""
    total, sizes = sum(milliseconds.values()), {"cpu": 1 << 20, "cuda:0": peak}
    phases = tuple(
        PhaseTime(
            name=name,
            seconds=1.0,
            share=each / total,
            median_seconds=each / 1e3,
            parts=tuple(each / 1e3 * noise for noise in NOISE),
        )
        for name, each in milliseconds.items()
    )
    return RunReport(
        script="train.py", arguments=(), python="3.11.7", torch="2.13.0", started_unix_s=0.0, seconds=9.0, steps=400,
        steps_counted=397, training=True, clock=clock, phases=phases, step_median_seconds=total / 1e3,
        step_parts=tuple(total / 1e3 * noise for noise in NOISE),
        memory=tuple(DeviceUse(device=name, peak_allocated_bytes=size) for name, size in sizes.items()),
        verdict=RunVerdict(kind="compute-bound", text="Compute-bound."),
    )  # fmt: skip
