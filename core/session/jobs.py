"""Commands and benchmark runs in progress, and finished commands, as the window knows them. Main thread; no Qt,
no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from devexplorer.core.records import Answer, BenchPoint, BenchResult, BenchSpec, Command, MoveReport, Steps


@dataclass
class Run:
    """A benchmark run and its results so far."""

    run: int
    spec: BenchSpec
    simulated: bool = False
    datasheet_tflops: float | None = None
    latest: BenchPoint | None = None
    points: int = 0
    rated: bool = False
    """Whether one of them had a throughput."""
    parts: list[Any] = field(default_factory=list)
    """Those of the result that are finished so far, of the type that its kind names."""
    started_unix_s: float | None = None
    result: BenchResult | None = None
    reason: str | None = None
    ended: bool = False


@dataclass
class Job:
    """A command in progress."""

    request: int
    title: str
    started_unix_s: float
    done: float | None = None
    text: str = ""
    part: str = ""
    """What of an object is being worked on: `name:path`; empty: not known."""
    command: Command | None = None
    answer: Answer | None = None
    report: MoveReport | None = None


class Done(NamedTuple):
    """A finished command."""

    command: Command
    ok: bool
    answer: Answer | None
    """The latest answer to it."""
    report: MoveReport | None
    """Of a move."""

    @property
    def failed(self) -> bool:
        """Whether it failed with an answer that gives the reason."""
        return self.answer is not None and self.answer.failed

    @property
    def cancelled(self) -> bool:
        """Whether the user cancelled it."""
        return self.answer is not None and self.answer.cancelled


def steps_of(command: Command) -> tuple[Command, ...]:
    """What it does one after the other: itself, unless it is several steps."""
    if not isinstance(command, Steps):
        return (command,)
    return tuple(step for one in command.commands for step in steps_of(one))
