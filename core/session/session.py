"""Everything that the window talks to: the engine process and its restarts, the sampler, the joined device catalog, the
journal.

Main thread only, and no method waits: threads belong to the parts, their events arrive in one mailbox that the
heartbeat drains.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import msgspec

from devexplorer.core.base import BadInput, Clock, EventHandlers, handles
from devexplorer.core.benchmark.conditions import RunRecorder
from devexplorer.core.commands.registry import title_of
from devexplorer.core.devices.catalog import Catalog, join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.cuda_visible_devices import VARIABLE, assignment, checked, visibility_answer
from devexplorer.core.devices.drm import ENGINE_READS, Drm, DrmCard, DrmSampler
from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.engine.process import EngineLike, EngineProcess
from devexplorer.core.feature import Listener, features, result_types
from devexplorer.core.records import (
    Answer,
    BaseEvent,
    BenchResult,
    Command,
    Conditions,
    DeviceInfo,
    DeviceSample,
    EngineDevices,
    EngineLost,
    EngineReady,
    Event,
    EventSink,
    JobEnded,
    JobProgress,
    JobStarted,
    Kept,
    Moved,
    ObjectChanged,
    Problem,
    Rebuilt,
    Redid,
    Remove,
    SideEffects,
    Undid,
)
from devexplorer.core.session.journal import Action, Journal, JournalEntry, Surroundings
from devexplorer.core.session.poll import MOST_EVENTS, PollResult
from devexplorer.core.telemetry.mailbox import DROPPABLE, Mailbox
from devexplorer.core.telemetry.sampler import Sampler

if TYPE_CHECKING:
    from pathlib import Path


class DeviceSources:
    """The newest word of each source; `due` when there is a newer one than the catalog has."""

    def __init__(self, cpu: Callable[[], DeviceInfo]) -> None:
        self.due = True
        self._cpu = cpu
        self._cards: tuple[Card, ...] = ()
        self._drm_cards: tuple[DrmCard, ...] = ()
        self._torch: tuple[DeviceInfo, ...] | None = None
        self._card_problems: tuple[Problem, ...] = ()
        self._torch_problems: tuple[Problem, ...] = ()
        self._datasheets = load_profiles()

    def take_cards(self, cards: Sequence[Card], problems: Sequence[Problem]) -> None:
        """Of NVML; called by the sampler thread."""
        self._cards, self._card_problems = tuple(cards), tuple(problems)
        self.due = True

    def take_drm_cards(self, cards: tuple[DrmCard, ...]) -> None:
        """Of AMD and Intel; called once by the thread that watches them."""
        self._drm_cards = cards
        self.due = True

    def take_torch(self, event: EngineDevices) -> None:
        """Of the engine."""
        self._torch, self._torch_problems = event.devices, event.problems
        self.due = True

    def join(self, cuda_visible_devices: str | None) -> Catalog:
        """One catalog of everything; `cuda_visible_devices`: as the engine has it."""
        self.due = False
        return join(
            self._cpu(),
            self._cards,
            self._torch,
            problems=(*self._card_problems, *self._torch_problems),
            datasheets=self._datasheets,
            cuda_visible_devices=cuda_visible_devices,
            cuda_device_order=os.environ.get("CUDA_DEVICE_ORDER"),
            drm=self._drm_cards,
        )


RESTARTS = 3
"""An engine that dies more often than this within `RESTART_WINDOW_S` is killed by something: no restart by itself."""
RESTART_WINDOW_S = 60.0
HIDDEN_INTERVAL_S = 1.0
"""Between two readings while the window is hidden."""
_PIECE_BY_PIECE: tuple[type[BaseEvent], ...] = (Answer, Moved, JobStarted, JobProgress, *result_types())
"""What a rebuild says of each command."""


class Session(EventHandlers):
    """`start`, then `send` commands and `drain` events; `close` at the end."""

    def __init__(
        self,
        *,
        virtual_spec: str | None = None,
        python: str | None = None,
        interval_s: float = 0.1,
        clock: Clock = time.time,
        make_engine: Callable[..., EngineLike] | None = None,
        nvml: Nvml | None = None,
        drm: Drm | None = None,
    ) -> None:
        """`make_engine` makes what `EngineProcess` is, of the same arguments; `python` only where one was chosen."""
        self._clock, self._interval_s, self._hidden = clock, interval_s, False
        self.on_run: list[Callable[[BenchResult, Conditions], object]] = []
        """Told of every benchmark that has ended with a result."""
        self.on_event: tuple[EventSink, ...] = ()
        """Told of all that engine and samplers say, also of what the mailbox drops. Any thread; must not wait."""
        self.data_folder: Path | None = None
        """Where features keep what they have; None: where the user's data are."""
        self.run_recorder = RunRecorder(self._run_ended)
        self.on_drained: Callable[[PollResult], None] | None = None
        """Told what each `drain` hands out: a fleet's check listens while it measures here."""
        self._asides: dict[int, Callable[[BaseEvent], None]] = {}
        """Who gets the events of what was sent with `send_aside`, by its number."""
        self._virtual_spec = virtual_spec
        self.python = python
        """What the engine runs in, an interpreter or the folder of its environment; None: as this process."""
        self._visible_devices: str | None = None
        """The CUDA_VISIBLE_DEVICES that was chosen for the engine; None: as inherited."""
        self._make_engine = make_engine or partial(EngineProcess, clock=clock)
        self._mailbox = Mailbox()
        made = {name: feature.listener for name, feature in features().items() if feature.listener}
        self.listeners: dict[str, Listener] = {
            name: resolve_name(f"devexplorer.{kind}")(self) for name, kind in made.items()
        }
        """Of features, by their names."""
        self._arrived: deque[Event] = deque()
        self._cpu = CpuReader()
        self._devices = DeviceSources(self._cpu.info)
        self._sampler = Sampler(self._pass_on, nvml or Nvml(), self._cpu, interval_s, on_cards=self._devices.take_cards)
        self._drm = DrmSampler(self._pass_on, drm or Drm(), on_cards=self._devices.take_drm_cards)
        self._journal = Journal()
        self._sent: dict[int, Sent] = {}
        """Commands that have not ended, by their numbers."""
        self._rebuild = Rebuild(self._journal, self._send_numbered)
        self._rebuild_due = False
        self._ended_because: str | None = None
        """Why the engine was ended on purpose."""
        self._given_up = False
        self.surroundings = Surroundings()
        self._running_visible = os.environ.get(VARIABLE)
        """The variable in the engine that runs, or that is about to."""
        self._visible_before: str | None = None
        self._explanation_due = False
        self._rebuilt = Rebuilt(restored=(), lost=())
        self._deaths: deque[float] = deque(maxlen=RESTARTS + 1)
        self._requests = self._aside_requests = 0
        self._devices_known = False
        """Whether the devices are those of the engine that runs."""
        self._engine = self._made_engine()

    def start(self) -> None:
        """Start sampler and engine; returns at once."""
        self.run_recorder.start()
        for listener in self.listeners.values():
            listener.start()
        self._sampler.start()
        self._drm.start()
        self._engine.start()

    def beat(self) -> None:
        """Called at each beat of the window, which the engine must not delay."""
        self._engine.beat()

    def send(self, command: Command) -> int:
        """Send a command to the engine; returns the request number that its events will carry."""
        try:
            return self._send_numbered(command)
        except BadInput as error:
            self.put(Answer(title="That cannot be sent", words=str(error), failed=True, time_unix_s=self._clock()))
            return self._requests

    def send_as(self, command: Command) -> None:
        """Send a command that has its request number already. Raises `BadInput` when it cannot be sent."""
        self._engine.send(command)
        self._sent[command.request] = Sent(command)

    def send_aside(self, command: Command, take: Callable[[BaseEvent], None]) -> int:
        """Send a command of which the window shows nothing; `take` gets its events, a `JobEnded` last."""
        request = self._aside_requests = self._aside_requests - 1
        if self._given_up:
            take(JobEnded(request=request, ok=False, time_unix_s=self._clock()))
        else:
            self._asides[request] = take
            self._engine.send(msgspec.structs.replace(command, request=request))
        return request

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions that were not undone, with their Python, the oldest first."""
        return self._journal.actions

    @property
    def commands(self) -> tuple[Command, ...]:
        """What made the workspace what it is, in order; empty where part of it came from a workspace file."""
        return self._journal.commands

    def _pass_on(self, event: Event) -> None:
        """What engine and samplers say. Any thread."""
        for tell in self.on_event:
            tell(event)
        self._mailbox.put(event)

    def put(self, event: Event) -> None:
        """Add an event of the window itself (an uncaught exception, a Qt warning). Any thread."""
        self._mailbox.put(event)

    def restart_engine(self) -> None:
        """End the engine, even one that hangs, and start another; after repeated crashes, start one again."""
        self._deaths.clear()
        if self._given_up:
            self._new_engine()
            return
        if self._ended_because is None and not self._rebuild.running:  # while it rebuilds, a command may be to blame
            self._ended_because = "It was ended to start another."
        self._engine.kill()

    @property
    def visible_devices(self) -> str | None:
        """The CUDA_VISIBLE_DEVICES that was chosen for the engine; None: as inherited."""
        return self._visible_devices

    def set_visible_devices(self, value: str | None) -> None:
        """Start another engine with this CUDA_VISIBLE_DEVICES (None: as inherited, empty: no card), because CUDA reads
        the variable once; the workspace is rebuilt. Virtual GPUs obey it as cards do. Raises `BadInput` for an invalid
        list; an `Answer` afterwards lists the visible cards, and what was not restored."""
        value = None if value is None else checked(value)
        self._visible_before, self._visible_devices = self._running_visible, value
        self._explanation_due = True
        how = assignment(value) if value is not None else f"{VARIABLE} as this window has it"
        self._start_again(f"with {how}")

    def set_python(self, python: str | None) -> None:
        """Start another engine in this Python, which becomes `python`; the workspace is rebuilt."""
        self.python = python
        self._start_again(f"in {python or 'the Python of this window'}")

    def _start_again(self, how: str) -> None:
        if not self._given_up:
            self._ended_because = f"It is started again {how}."
        self.restart_engine()

    def drain(self) -> PollResult:
        """What happened since the last call, in order; after a flood the rest comes with the next calls."""
        self._arrived.extend(self._mailbox.drain())
        events: list[Event] = []
        for _ in range(min(len(self._arrived), MOST_EVENTS)):
            events.extend(self._take(self._arrived.popleft()))
        catalog = self._join() if self._devices.due else None
        if self._explanation_due and catalog is not None and self._is_rebuilt():
            self._explanation_due = False
            events.append(
                visibility_answer(
                    self._visible_before, self._running_visible, catalog.devices, self._rebuilt, now=self._clock()
                )
            )
        if catalog is not None:
            self.run_recorder.set_devices(catalog.devices)
        is_news = catalog is not None
        for event in events:
            if not isinstance(event, DROPPABLE):
                is_news = True
            elif not self.run_recorder.watches:
                continue
            self.run_recorder.handle(event)
        result = PollResult(events, catalog, more=bool(self._arrived))
        if is_news:
            for listener in self.listeners.values():
                listener.drained(result)
        if self.on_drained is not None:
            self.on_drained(result)
        return result

    def listener(self, feature: str) -> Any:
        """That of a feature; `BadInput` where it is not there."""
        if feature not in self.listeners:
            raise BadInput(f"this DevExplorer has no {feature}")
        return self.listeners[feature]

    def completed(self, sample: DeviceSample) -> DeviceSample:
        """With what is known of the card besides. Any thread."""
        return self._drm.completed(sample) if sample.device.startswith(ENGINE_READS) else sample

    def set_hidden(self, hidden: bool) -> None:
        """The window is hidden: read once a second, unless somebody wants more."""
        self._hidden = hidden
        self.set_pace()

    def set_pace(self) -> None:
        """Read as often as it is wanted now."""
        seldom = self._hidden and not any(listener.eager for listener in self.listeners.values())
        self._sampler.set_interval(max(HIDDEN_INTERVAL_S, self._interval_s) if seldom else self._interval_s)

    def close(self, deadline_s: float = 2.5) -> bool:
        """End the engine, the sampler and what listens; False when something still runs at the deadline."""
        end = time.monotonic() + deadline_s
        self._engine.close()
        self._sampler.stop(0.0)
        for listener in self.listeners.values():
            listener.close(0.0)  # begins with it
        ended = self._engine.join(deadline_s) & self._drm.stop(max(end - time.monotonic(), 0.1))
        for listener in self.listeners.values():
            ended &= listener.close(max(end - time.monotonic(), 0.5))  # a disk takes what was measured
        ended &= self.run_recorder.join(max(end - time.monotonic(), 0.1))
        return self._sampler.stop(max(end - time.monotonic(), 0.1)) and ended

    # --- events of the parts -----------------------------------------------------------------------------------------

    def _run_ended(self, result: BenchResult, conditions: Conditions) -> None:
        for keep in self.on_run:
            keep(result, conditions)

    def _join(self) -> Catalog:
        catalog = self._devices.join(self._running_visible)
        self._sampler.set_names(catalog.names)
        self._drm.set_names(catalog.drm_names)
        return catalog

    def _take(self, event: Event) -> list[Event]:
        """Follow one event; returns what the window should see of it. A handler that returns None leaves it as it
        is."""
        if isinstance(event, BaseEvent) and event.request < 0:
            if take := self._asides.get(event.request):
                take(event)
            if isinstance(event, JobEnded):
                self._asides.pop(event.request, None)
            return []
        if isinstance(event, Kept) and event.request in self._sent:
            self._sent[event.request].again = event.again
        shown: list[Event] | None = self.handle(event)
        if shown is not None:
            return shown
        if self._rebuild.running and isinstance(event, _PIECE_BY_PIECE):
            return [] if self._rebuild.owns(event.request) else [event]  # piece by piece it is no news
        return [event]

    @handles(EngineDevices)
    def _devices_arrived(self, event: EngineDevices) -> None:
        self._devices.take_torch(event)
        self._devices_known = True

    @handles(EngineReady)
    def _engine_ready(self, event: EngineReady) -> list[Event] | None:
        self._running_visible, self._devices.due = event.cuda_visible_devices, True
        spec = self._virtual_spec if event.virtual_beside is None else None
        self.surroundings = Surroundings(event.python_version, event.torch_version, spec, self._visible_devices)
        if self._ended_because is not None:
            self._engine.kill()  # asked for while it was starting, when there was no process to end yet
        elif self._rebuild_due:
            self._rebuild_due = False
            if not self._rebuild.begin():
                return [event, self._end_rebuild()]
        return None

    @handles(DeviceSample)
    def _sampled(self, sample: DeviceSample) -> list[Event]:
        return [self.completed(sample)]

    @handles(EngineLost)
    def _engine_lost(self, event: EngineLost) -> list[Event]:
        return [self._after_death(event.reason, event.cannot_start)]

    @handles(ObjectChanged)
    def _object_changed(self, event: ObjectChanged) -> None:
        if (sent := self._sent.get(event.request)) is not None:
            sent.created.append(event.snapshot.name)

    @handles(SideEffects)
    def _side_effects(self, event: SideEffects) -> list[Event]:
        if (sent := self._sent.get(event.request)) is not None:
            sent.effects = event.effects
        return []

    @handles(Moved)
    def _moved(self, event: Moved) -> None:
        if event.report.already_there and (sent := self._sent.get(event.request)) is not None:
            sent.unchanged = True

    @handles(Undid)
    def _undid(self, event: Undid) -> None:
        self._journal.take_back(event.of)

    @handles(Redid)
    def _redid(self, event: Redid) -> None:
        if (sent := self._sent.get(event.request)) is not None:
            sent.command = msgspec.structs.replace(event.command, request=event.request)
            sent.redone = True

    @handles(Answer)
    def _answered(self, answer: Answer) -> None:
        if answer.failed:
            self._rebuild.refused(answer.request, answer.words)
        elif (sent := self._sent.get(answer.request)) is not None:
            sent.answer = answer

    @handles(JobEnded)
    def _job_ended(self, event: JobEnded) -> list[Event]:
        sent = self._sent.pop(event.request, None)
        if self._rebuild.owns(event.request):
            self._rebuild.ended(event.request, ok=event.ok, created=() if sent is None else sent.created)
            return [event] if self._rebuild.running else [event, self._end_rebuild()]
        if event.ok and sent is not None and not sent.unchanged:
            created = sent.created[-1] if sent.created else None
            self._journal.add(sent.command, created, sent.effects, sent.answer, sent.again, redone=sent.redone)
        return [event]

    # --- after a death -----------------------------------------------------------------------------------------------

    def _after_death(self, reason: str, cannot_start: bool) -> EngineLost:
        now = self._clock()
        running = [title_of(sent.command) for request, sent in self._sent.items() if not self._rebuild.owns(request)]
        if (asked := self._ended_because) is not None:
            reason, self._ended_because, cannot_start = asked, None, False
            self._rebuild.interrupted()
        elif (culprit := self._rebuild.died()) is not None:  # a second time would end the same way
            reason = f"{reason} That happened while {culprit} again; it is left out from now on."
        self._sent.clear()
        for request, take in tuple(self._asides.items()):
            take(JobEnded(request=request, ok=False, time_unix_s=now))
        self._asides.clear()
        self._deaths.append(now)
        self._rebuild_due, self._devices_known = True, False
        often = len(self._deaths) > RESTARTS and now - self._deaths[0] < RESTART_WINDOW_S
        reason += f" It was busy with: {', '.join(running)}." if running else ""
        reason += f" That is {len(self._deaths)} times within a minute." if often else ""
        self._given_up = given_up = often or cannot_start
        if not given_up:
            self._new_engine()
        return EngineLost(
            reason=reason, will_restart=not given_up, time_unix_s=now, cannot_start=cannot_start, asked=bool(asked)
        )

    def _end_rebuild(self) -> Rebuilt:
        self._rebuilt = self._rebuild.result()
        self._devices.due = True
        return self._rebuilt

    def _is_rebuilt(self) -> bool:
        """Whether the engine is complete: it stays, it has listed its devices, and the rebuild has ended."""
        return self._ended_because is None and self._devices_known and not (self._rebuild_due or self._rebuild.running)

    def _new_engine(self) -> None:
        self._given_up = False
        self._engine = self._made_engine()
        self._engine.start()

    def _made_engine(self) -> EngineLike:
        make = self._make_engine if self.python is None else partial(self._make_engine, python=self.python)
        return make(self._pass_on, self._virtual_spec, self._visible_devices)

    def _send_numbered(self, command: Command) -> int:
        self._requests += 1
        self.send_as(msgspec.structs.replace(command, request=self._requests))
        return self._requests


# A command that the session has sent to the engine, and what came back about it.


@dataclass(slots=True)
class Sent:
    """A command in progress, and the engine's events about it so far."""

    command: Command
    created: list[str] = field(default_factory=list)
    """Objects that it created or changed."""
    effects: tuple[str, ...] = ()
    answer: Answer | None = None
    again: Command | None = None
    """What brings back a workspace that was saved or opened."""
    unchanged: bool = False
    """Everything was at its destination already."""
    redone: bool = False
    """It was a Redo; `command` is what it carried out again."""


