"""`devexplorer compare A B`: what became slower or larger from one run to another. Main thread; no torch.

Times are compared as runs of benchmarks are (`core.history.compare`): medians of consecutive parts of a run, an exact
test, a 95 % interval of the ratio. It knows the noise within a run; what differs between two processes (memory placed
otherwise, other programs) only more runs show.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from devexplorer.core.base import BadInput, bytes_text, number_text, printable, seconds_text
from devexplorer.core.base.files import open_regular
from devexplorer.core.cli.terminal import console, print_document, table
from devexplorer.core.history.compare import ALPHA, adjusted, difference, duration_text, size_text
from devexplorer.core.observe.records import SCHEMA, RunReport

LEAST_SHARE = 0.01
"""Of a step in either run: shorter phases are left out."""
LARGEST_FILE = 64 << 20


class StepDifference(NamedTuple):
    """The seconds of a step, or of one phase of it, in both runs: the second against the first."""

    name: str
    first: float
    second: float
    ratio: float | None
    low: float | None
    """95 % interval of the ratio; None: too few steps."""
    high: float | None
    p_value: float | None

    @property
    def significant(self) -> bool:
        """Whether chance does not explain it."""
        return self.p_value is not None and self.p_value < ALPHA

    def text(self) -> str:
        """What is said of it."""
        if self.ratio is None:
            return "only in one of the runs"
        change = duration_text(self.ratio)
        if self.low is None or self.high is None:
            return f"{change}; too few steps to say more"
        if not self.significant:
            return "no significant difference"
        return f"{change} ({number_text(self.low)} to {number_text(self.high)} times)"


class MemoryDifference(NamedTuple):
    """Peak memory of a device."""

    device: str
    first: int
    second: int

    def text(self) -> str:
        """What is said of it."""
        if not self.first:
            return "not used before"
        return size_text(self.second / self.first)


def compare(arguments: argparse.Namespace) -> int:
    """Print it; the exit code is 1 where `--fail-slower` is exceeded."""
    limit = None if arguments.fail_slower is None else _share(arguments.fail_slower)
    first, second = (read_report(Path(path)) for path in (arguments.first, arguments.second))
    if first.clock != second.clock:
        raise BadInput(f"their times are on different clocks ({first.clock}, {second.clock}) and cannot be compared")
    steps, memory = step_differences(first, second), memory_differences(first, second)
    slower = _is_slower(steps, limit)
    if arguments.json:
        print_document(
            first=arguments.first,
            second=arguments.second,
            clock=first.clock,
            simulated=first.clock == "simulated",
            steps=[{**row._asdict(), "significant": row.significant} for row in steps],
            memory=[row._asdict() for row in memory],
            verdicts=[first.verdict.text, second.verdict.text],
            too_slow=slower,
        )
        return int(slower)
    _print(first, second, steps, memory)
    if slower:
        print(f"A step is more than {arguments.fail_slower} slower.")
    return int(slower)


def step_differences(first: RunReport, second: RunReport) -> list[StepDifference]:
    """The whole step, then its phases, the one that changed most first."""
    whole = _difference("a step", first.step_parts, second.step_parts)
    before = {phase.name: phase for phase in first.phases}
    rows = []
    for phase in second.phases:
        other = before.pop(phase.name, None)
        if max(phase.share, 0.0 if other is None else other.share) >= LEAST_SHARE:
            rows.append(_difference(phase.name, () if other is None else other.parts, phase.parts))
    rows += [_difference(phase.name, phase.parts, ()) for phase in before.values() if phase.share >= LEAST_SHARE]
    rows.sort(key=lambda row: -abs(row.second - row.first))
    p_values = iter(adjusted([row.p_value for row in rows if row.p_value is not None]))
    return [whole, *(row if row.p_value is None else row._replace(p_value=next(p_values)) for row in rows)]


def _difference(name: str, first: Sequence[float], second: Sequence[float]) -> StepDifference:
    before, after = (sorted(values)[len(values) // 2] if values else 0.0 for values in (first, second))
    if not first or not second or min(*first, *second) <= 0:
        ratio = after / before if before and after else None
        return StepDifference(name, before, after, ratio, None, None, None)
    change = difference(first, second)
    return StepDifference(name, before, after, change.ratio, change.low, change.high, change.p_value)


def memory_differences(first: RunReport, second: RunReport) -> list[MemoryDifference]:
    """Of every device that one of them used."""
    peaks = [{use.device: use.peak_allocated_bytes or 0 for use in report.memory} for report in (first, second)]
    devices = dict.fromkeys([*peaks[0], *peaks[1]])
    return [MemoryDifference(device, peaks[0].get(device, 0), peaks[1].get(device, 0)) for device in devices]


def _is_slower(steps: Sequence[StepDifference], limit: float | None) -> bool:
    """Beyond the limit, and not by chance: with the same code a pipeline must not fail."""
    whole = steps[0]
    if limit is None or whole.ratio is None:
        return False
    return whole.ratio > 1 + limit and (whole.significant or whole.low is None)


def _print(
    first: RunReport, second: RunReport, steps: Sequence[StepDifference], memory: Sequence[MemoryDifference]
) -> None:
    simulated = first.clock == "simulated"
    out = console()
    times = table("", "first", "second", "second against first")
    for row in steps:
        seconds = [seconds_text(value, simulated) if value else "—" for value in (row.first, row.second)]
        times.add_row(row.name, *seconds, row.text())
    out.print(times)
    sizes = table("peak memory", "first", "second", "second against first")
    for use in memory:
        device = "process" if use.device == "cpu" else use.device
        sizes.add_row(device, bytes_text(use.first), bytes_text(use.second), use.text())
    out.print(sizes)
    for name, report in (("first", first), ("second", second)):
        print(printable(f"{name}: {report.verdict.text}"))


def read_report(path: Path) -> RunReport:
    """What is in the file. Raises `BadInput`."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST_FILE)
        schema = msgspec.json.decode(data, type=_ReportVersion).schema
        if schema != SCHEMA:
            raise BadInput(f"{path} has schema {schema}; this DevExplorer reads {SCHEMA}")
        return msgspec.json.decode(data, type=RunReport)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no report of a run; devexplorer run --report FILE writes one") from error


class _ReportVersion(msgspec.Struct):
    schema: int


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise BadInput(f"--fail-slower takes a percentage, as in 5%, not {text}")
    return share
