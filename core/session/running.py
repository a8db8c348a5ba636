"""Runs as a list of them is shown: where they run, how far they are, what holds the clocks down, what is copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from devexplorer.core.base import left_text
from devexplorer.core.benchmark.kind import benchmark_document, devices_of, kind_of
from devexplorer.core.records import BenchResult, BenchSpec
from devexplorer.core.session.journal import Run
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.device_facts import held_down

Seen = dict[int, set[str]]
"""Run -> what was seen to hold the clocks down while it ran."""


def where(spec: BenchSpec) -> str:
    """The devices of a run, in a few words."""
    devices = devices_of(spec)
    return ", ".join(devices) if len(devices) <= 2 else f"{len(devices)} devices"


def time_left(run: Run, now_unix_s: float) -> float | None:
    """Seconds until the run ends, where that can be known: by what is done of it, else by the time it was given."""
    if run.ended or run.started_unix_s is None:
        return None
    elapsed, done = now_unix_s - run.started_unix_s, run.latest.done if run.latest is not None else None
    if done is not None:
        return max(elapsed * (1 - done) / done, 0.0) if done > 0.02 and elapsed > 0.5 else None
    seconds = kind_of(run.spec).duration(run.spec)
    return None if seconds is None else max(run.started_unix_s + seconds - now_unix_s, 0.0)


def done_share(run: Run, now_unix_s: float) -> float | None:
    """0 to 1: how much of the run is over; None where it is unknown."""
    if run.latest is not None and run.latest.done is not None:
        return min(max(run.latest.done, 0.0), 1.0)
    left = time_left(run, now_unix_s)
    if left is None or run.started_unix_s is None:
        return None
    elapsed = now_unix_s - run.started_unix_s
    return elapsed / (elapsed + left) if elapsed + left > 0 else 0.0


def remaining_text(runs: Iterable[Run], now_unix_s: float) -> str:
    """`8 s left` of the run that takes longest, `warming up`, or nothing."""
    runs = tuple(runs)
    known = [left for run in runs if (left := time_left(run, now_unix_s)) is not None]
    if not known:
        return "warming up" if any(run.started_unix_s is None for run in runs) else ""
    return left_text(max(known))


def is_simulated(run: Run, state: State) -> bool:
    """Whether any figure of the run comes from a simulated clock."""
    if run.simulated or (run.result is not None and run.result.simulated):
        return True
    return any(name in state.devices and state.devices[name].info.simulated for name in devices_of(run.spec))


def see_throttling(seen: Seen, state: State) -> None:
    """Remember what holds the clocks of the devices down that are measured now: a sample only says what it is at one
    moment."""
    for run in state.active_runs:
        for name in devices_of(run.spec):
            device = state.devices.get(name)
            if device is not None and device.sample is not None and run.started_unix_s is not None:
                seen.setdefault(run.run, set()).update(
                    reason.partition(" (")[0] for reason in held_down(device.sample.throttle_reasons)
                )


def runs_document(results: Iterable[BenchResult]) -> str:
    """Finished runs of one kind as `devexplorer bench KIND --json` prints them."""
    import json  # when it is copied, not when the window starts

    found: Sequence[tuple[BenchResult, None]] = [(result, None) for result in results]
    return json.dumps({"schema": 1, **benchmark_document(found)}, indent=2)
