"""Conditions in words: all of one run as rows, and what differs between runs. Pure functions, any thread; no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from devexplorer.core.base.formats import MISSING, number_text
from devexplorer.core.benchmark.kinds import kind_of, title
from devexplorer.core.records.benchmark import BenchSpec, Conditions, Spread, StoredRun


class ConditionRow(NamedTuple):
    """One condition of one run."""

    label: str
    value: str
    """`—` where it is not known."""


class Differing(NamedTuple):
    """One condition that is not the same in all runs."""

    label: str
    values: tuple[str, ...]
    """One per run, in their order."""


class _Condition(NamedTuple):
    label: str
    text: Callable[[Conditions], str | None]
    measured: Callable[[Conditions], float | None] | None = None
    """Of a reading: the number that is compared, within `tolerance`."""
    tolerance: float = 0.0
    """Readings this far apart, as a share of the larger, are the same."""


def _reading(name: str, unit: str) -> tuple[Callable[[Conditions], str | None], Callable[[Conditions], float | None]]:
    def text(of: Conditions) -> str | None:
        known: Spread | None = getattr(of, name)
        if known is None:
            return None
        if f"{known.p20:.0f}" == f"{known.p80:.0f}":
            return f"{known.median:.0f} {unit}"
        return f"{known.median:.0f} {unit} ({known.p20:.0f} to {known.p80:.0f})"

    def number(of: Conditions) -> float | None:
        known: Spread | None = getattr(of, name)
        return None if known is None else known.median

    return text, number


_CONDITIONS = (
    _Condition("device", lambda c: c.device_name or c.device or None),
    _Condition("UUID", lambda c: c.uuid),
    _Condition("host", lambda c: c.host or None),
    _Condition("simulated", lambda c: "yes" if c.simulated else "no"),
    _Condition("driver", lambda c: c.driver_version),
    _Condition("CUDA", lambda c: c.cuda_version),
    _Condition("torch", lambda c: c.torch_version),
    _Condition("Python", lambda c: c.python_version),
    _Condition("DevExplorer", lambda c: c.devexplorer_version),
    _Condition("revision", lambda c: None if c.git_revision is None else c.git_revision[:12]),
    _Condition("threads", lambda c: None if c.threads is None else str(c.threads)),
    _Condition("SM clock", *_reading("sm_clock_mhz", "MHz"), 0.01),
    _Condition("memory clock", *_reading("memory_clock_mhz", "MHz"), 0.01),
    _Condition("power", *_reading("power_w", "W"), 0.05),
    _Condition("power cap", lambda c: None if c.power_cap_w is None else f"{number_text(c.power_cap_w)} W"),
    _Condition("temperature", *_reading("temperature_c", "°C"), 0.05),
    _Condition(
        "clocks limited by",
        lambda c: None if c.throttle_reasons is None else ", ".join(c.throttle_reasons) or "nothing",
    ),
    _Condition(
        "other processes", lambda c: None if c.other_processes is None else ", ".join(c.other_processes) or "none"
    ),
)

_SPEC_WORDS = {
    "m": "M", "n": "N", "k": "K", "transpose_a": "A transposed", "transpose_b": "B transposed",
    "flush_cache": "cache flushed",
    "block_seconds": "seconds of a block", "seconds": "seconds asked for", "iterations": "iterations asked for",
    "both_ways": "both ways", "shape_seconds": "seconds per shape", "search_seconds": "seconds of the search",
}  # fmt: skip


def all_conditions(of: Conditions) -> tuple[ConditionRow, ...]:
    """Everything about one run, in reading order."""
    moments = (
        ConditionRow("began", moment_text(of.started_unix_s)),
        ConditionRow("ended", moment_text(of.ended_unix_s)),
    )
    return (*moments, *(ConditionRow(row.label, row.text(of) or MISSING) for row in _CONDITIONS))


def moment_text(time_unix_s: float) -> str:
    """`2026-11-20 13:47:51 UTC`."""
    return datetime.fromtimestamp(time_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def condition_rows(runs: Sequence[StoredRun]) -> tuple[Differing, ...]:
    """What was asked for differently, then conditions that differ. What one run knows and another does not is no
    difference; readings differ by more than 1 % (clocks) or 5 % (power, temperature).
    """
    rows = list(_asked([run.result.spec for run in runs]))
    for condition in _CONDITIONS:
        texts = [condition.text(run.conditions) for run in runs]
        if condition.measured is not None:
            numbers = [number for run in runs if (number := condition.measured(run.conditions)) is not None]
            differs = len(numbers) > 1 and max(numbers) - min(numbers) > condition.tolerance * max(numbers)
        else:
            differs = len({text for text in texts if text is not None}) > 1
        if differs:
            rows.append(Differing(condition.label, tuple(text or MISSING for text in texts)))
    return tuple(rows)


def _asked(specs: Sequence[BenchSpec]) -> list[Differing]:
    """Differences between specifications of one kind; the device's id is left to the conditions, which have its
    name."""
    if len({type(spec) for spec in specs}) > 1:
        return [Differing("benchmark", tuple(title(spec) for spec in specs))]
    rows = []
    for field in msgspec.structs.fields(specs[0]):
        values = [getattr(spec, field.name) for spec in specs]
        if field.name in kind_of(specs[0]).not_compared:
            continue
        if any(value != values[0] for value in values):
            label = _SPEC_WORDS.get(field.name, field.name.replace("_", " "))
            rows.append(Differing(label, tuple(map(_asked_text, values))))
    return rows


def _asked_text(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_asked_text(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
