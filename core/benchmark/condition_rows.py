"""Conditions as text: all of one run as rows, and what differs between runs. Pure functions, any thread; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import fields

from devexplorer.core.base import MISSING, number_text
from devexplorer.core.benchmark.kind import kind_of, title
from devexplorer.core.records import BenchSpec, Conditions, Spread, StoredRun


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
    field: str
    unit: str = ""
    tolerance: float = 0.0
    """Readings this far apart, as a share of the larger, are the same."""
    none: str = ""
    """What is written for an empty list."""

    def text(self, of: Conditions) -> str | None:
        """None: not known."""
        value = getattr(of, self.field)
        if self.field == "device_name":
            value = value or of.device
        if isinstance(value, Spread):
            span = (f"{value.p20:.0f}", f"{value.p80:.0f}")
            return f"{value.median:.0f} {self.unit}" + (f" ({span[0]} to {span[1]})" if len(set(span)) > 1 else "")
        if isinstance(value, tuple):
            return ", ".join(value) or self.none
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None or value == "":
            return None
        if self.field == "git_revision":
            return str(value)[:12]
        return f"{number_text(value)} {self.unit}" if self.unit else str(value)

    def median(self, of: Conditions) -> float | None:
        """Of a reading: the number that is compared, within `tolerance`."""
        value = getattr(of, self.field)
        return value.median if isinstance(value, Spread) else None


_CONDITIONS = (
    _Condition("device", "device_name"),
    _Condition("UUID", "uuid"),
    _Condition("host", "host"),
    _Condition("simulated", "simulated"),
    _Condition("driver", "driver_version"),
    _Condition("CUDA", "cuda_version"),
    _Condition("torch", "torch_version"),
    _Condition("Python", "python_version"),
    _Condition("DevExplorer", "devexplorer_version"),
    _Condition("revision", "git_revision"),
    _Condition("threads", "threads"),
    _Condition("SM clock", "sm_clock_mhz", "MHz", 0.01),
    _Condition("memory clock", "memory_clock_mhz", "MHz", 0.01),
    _Condition("power", "power_w", "W", 0.05),
    _Condition("power cap", "power_cap_w", "W"),
    _Condition("temperature", "temperature_c", "°C", 0.05),
    _Condition("throttled by", "throttle_reasons", none="nothing"),
    _Condition("other processes", "other_processes", none="none"),
)

_SPEC_LABELS = {
    "m": "M", "n": "N", "k": "K", "transpose_a": "A transposed", "transpose_b": "B transposed",
    "flush_cache": "cache flushed",
    "block_seconds": "seconds of a block", "seconds": "requested seconds", "iterations": "requested iterations",
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
        if condition.tolerance:
            numbers = [number for run in runs if (number := condition.median(run.conditions)) is not None]
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
    for field in fields(specs[0]):
        values = [getattr(spec, field.name) for spec in specs]
        if field.name in kind_of(specs[0]).not_compared:
            continue
        if any(value != values[0] for value in values):
            label = _SPEC_LABELS.get(field.name, field.name.replace("_", " "))
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
