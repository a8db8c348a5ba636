"""Commands and benchmark runs in progress, those that have ended, what they work on and how far they are; and the
acknowledged commands that were not undone, with their results and answers. Main thread of the window; no Qt, no torch.

A command enters when the engine has acknowledged it, so the one that killed the engine is not among them. Undo removes
it, Redo adds it again under another number. After a crash the journal provides the commands that rebuild the workspace
in a new engine; `script` writes them as Python. Sample models and random tensors carry seeds and come back with the
same values; `lost` lists what a seed cannot restore.

A workspace file stands for all that was done before it. When some of that is undone, the file still has what no
command repeats, and may have overwritten an older version: the rebuild opens it and removes what was made and undone,
or does without it where the commands alone give the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from devexplorer.core.base import Clock, elapsed_text, first_line, number_text, object_name
from devexplorer.core.commands.registry import spec_of, target_device, title_of
from devexplorer.core.records import (
    Answer,
    BenchPoint,
    BenchResult,
    BenchSpec,
    Command,
    Forward,
    Move,
    MoveReport,
    Remove,
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


class Action(NamedTuple):
    """One action of the session."""

    title: str
    """`mlp is now on vgpu:1`."""
    words: str
    code: str
    """The equivalent Python."""
    time_unix_s: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the session ran on."""

    python_version: str = ""
    torch_version: str = ""
    virtual_spec: str | None = None
    """Virtual GPUs present from the start."""
    visible_devices: str | None = None
    """The CUDA_VISIBLE_DEVICES that was chosen; None: as inherited."""


@dataclass(slots=True, eq=False)
class JournalEntry:
    """One acknowledged command."""

    command: Command
    """With its request number, which a rebuild changes."""
    created: str | None = None
    """The name that the engine gave to the result."""
    effects: tuple[str, ...] = ()
    """Effects that cannot be repeated, in short phrases."""
    action: Action | None = None
    """Title, text and Python for the script; None if there is no Python."""
    again: Command | None = None
    """Where a workspace file was saved or opened, or a new workspace begun: what brings back everything that was done
    until then."""
    replaces: bool = False
    """It replaced the workspace: nothing of what was made before is there any more."""
    in_file: bool = False
    """What it did comes back with a workspace file."""
    undone: list[JournalEntry] = field(default_factory=list)
    """What a workspace file has and what was undone since, in the order of the Undos."""

    @property
    def path(self) -> str | None:
        """The workspace file that brings everything back."""
        return None if self.again is None else _opened(self.again)

    @property
    def made(self) -> str | None:
        """The object that it made, if that is all it did."""
        if self.effects:
            return None
        if isinstance(self.command, Forward):
            return self.command.output
        return self.created if spec_of(self.command).names_result else None

    @property
    def replayed(self) -> bool:
        """Whether it is sent to a new engine."""
        return any(spec_of(step).replayed for step in steps_of(self.command)) and not self.in_file

    @property
    def repeated(self) -> Command:
        """What is sent to a new engine: of several steps those that can be repeated."""
        return _repeated(self.command)

    @property
    def changes(self) -> bool:
        """Whether it changed the workspace, rather than queried, ran or saved it."""
        return self.replayed or bool(self.effects) or getattr(self.command, "output", None) is not None


