"""What exercises look for: commands that succeeded or were refused, and what stands in the workspace. Pure functions, main thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from devexplorer.core.jobs import Done
from devexplorer.core.learn.exercise import Evidence
from devexplorer.core.records.messages import Command, Move
from devexplorer.core.records.objects import ObjectSnapshot, Row

C = TypeVar("C", bound=Command)
Check = Callable[[Evidence], bool]


def did(kind: type[C], when: Callable[[C], object] = lambda command: True) -> Check:
    """A command of this kind succeeded."""
    return lambda evidence: _last(evidence, kind, when, ok=True) is not None


def refused(kind: type[C], when: Callable[[C], object] = lambda command: True) -> Check:
    """A command of this kind was refused or failed."""
    return lambda evidence: _last(evidence, kind, when, ok=False) is not None


def _last(evidence: Evidence, kind: type[C], when: Callable[[C], object], *, ok: bool) -> Done | None:
    for done in reversed(evidence.done):
        if isinstance(done.command, kind) and done.ok == ok and when(done.command):
            return done
    return None


def moved(when: Callable[[Any, Move], object]) -> Check:
    """A move succeeded whose report and command are so."""

    def check(evidence: Evidence) -> bool:
        return any(
            isinstance(done.command, Move) and done.ok and done.report is not None and when(done.report, done.command)
            for done in evidence.done
        )

    return check


def either(*checks: Check) -> Check:
    """Any of it."""
    return lambda evidence: any(check(evidence) for check in checks)


def objects(evidence: Evidence) -> list[ObjectSnapshot]:
    """What stands in the workspace."""
    return list(evidence.state.objects.values())


def any_row(when: Callable[[Row], object]) -> Check:
    """Something in the workspace is so."""
    return lambda evidence: any(when(row) for snapshot in objects(evidence) for row in snapshot.rows)


def built(recipe: str) -> Check:
    """A sample model of this kind is there, wherever it came from."""
    return lambda evidence: any(snapshot.source == recipe for snapshot in objects(evidence))


def elsewhere(device: str | None) -> bool:
    """Not the CPU."""
    return device is not None and device != "cpu"
