"""Rows of device facts, and the formatting of their values. Pure functions, any thread.

An unknown value is a dash with the most specific reason available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from devexplorer.core.base import MISSING, bytes_text, number_text
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem

NOT_MODELLED = "not modelled for a virtual GPU"
NOT_TOLD = "not reported by the driver"
NO_READING = "no reading yet"
NOT_CUDA = "torch counts CUDA devices only"
NO_CPU_FIELD = "a CPU has none, or the system does not tell it"
_CARDS = ("cuda", "nvml")
"""Kinds of which every row is shown, known or not; of the others only what is known, or missing for a reason. Two
thirds of the rows of a virtual GPU would be dashes."""

_MODELLED = (
    "memory_used_bytes", "memory_total_bytes", "utilization_percent", "temperature_c", "power_w", "power_cap_w",
    "sm_clock_mhz", "throttle_reasons",
)  # fmt: skip
"""What is read of a virtual GPU."""


class FactRow(NamedTuple):
    """One fact."""

    label: str
    value: str
    """Ready to be read, with its unit; `—` where it is not known."""
    why: str = ""
    """Why it, or a part of it, is not known."""
    meaning: str = ""
    """What the label means, where that needs a word."""
    warning: bool = False
    """Whether a person should look at it."""

    def line(self, width: int) -> str:
        """As plain text, with a label of this width; a reason follows the value."""
        return f"  {self.label:<{width}}  {self.value}" + (f"  ({self.why})" if self.why else "")


class DeviceFact(NamedTuple):
    """One field as a row."""

    label: str
    field: str
    write: Callable[[Any], str] = str
    meaning: str = ""
    core: bool = False
    """Whether it is shown for every kind of device, known or not."""
    warn: Callable[[Any], object] | None = None
    most: str = ""
    """The field of the most that it can be: `1,410 of 1,980 MHz`."""
    unit: str = ""
    """Behind both, where there is a most."""


class FactGroup(NamedTuple):
    """Facts that belong together."""

    title: str
    rows: tuple[FactRow, ...]


def label_width(groups: Iterable[FactGroup]) -> int:
    """Characters of the longest label."""
    return max((len(row.label) for group in groups for row in group.rows), default=0)


class Writer:
    """Makes the rows of one device: looks up fields and the reasons for those that are not there."""

    def __init__(
        self, info: DeviceInfo, sample: DeviceSample | None, details: DeviceDetails | None, problems: Iterable[Problem]
    ) -> None:
        self.info, self.sample, self.details = info, sample, details
        own = [problem for problem in problems if problem.device == info.id]
        self._reasons = {problem.field: problem.reason for problem in own if problem.field is not None}
        self._whole = next((problem.reason for problem in own if problem.field is None), "")
        self._core: set[str] = set()

    def get(self, field: str) -> Any:
        """The value of a field: of the sample, else of the details, else of the info."""
        for record in (self.sample, self.details, self.info):
            value = getattr(record, field, None)
            if value is not None:
                return value
        return None

    def reason(self, field: str) -> str:
        """The reason that was given for exactly this field; empty when none was."""
        given = self.details.missing.get(field) if self.details is not None else None
        return given or self._reasons.get(field, "")

    def why(self, field: str) -> str:
        """Why a field is not known, by the most exact reason there is."""
        if given := self.reason(field):
            return given
        if field == "cuda_ordinal":
            return self.info.reason or NOT_CUDA
        if self.info.simulated:
            return NO_READING if self.sample is None and field in _MODELLED else NOT_MODELLED
        if self._whole:
            return self._whole
        if self.info.parent is not None:
            return f"a MIG instance has none: see {self.info.parent}"
        record = self.sample if field in DeviceSample.__struct_fields__ else self.details
        return NO_READING if record is None else NOT_TOLD

    def why_null(self, field: str) -> str:
        """The same for documents, which have every field of every kind of device."""
        return (self.reason(field) or NO_CPU_FIELD) if self.info.kind == "cpu" else self.why(field)

    def row(self, fact: DeviceFact) -> FactRow:
        """The row of one fact."""
        if fact.core:
            self._core.add(fact.label)
        value, most = self.get(fact.field), self.get(fact.most) if fact.most else None
        if value is None and most is None:
            return FactRow(fact.label, MISSING, self.why(fact.field), fact.meaning)
        text = MISSING if value is None else fact.write(value)
        why = self.why(fact.field) if value is None else ""
        if fact.most:
            text = f"{text}{'' if most is None else f' of {fact.write(most)}'} {fact.unit}".strip()
            why = why or (self.why(fact.most) if most is None else "")
        return FactRow(fact.label, text, why, fact.meaning, bool(fact.warn and fact.warn(value)))

    def kept(self, rows: Iterable[FactRow]) -> tuple[FactRow, ...]:
        """Without the rows that make no sense for this kind of device."""
        there = list(rows)
        if self.info.kind in _CARDS:
            return tuple(there)
        given = {*self._reasons.values(), *(self.details.missing.values() if self.details is not None else ())}
        return tuple(row for row in there if row.value != MISSING or row.label in self._core or row.why in given)


def number(value: Any) -> str:
    """`16,896`; a text stays as it is."""
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def size(value: float) -> str:
    """Bytes, with a binary unit."""
    return bytes_text(value)


def rate(value: float) -> str:
    """Bytes per second, with a binary unit."""
    return f"{size(value)}/s"


def in_unit(unit: str, digits: int = 0) -> Callable[[Any], str]:
    """Writes numbers with `unit` behind them."""

    def write(value: object) -> str:
        return f"{value:,.{digits}f} {unit}"

    return write


PERCENT, CELSIUS, MEGAHERTZ = in_unit("%"), in_unit("°C"), in_unit("MHz")


def watt(value: float) -> str:
    """`687.4 W`, `700 W`."""
    return f"{value:,.1f}".removesuffix(".0") + " W"


def energy(value: float) -> str:
    """Joules, with a decimal prefix."""
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if value >= factor:
            return f"{number_text(value / factor)} {unit}"
    return f"{value:,.0f} J"


def switch(value: object) -> str:
    """A mode."""
    return "on" if value else "off"


def yes(value: object) -> str:
    """A fact."""
    return "yes" if value else "no"


def pending(writer: Writer, later: str) -> Callable[[Any], str]:
    """Writes a mode, and what it will be where the field `later` of the details differs: `off, on after a reset`."""

    def write(value: object) -> str:
        after = getattr(writer.details, later, None)
        return switch(value) + ("" if after is None or after == value else f", {switch(after)} after a reset")

    return write