class Journal:
    """An ordered list of acknowledged commands, without those that were undone."""

    def __init__(self) -> None:
        self._entries: list[JournalEntry] = []

    def add(
        self,
        command: Command,
        created: str | None = None,
        effects: Sequence[str] = (),
        answer: Answer | None = None,
        again: Command | None = None,
        *,
        redone: bool = False,
    ) -> None:
        """Add an acknowledged command, unless it neither changed anything nor has Python to show. `redone`: by Redo; a
        file that has it goes on to stand for it."""
        action = None
        if answer is not None and answer.code and spec_of(command).in_script:
            action = Action(answer.title, answer.words, answer.code, answer.time_unix_s)
        entry = JournalEntry(
            _named(command, created), created, tuple(effects), action, again, spec_of(command).replaces
        )
        files = [file for file in self._entries if redone and file.undone and _same(file.undone[-1], entry)]
        for file in files:
            del file.undone[-1]
        if files:
            self._entries.insert(self._entries.index(files[0]), entry)
        elif entry.changes or action is not None or again is not None:
            self._entries.append(entry)

    def take_back(self, request: int) -> None:
        """The command with that number was undone. Later queries go too, as they are about its result. Later files
        stay: they have what no command repeats. One that is about another workspace goes, unless it has overwritten a
        file that is needed now."""
        numbers = [entry.command.request for entry in self._entries]
        if request not in numbers:
            return
        index = numbers.index(request)
        undone = self._entries[index]
        needed = {entry.path for entry in self._entries[:index] if entry.path is not None}
        later = self._entries[index + 1 :]
        files = [file for file in later if file.path is not None and (undone.again is None or file.path in needed)]
        for file in files:
            file.undone.append(undone)
        self._entries[index:] = [entry for entry in later if entry.changes or entry in files]

    @property
    def actions(self) -> tuple[Action, ...]:
        """The Python of the commands that made the workspace what it is, in their order: of what was before it was
        replaced only what devices and threads need."""
        entries = self._entries
        begin = max((at for at, entry in enumerate(entries) if entry.replaces), default=0)
        before = [entry for entry in entries[:begin] if entry.replayed and not spec_of(entry.command).undoable]
        return tuple(entry.action for entry in (*before, *entries[begin:]) if entry.action is not None)

    @property
    def commands(self) -> tuple[Command, ...]:
        """What made the workspace what it is, in order; empty where part of it came from a workspace file."""
        commands = [entry.command for entry in self._entries]
        empty = [at for at, one in enumerate(commands) if spec_of(one).replaces and _opened(one) is None]
        new = empty[-1] if empty else 0
        commands = [command for at, command in enumerate(commands) if at >= new or not spec_of(command).undoable]
        if any(_opened(command) is not None for command in commands):
            return ()
        return tuple(command for command in commands if all(map(can_repeat, steps_of(command))))

    def replay(self) -> list[JournalEntry]:
        """What to send to a new engine, in order; the caller gives each its new number.

        Of several successive moves of the same objects only the last is kept, from now on.
        """
        self._begin_at_file()
        again = [entry for entry in self._entries if entry.replayed]
        kept = [
            entry
            for entry, following in pairwise([*again, None])
            if entry is not None and not _replaced(entry, following)
        ]
        self.forget([entry for entry in again if entry not in kept])
        return kept

    def _begin_at_file(self) -> None:
        """Let the workspace file that was saved or opened last stand for all that was done before: a file that was
        opened may have been saved again since, and what a replay cannot repeat is in it too."""
        files = [entry for entry in self._entries if entry.again is not None]
        if not files:
            return
        latest = files[-1]
        if _unmade(latest) < len(latest.undone) and self._without(latest):
            self.forget([entry for entry in files if entry.path == latest.path and not entry.replayed])
            self._begin_at_file()
            return
        index = self._entries.index(latest)
        for entry in self._entries[:index]:
            entry.in_file |= spec_of(entry.command).undoable
            entry.again = None
        if not latest.replayed and latest.again is not None:
            latest.command = latest.again
        if names := [entry.made for entry in latest.undone[: _unmade(latest)] if entry.made is not None]:
            del latest.undone[: len(names)]
            self._entries.insert(index + 1, JournalEntry(Remove(names=tuple(names))))

    def _without(self, file: JournalEntry) -> bool:
        """Whether commands alone, or an older file of another name, bring back what this file would."""
        before = self._entries[: self._entries.index(file)]
        others = [at for at, entry in enumerate(before) if entry.again is not None and entry.path != file.path]
        between = before[others[-1] + 1 :] if others else before
        return all(
            (entry.replayed or not entry.changes)
            and not (entry.effects or entry.in_file or _opened(entry.command) is not None)
            for entry in between
        )

    def lost(self) -> list[str]:
        """What cannot be restored, each with its reason."""
        reasons: dict[str, str] = {}
        for entry in self._entries:
            if entry.in_file:
                continue
            for undone in entry.undone:
                reasons[f"the Undo of {title_of(undone.command)}"] = "the file has what was saved before it"
            command = steps_of(entry.command)[-1]
            if isinstance(command, Forward) and command.output is not None:
                reasons[entry.created or command.output] = "the result of a forward pass"
            title = getattr(command, "target", "")
            target = object_name(title)
            for effect in entry.effects:
                reasons[f"{target}, {effect}"] = "it cannot be repeated"
            if title == target:
                reasons.pop(f"{target}, {spec_of(command).clears}", None)  # nothing left to restore
            if isinstance(command, Remove):
                reasons = {key: why for key, why in reasons.items() if key.partition(",")[0] not in command.names}
        return [f"{name}: {why}" for name, why in reasons.items()]

    def forget(self, entries: Sequence[JournalEntry]) -> None:
        """Remove commands that could not be repeated, so that they are not tried again."""
        self._entries = [entry for entry in self._entries if entry not in entries]

    def rebuilt(self) -> None:
        """The workspace was rebuilt. What could not be restored was reported and is dropped."""
        self._entries = [entry for entry in self._entries if entry.replayed or entry.in_file]
        for entry in self._entries:
            entry.effects = ()
            entry.undone.clear()


def can_repeat(command: Command) -> bool:
    """Whether a command can be part of a session that is repeated: it changes the workspace, or what that needs."""
    spec = spec_of(command)
    return (spec.undoable or spec.replayed) and spec.repeatable


def _opened(command: Command) -> str | None:
    """The workspace file that a command opens."""
    return getattr(command, "path", None) if spec_of(command).replaces else None


def _same(entry: JournalEntry, other: JournalEntry) -> bool:
    """Whether they do the same, at another time."""
    return msgspec.structs.replace(entry.command, request=0) == msgspec.structs.replace(other.command, request=0)


def _unmade(file: JournalEntry) -> int:
    """Of what was undone since, how many of the latest changes are undone by removing what they made."""
    return next((at for at, entry in enumerate(file.undone) if entry.made is None), len(file.undone))


def _repeated(command: Command) -> Command:
    if not isinstance(command, Steps):
        return command
    again = (_repeated(step) for step in command.commands if any(spec_of(one).replayed for one in steps_of(step)))
    return msgspec.structs.replace(command, commands=tuple(again))


def _named(command: Command, created: str | None) -> Command:
    """With the name that the engine gave to what it made."""
    if created is None:
        return command
    if isinstance(command, Steps):
        return msgspec.structs.replace(
            command, commands=(*command.commands[:-1], _named(command.commands[-1], created))
        )
    named: Any = command
    return msgspec.structs.replace(named, name=created) if spec_of(command).names_result else command


def _replaced(entry: JournalEntry, following: JournalEntry | None) -> bool:
    """Whether the next command moves the same objects again, so that this move can be skipped."""
    if following is None:
        return False
    move, then = entry.command, following.command
    return (
        isinstance(move, Move)
        and isinstance(then, Move)
        and not (move.copy or then.copy or move.dtype or then.dtype)
        and (move.targets, move.optimizer) == (then.targets, then.optimizer)
    )
