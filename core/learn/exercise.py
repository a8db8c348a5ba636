"""What an exercise is, and how it knows that it was done. Pure functions over the window's state; main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from devexplorer.core.jobs import Done
from devexplorer.core.state import State


@dataclass
class Evidence:
    """What has happened since an exercise was begun."""

    state: State
    begun_at: int = 0
    """`state.done_count` then."""
    kept: dict[str, object] = field(default_factory=dict)
    """What a step has to remember for a later one."""

    @property
    def done(self) -> Sequence[Done]:
        """Commands that are over since then, the oldest first."""
        count = min(self.state.done_count - self.begun_at, len(self.state.done))
        return list(self.state.done)[len(self.state.done) - count :]


class Step(NamedTuple):
    """One thing to do."""

    text: str
    """What to do, as one would say it: "Move mlp to vgpu:0"."""
    how: str
    """Where to click."""
    check: Callable[[Evidence], bool]
    """Whether it was done."""


class Exercise(NamedTuple):
    """A few steps and what they show."""

    id: str
    """Stays the same for ever: progress is kept under it."""
    title: str
    topic: str
    """Heading that it stands under."""
    why: str
    """What it shows, in one or two sentences."""
    steps: tuple[Step, ...]
    two_devices: bool = False
    """Needs a second device: where there is none, virtual GPUs are offered."""


class Course:
    """An exercise under way: steps are checked in their order."""

    def __init__(self, exercise: Exercise, state: State) -> None:
        self.exercise = exercise
        self.evidence = Evidence(state, state.done_count)
        self.at = 0
        """Steps that are done."""

    @property
    def finished(self) -> bool:
        """Whether every step is done."""
        return self.at == len(self.exercise.steps)

    def look(self) -> bool:
        """Check the next steps; True when one more is done."""
        before = self.at
        while not self.finished and self.exercise.steps[self.at].check(self.evidence):
            self.at += 1
        return self.at > before
