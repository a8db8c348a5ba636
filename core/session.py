"""Everything that the window talks to: the engine process and its restarts, the sampler, the joined device catalog, the journal.

Main thread only, and no method waits: threads belong to the parts, their events arrive in one mailbox that the heartbeat drains.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from devexplorer.core.devices.catalog import Catalog, join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.datasheets import datasheets
from devexplorer.core.devices.nvml import Card, Nvml
from devexplorer.core.engine.journal import Journal
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.errors import BadInput
from devexplorer.core.records.devices import DeviceInfo, Problem
from devexplorer.core.records.messages import (
    Answer,
    Combine,
    Command,
    EngineDevices,
    EngineLost,
    EngineReady,
    Event,
    JobEnded,
    JobProgress,
    JobStarted,
    Moved,
    NewTensor,
    ObjectChanged,
    Rebuilt,
    SideEffects,
    StartBenchmark,
)
from devexplorer.core.telemetry.mailbox import Mailbox
from devexplorer.core.telemetry.sampler import Sampler

RESTARTS = 3
"""An engine that dies more often than this within `RESTART_WINDOW_S` is not restarted by itself: something kills it every time."""
RESTART_WINDOW_S = 60.0
MOST_EVENTS = 400
"""Per beat: the window stays smooth whatever the engine says."""


class EngineLike(Protocol):
    """What the session needs of an engine process."""

    def start(self) -> None: ...  # noqa: D102 - see EngineProcess
    def send(self, command: Command) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def join(self, deadline_s: float) -> bool: ...  # noqa: D102


class Drained(NamedTuple):
    """What happened since the last beat."""

    events: list[Event]
    catalog: Catalog | None
    """The devices, when something about them changed."""


class Session:
    """`start`, then `send` commands and `drain` events; `close` at the end."""

    def __init__(
        self,
        *,
        virtual_spec: str | None = None,
        interval_s: float = 0.1,
        clock: Callable[[], float] = time.time,
        make_engine: Callable[[Callable[[Event], None], str | None], EngineLike] | None = None,
        nvml: Nvml | None = None,
    ) -> None:
        self._clock = clock
        self._virtual_spec = virtual_spec
        self._make_engine = make_engine or (lambda put, spec: EngineProcess(put, virtual_spec=spec, clock=clock))
        self._mailbox = Mailbox()
        self._arrived: deque[Event] = deque()
        self._cpu = CpuReader()
        self._sampler = Sampler(self._mailbox.put, nvml or Nvml(), self._cpu, interval_s, on_cards=self._take_cards)
        self._datasheets = datasheets()
        self._journal = Journal()
        self._pending: dict[int, Command] = {}
        self._created: dict[int, str] = {}
        self._effects: dict[int, tuple[str, ...]] = {}
        self._unchanged: set[int] = set()
        """Requests of moves to where things were already."""
        self._replaying: dict[int, Command] = {}
        self._replay_failed: list[Command] = []
        self._culprits: list[str] = []
        self._restored: list[str] = []
        self._rebuild_due = False
        self._deaths: deque[float] = deque(maxlen=RESTARTS + 1)
        self._requests = 0
        self._cards: tuple[Card, ...] = ()
        self._card_problems: tuple[Problem, ...] = ()
        self._cards_changed = True
        self._torch_devices: tuple[DeviceInfo, ...] | None = None
        self._torch_problems: tuple[Problem, ...] = ()
        self._catalog_due = True
        self._engine = self._make_engine(self._mailbox.put, virtual_spec)

    def start(self) -> None:
        """Start sampler and engine; returns at once."""
        self._sampler.start()
        self._engine.start()

    def send(self, command: Command) -> int:
        """Send a command to the engine; returns the request number that its events will carry."""
        self._requests += 1
        numbered: Command = msgspec.structs.replace(command, request=self._requests)
        try:
            self._engine.send(numbered)
        except BadInput as error:
            self._mailbox.put(Answer(title="That cannot be sent", words=str(error), failed=True, time_unix_s=self._clock()))
            return self._requests
        self._pending[self._requests] = numbered
        return self._requests

    def put(self, event: Event) -> None:
        """Let an event of the window's own (an uncaught exception, a warning of Qt) arrive like any other. Any thread."""
        self._mailbox.put(event)

    @property
    def dropped(self) -> int:
        """Samples that were dropped because nobody drained them in time."""
        return self._mailbox.dropped

    def restart_engine(self) -> None:
        """End the engine, also one that hangs; it comes back as after a crash."""
        self._deaths.clear()
        self._engine.kill()

    def start_engine_again(self) -> None:
        """Start an engine after it was given up."""
        self._deaths.clear()
        self._new_engine()

    def drain(self) -> Drained:
        """What happened since the last call, in order; after a flood the rest comes with the next calls."""
        self._arrived.extend(self._mailbox.drain())
        events: list[Event] = []
        for _ in range(min(len(self._arrived), MOST_EVENTS)):
            events.extend(self._take(self._arrived.popleft()))
        catalog = self._join() if self._catalog_due or self._cards_changed else None
        return Drained(events, catalog)

    def close(self, deadline_s: float = 2.5) -> bool:
        """End the engine and the sampler; False when something had to be left behind at the deadline."""
        end = time.monotonic() + deadline_s
        self._engine.close()
        self._sampler.stop(0.0)
        ended = self._engine.join(deadline_s)
        return self._sampler.stop(max(end - time.monotonic(), 0.1)) and ended

    # --- what the parts say ------------------------------------------------------------------------------------------

    def _take_cards(self, cards: Sequence[Card], problems: Sequence[Problem]) -> None:
        """Called by the sampler thread: keep, and let the next drain join."""
        self._cards, self._card_problems = tuple(cards), tuple(problems)
        self._cards_changed = True

    def _join(self) -> Catalog:
        self._catalog_due = self._cards_changed = False
        catalog = join(
            self._cpu.info(),
            self._cards,
            self._torch_devices,
            problems=(*self._card_problems, *self._torch_problems),
            datasheets=self._datasheets,
            cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            cuda_device_order=os.environ.get("CUDA_DEVICE_ORDER"),
        )
        self._sampler.set_names(catalog.names)
        return catalog

    def _take(self, event: Event) -> list[Event]:
        """Follow one event; returns what the window should see of it."""
        request = getattr(event, "request", 0)
        match event:
            case EngineDevices(devices=devices, problems=problems):
                self._torch_devices, self._torch_problems = devices, problems
                self._catalog_due = True
            case EngineReady():
                if self._rebuild_due:
                    self._rebuild_due = False
                    return [event, *self._start_replay()]
            case EngineLost(reason=reason):
                return [self._after_death(reason)]
            case ObjectChanged(snapshot=snapshot):
                self._created[request] = snapshot.name
            case SideEffects(effects=effects):
                self._effects[request] = effects
                return []
            case Moved(report=report) if report.already_there:
                self._unchanged.add(request)
            case JobEnded(ok=ok):
                return self._job_ended(event, request, ok)
        if request in self._replaying and isinstance(event, Answer | Moved | JobStarted | JobProgress):
            return []  # making things again is no news, piece by piece
        return [event]

    def _job_ended(self, event: JobEnded, request: int, ok: bool) -> list[Event]:
        created, effects = self._created.pop(request, None), self._effects.pop(request, ())
        nothing_happened = request in self._unchanged
        self._unchanged.discard(request)
        if request in self._replaying:
            command = self._replaying.pop(request)
            if ok and created is not None and created not in self._restored:
                self._restored.append(created)
            if not ok:
                self._replay_failed.append(command)
            return [event] if self._replaying else [event, self._rebuilt()]
        command_done = self._pending.pop(request, None)
        if ok and command_done is not None and not nothing_happened:
            self._journal.add(command_done, created, effects)
        return [event]

    # --- after a death -----------------------------------------------------------------------------------------------

    def _after_death(self, reason: str) -> EngineLost:
        now = self._clock()
        running = [_describe(command) for command in self._pending.values()]
        for request, command in list(self._replaying.items())[:1]:  # the one that it was at: a second time would end the same way
            self._culprits.append(_describe(command))
            self._journal.forget([command])
            reason = f"{reason} That happened while {_describe(command)} was repeated; it is left out from now on."
            del self._replaying[request]
        for memory in (self._pending, self._created, self._effects, self._replaying, self._unchanged):
            memory.clear()
        self._deaths.append(now)
        self._rebuild_due = True
        often = len(self._deaths) > RESTARTS and now - self._deaths[0] < RESTART_WINDOW_S
        if running:
            reason = f"{reason} It was busy with: {', '.join(running)}."
        if often:
            reason = f"{reason} That is {len(self._deaths)} times within a minute."
        else:
            self._new_engine()
        return EngineLost(reason=reason, will_restart=not often, time_unix_s=now)

    def _new_engine(self) -> None:
        self._engine = self._make_engine(self._mailbox.put, self._virtual_spec)
        self._engine.start()

    def _start_replay(self) -> list[Event]:
        commands = self._journal.replay()
        self._restored, self._replay_failed = [], []
        for command in commands:
            self._requests += 1
            numbered: Command = msgspec.structs.replace(command, request=self._requests)
            self._replaying[self._requests] = numbered
            self._engine.send(numbered)
        return [] if commands else [self._rebuilt()]

    def _rebuilt(self) -> Rebuilt:
        lost = [
            *self._journal.lost(),
            *(f"{_describe(command)}: it failed this time" for command in self._replay_failed),
            *(f"{words}: it ends the engine" for words in self._culprits),
        ]
        self._journal.forget(self._replay_failed)
        self._journal.rebuilt()
        self._culprits.clear()
        return Rebuilt(restored=tuple(self._restored), lost=tuple(lost))


def _describe(command: Command) -> str:
    """A command in two or three words."""
    match command:
        case StartBenchmark(spec=spec):
            return f"benchmark on {spec.device}"
        case NewTensor(name=name) | Combine(name=name):
            return f"new tensor {name or ''}".rstrip()
    subject = getattr(command, "target", None) or getattr(command, "recipe", None) or ", ".join(getattr(command, "targets", ()))
    return f"{type(command).__name__.lower()} {subject}".rstrip()