# Rebuilds the workspace in a new engine: sends the journal's commands again and records what was restored and what
# was not, with the reason. Main thread.
#
# A new engine can have other devices than the one before (another CUDA_VISIBLE_DEVICES, a lost card), so a move can
# fail this time. A failed command is reported and not tried again.


class Rebuild:
    """Call `begin` after each start of an engine, then `ended` for each request; `send` returns the request number."""

    def __init__(self, journal: Journal, send: Callable[[Command], int]) -> None:
        self._journal = journal
        self._send = send
        self._sent: dict[int, JournalEntry] = {}
        self._words: dict[int, str] = {}
        self._failed: list[tuple[JournalEntry, str]] = []
        self._culprits: list[str] = []
        self._restored: list[str] = []

    def begin(self) -> bool:
        """Send the journal's commands; False when there is nothing to do."""
        self._restored, self._failed = [], []
        for entry in self._journal.replay():
            request = self._send(entry.repeated)
            entry.command = msgspec.structs.replace(entry.command, request=request)
            self._sent[request] = entry
        return self.running

    @property
    def running(self) -> bool:
        """Whether the rebuild is still in progress."""
        return bool(self._sent)

    def owns(self, request: int) -> bool:
        """Whether the rebuild sent this request."""
        return request in self._sent

    def refused(self, request: int, words: str) -> None:
        """Keep why one of its requests failed."""
        if request in self._sent:
            self._words[request] = words

    def ended(self, request: int, *, ok: bool, created: Sequence[str]) -> None:
        """One of its requests has ended; `created` are the objects that it made or changed."""
        entry = self._sent.pop(request)
        if ok:
            self._restored += [name for name in created if name not in self._restored]
        if ok and isinstance(entry.command, Remove):
            self._restored = [name for name in self._restored if name not in entry.command.names]
        if not ok:
            self._failed.append((entry, self._words.get(request, "it failed this time")))

    def interrupted(self) -> None:
        """The engine was ended on purpose: no command is to blame, and the next engine gets all commands again."""
        self._sent.clear()
        self._words.clear()

    def died(self) -> str | None:
        """The engine died. Returns the command that it was running, which is skipped from now on; None if there was
        none."""
        culprit = next(iter(self._sent.values()), None)
        self.interrupted()
        if culprit is None:
            return None
        words = title_of(culprit.command)
        self._culprits.append(words)
        self._journal.forget([culprit])
        return words

    def result(self) -> Rebuilt:
        """What was restored and what was not; call it once nothing is running."""
        lost = [
            *self._journal.lost(),
            *(f"{title_of(entry.command)}: {words}" for entry, words in self._failed),
            *(f"{words}: it ends the engine" for words in self._culprits),
        ]
        self._journal.forget([entry for entry, _ in self._failed])
        self._journal.rebuilt()
        self._culprits.clear()
        return Rebuilt(restored=tuple(self._restored), lost=tuple(lost))
