"""Commands and benchmark runs in progress, and finished commands, as the window knows them; what they are working on
and how far it is (`UnderWay`); what has ended after a long time (`LongJobs`). Main thread; no Qt, no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from devexplorer.core.base import Clock, elapsed_text, first_line, number_text, object_name
from devexplorer.core.commands.registry import spec_of, target_device
from devexplorer.core.records import (
    Answer,
    BenchPoint,
    BenchResult,
    BenchSpec,
    Command,
    Move,
    MoveReport,
    StartBenchmark,
    Steps,
)

if TYPE_CHECKING:
    from devexplorer.core.session.state import State


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


class FinishedCommand(NamedTuple):
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


class Progress(NamedTuple):
    """How far work is."""

    verb: str
    """`moving`."""
    done: float | None
    """0 to 1; None: not known."""
    title: str
    """`moving mlp to vgpu:1`."""
    part: str = ""
    """Path of what is being worked on, inside the object; empty: the object itself, or not known."""

    @property
    def words(self) -> str:
        """`moving 42 %`, or `moving`."""
        return self.verb if self.done is None else f"{self.verb} {100 * self.done:.0f} %"


class UnderWay(NamedTuple):
    """Long work at what it concerns."""

    objects: Mapping[str, Progress]
    """By the name of the object."""
    devices: Mapping[str, Progress]


NOTHING_UNDER_WAY = UnderWay({}, {})


def verb_of(command: Command) -> str:
    """What is done to the objects of a command, in one word."""
    verbs = [spec_of(step).verb for step in steps_of(command) if spec_of(step).verb]
    if any(isinstance(step, Move) and step.copy for step in steps_of(command)):
        return "copying"
    return verbs[0] if verbs else "working"


def objects_of(command: Command) -> Iterator[str]:
    """Names that a command is addressed to; not all of them need be objects."""
    for step in steps_of(command):
        target = getattr(step.spec if isinstance(step, StartBenchmark) else step, "target", None)
        yield from map(object_name, getattr(step, "targets", ()))
        if isinstance(target, str):
            yield object_name(target)


def device_of(command: Command) -> str | None:
    """Where its tensors go; None: nowhere, or to several."""
    goals = set(map(target_device, steps_of(command))) - {None}
    return (goals.pop() or None) if len(goals) == 1 else None


LONG_S = 60.0


class LongJobs:
    """Ask it for what `ended` whenever jobs have changed."""

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        self._state, self._clock = state, clock
        self._running: dict[int, Job] = {}

    def forget(self) -> None:
        """Other commands are under way from now on: another machine is shown."""
        self._running = dict(self._state.jobs)

    def ended(self) -> list[str]:
        """A line for each command and benchmark that is over since the last call, if it took a minute."""
        now, jobs = self._clock(), self._state.jobs
        over = [job for request, job in self._running.items() if jobs.get(request) is not job]
        self._running = dict(jobs)
        return [self._line(job, now) for job in over if now - job.started_unix_s >= LONG_S]

    def _line(self, job: Job, now: float) -> str:
        run, after = self._state.runs.get(job.request), f"after {elapsed_text(now - job.started_unix_s)}"
        if run is not None:
            return _run_line(run, after)
        answer = job.answer
        if answer is None and self._state.engine is None:
            return f"{job.title}: the engine ended {after}."
        if answer is not None and answer.cancelled:
            return f"{job.title}: cancelled {after}."
        if answer is not None and answer.failed:
            return f"{job.title}: failed {after}: {first_line(answer.words)}."
        return f"{job.title}: finished {after}."


def _run_line(run: Run, after: str) -> str:
    from devexplorer.core.benchmark.kind import devices_of, kind_of, title  # loaded with the first run

    where = f"{title(run.spec)} on {', '.join(devices_of(run.spec))}{' (simulated)' if run.simulated else ''}"
    if run.result is None:
        return f"{where}: ended {after} without a result: {first_line(run.reason or '')}."
    spread, unit = kind_of(run.result).headline(run.result)[:2]
    figure = "" if spread is None else f", {number_text(spread.median)} {unit}"
    if run.reason is not None:
        return f"{where}: failed {after}{figure}: {first_line(run.reason)}."
    return f"{where}: {'stopped' if run.result.stopped else 'finished'} {after}{figure}."
