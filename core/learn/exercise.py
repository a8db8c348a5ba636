"""What an exercise is, and how it knows that it was done: by commands that succeeded or were refused, and by what is in
the workspace. Pure functions over the window's state; main thread.

They are asked after every command and every change of an object, so they look at what the newest command touched, or at
the first row of each object: a model can have 60,000.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from devexplorer.core.records import BuildModel, Command, Move, ObjectSnapshot, Row
from devexplorer.core.session import FinishedCommand, State

DEVICES, TENSORS, MODELS, PARAMETERS = "Devices", "Tensors", "Models", "Parameters"
FILES, MANY = "Files", "Several devices"
TOPICS = (DEVICES, TENSORS, MODELS, PARAMETERS, FILES, MANY)
"""In the order of the list."""


@dataclass
class ExerciseEvidence:
    """What has happened since the current step of an exercise began."""

    state: State
    begun_at: int = 0
    """`state.done_count` when the step began."""
    until: int = 0
    """`state.done_count` up to which it is looked at: commands that ended together are looked at one by one, in their
    order."""
    kept: dict[str, object] = field(default_factory=dict)
    """What a step has to remember, for itself or for a later one."""

    @property
    def done(self) -> Sequence[FinishedCommand]:
        """Commands that ended in that span, the oldest first; of a long span the oldest are forgotten."""
        first = self.state.done_count - len(self.state.done)
        return tuple(islice(self.state.done, max(self.begun_at - first, 0), max(self.until - first, 0)))

    @property
    def newest(self) -> FinishedCommand | None:
        """The last command of that span; None: there is none in it yet."""
        back = self.state.done_count - self.until
        return self.state.done[-1 - back] if self.until > self.begun_at and back < len(self.state.done) else None

    @property
    def is_now(self) -> bool:
        """Whether that span ends now: what is in the workspace is known only as it is now."""
        return self.until == self.state.done_count


class Step(NamedTuple):
    """One thing to do."""

    text: str
    """What to do: "Move mlp to vgpu:0"."""
    how: str
    """Where to click."""
    check: Callable[[ExerciseEvidence], bool] = lambda evidence: False
    """Whether it was done, asked once for each command that has ended (`ExerciseEvidence.newest`); a question is
    answered instead."""
    answers: Callable[[ExerciseEvidence], Collection[str]] | None = None
    """A question: the answers that are right, in lower case, read from what the window knows. None: something to do."""


class Exercise(NamedTuple):
    """A few steps and what they show."""

    id: str
    """Never changes: progress is kept under it."""
    title: str
    topic: str
    """The heading above it."""
    why: str
    """What it shows, in one or two sentences."""
    steps: tuple[Step, ...]
    two_devices: bool = False
    """Needs a second device: where there is none, virtual GPUs are offered."""


class Course:
    """An exercise under way: steps are checked in their order."""

    def __init__(self, exercise: Exercise, state: State) -> None:
        self.exercise = exercise
        self.evidence = ExerciseEvidence(state, state.done_count, state.done_count)
        self.at = 0
        """Steps that are done."""

    @property
    def finished(self) -> bool:
        """Whether every step is done."""
        return self.at == len(self.exercise.steps)

    @property
    def step(self) -> Step | None:
        """What is to be done now; None: nothing more."""
        return None if self.finished else self.exercise.steps[self.at]

    def look(self) -> bool:
        """Check the next steps; True when one more is done. What a recording shows was not done here."""
        before = self.at
        if self.evidence.state.recording is None:
            while (step := self.step) is not None and step.answers is None and self._is_done(step):
                self._go_on()
        return self.at > before

    def _is_done(self, step: Step) -> bool:
        """Each command that ended is looked at once; the newest again, since objects change without one too."""
        evidence, state = self.evidence, self.evidence.state
        for until in range(max(evidence.until, state.done_count - len(state.done)), state.done_count + 1):
            evidence.until = until
            if step.check(evidence):
                return True
        return False

    def resume(self) -> None:
        """Go on after something else: what happened meanwhile was not for this exercise."""
        self.evidence.begun_at = self.evidence.until = self.evidence.state.done_count

    def answer(self, text: str) -> bool:
        """Answer the question of the current step; True when it is right."""
        if self.step is None or self.step.answers is None or self.evidence.state.recording is not None:
            return False
        said = " ".join(text.lower().split()).rstrip(".! ")
        right = self.step.answers(self.evidence)
        if said not in right and said.replace(",", ".") not in right:  # a decimal comma
            return False
        self.evidence.until = self.evidence.state.done_count
        self._go_on()
        self.look()
        return True

    def _go_on(self) -> None:
        """The next step looks only at what happens after what has done this one."""
        self.at += 1
        self.evidence.begun_at = self.evidence.until


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
    return evidence.state.row_of(target)


def elsewhere(device: str | None) -> bool:
    """Not the CPU."""
    return device is not None and device != "cpu"
