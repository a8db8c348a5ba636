"""Which rank all others wait for, by the reports of all ranks together. Any thread, no torch."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base.formats import seconds_text
from devexplorer.core.observe.phases import NAMES, RANKS
from devexplorer.core.observe.records import RunReport, RunVerdict
from devexplorer.core.observe.verdict import LEAST_STEPS

LATE_SHARE = 0.2
"""Of a step, that other ranks wait for the one that is late."""


def late_rank(reports: Sequence[RunReport]) -> RunVerdict | None:
    """Which rank all others wait for; None where none does, or where that cannot be told.

    Ranks step together, so a late one shows in what the others wait. Its own work, without that waiting, takes longer
    than theirs.
    """
    ranked = sorted((report for report in reports if report.rank is not None), key=lambda report: report.rank or 0)
    if len(ranked) < 2 or min(report.steps_counted for report in ranked) < LEAST_STEPS:
        return None
    own = [_own_seconds(report) for report in ranked]
    late = max(range(len(own)), key=lambda number: own[number])
    others = [seconds for number, seconds in enumerate(own) if number != late]
    usual = sorted(others)[len(others) // 2]
    step = max(_step_seconds(report) for report in ranked)
    if step <= 0 or own[late] - usual < LATE_SHARE * step:
        return None
    report = ranked[late]
    excess, phase = max(
        (_phase_seconds(report, name) - _median([_phase_seconds(other, name) for other in ranked]), name)
        for name in NAMES
        if name != NAMES[RANKS]
    )
    by = seconds_text(own[late] - usual)
    return RunVerdict(
        kind="rank-late",
        text=f"Rank late: all ranks wait for rank {report.rank}, whose own work takes {by} longer in each step.",
        evidence=(
            f"Its {phase} takes {seconds_text(excess)} more than usual.",
            *(
                f"Rank {each.rank} works {seconds_text(seconds)} of a step of {seconds_text(_step_seconds(each))}."
                for each, seconds in zip(ranked[:8], own[:8], strict=True)
            ),
        ),
    )


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _phase_seconds(report: RunReport, name: str) -> float:
    """Of a step."""
    for phase in report.phases:
        if phase.name == name:
            seconds = phase.seconds if phase.device_seconds is None else phase.device_seconds
            return seconds / max(report.steps_counted, 1)
    return 0.0


def _step_seconds(report: RunReport) -> float:
    return sum(_phase_seconds(report, name) for name in NAMES)


def _own_seconds(report: RunReport) -> float:
    return _step_seconds(report) - _phase_seconds(report, NAMES[RANKS])
