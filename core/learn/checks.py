"""What exercises look for: commands that succeeded or were refused, and what is in the workspace. Pure functions,
main thread.

They are asked after every command and every change of an object, so they look at what the newest command touched, or at
the first row of each object: a model can have 60,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from devexplorer.core.learn.exercise import ExerciseEvidence
from devexplorer.core.records import BuildModel, Command, Move, ObjectSnapshot, Row

C = TypeVar("C", bound=Command)
Check = Callable[[ExerciseEvidence], bool]


def did(kind: type[C], when: Callable[[C], object] = lambda command: True) -> Check:
    """A command of this kind succeeded."""
    return lambda evidence: (command := newest(evidence, kind)) is not None and bool(when(command))


def refused(kind: type[C], when: Callable[[C], object] = lambda command: True) -> Check:
    """A command of this kind was refused or failed."""
    return lambda evidence: (command := newest(evidence, kind, ok=False)) is not None and bool(when(command))


def newest(evidence: ExerciseEvidence, kind: type[C], *, ok: bool = True) -> C | None:
    """The newest command, if it is of this kind and succeeded (or with `ok` False did not)."""
    done = evidence.newest
    return done.command if done is not None and done.ok == ok and isinstance(done.command, kind) else None


def moved(when: Callable[[Any, Move], object]) -> Check:
    """A move succeeded whose report and command are so."""

    def check(evidence: ExerciseEvidence) -> bool:
        command, done = newest(evidence, Move), evidence.newest
        return command is not None and done is not None and done.report is not None and bool(when(done.report, command))

    return check


def either(*checks: Check) -> Check:
    """Any of it."""
    return lambda evidence: any(check(evidence) for check in checks)


def objects(evidence: ExerciseEvidence) -> list[ObjectSnapshot]:
    """What is in the workspace now; nothing while earlier commands are looked at, because what was there then is not
    known."""
    return list(evidence.state.objects.values()) if evidence.is_now else []


def there(when: Callable[[ObjectSnapshot], object]) -> Check:
    """An object in the workspace is so."""
    return lambda evidence: any(snapshot.rows and when(snapshot) for snapshot in objects(evidence))


def built(recipe: str) -> Check:
    """A sample model of this kind is there, whatever its origin."""
    return either(
        did(BuildModel, lambda command: command.recipe == recipe), there(lambda snapshot: snapshot.source == recipe)
    )


def row_of(evidence: ExerciseEvidence, target: str) -> Row | None:
    """The row of `name` or `name:path`, where it is there now."""
    name, _, path = target.partition(":")
    snapshot = evidence.state.objects.get(name)
    if snapshot is None or not snapshot.rows or not path:
        return None if snapshot is None or not snapshot.rows else snapshot.rows[0]
    outline = evidence.state.row_tables.of(snapshot)
    index = outline.place(path)
    return None if index is None else outline.rows[index]


def elsewhere(device: str | None) -> bool:
    """Not the CPU."""
    return device is not None and device != "cpu"
