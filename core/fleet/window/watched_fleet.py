"""A fleet that a window watches: its source (the machines that the window has anyway, for one), its table, its alerts,
the check that runs or has run. Main thread; the source and the check have threads of their own."""

from __future__ import annotations

import platform
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from devexplorer.core.alerts.rules import Rule
from devexplorer.core.base import Clock
from devexplorer.core.fleet.alerts import FleetAlerts
from devexplorer.core.fleet.check.fleet_check import CheckReport, FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan, measured_cards
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardKey,
    CardsListed,
    FleetEvent,
    FleetMachine,
    FleetSource,
    GroupEnded,
    GroupStarted,
    MachineChanged,
    MachineLeft,
    MeasureOrder,
    MeasuringSource,
    Readings,
)
from devexplorer.core.fleet.hosts.host_fleet import JointGroups, meeting
from devexplorer.core.fleet.hosts.session_member import JointStart, SessionMember, SomeSession
from devexplorer.core.fleet.records import CardVerdict
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.machines.window.link import Link
from devexplorer.core.records import DeviceSample
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.state import State

INTERVAL_S = 1.0
PROBE_PORT = 9
"""Of an address that is only looked up: nothing is sent there."""


class KnownInWindow(NamedTuple):
    """One machine of the window."""

    name: str
    state: State
    """What is known of it, shown or not."""
    link: Link | None
    """None: it is this one."""
    session: SomeSession | None = None
    """None: nothing was started there yet."""
    address: Callable[[], str] = lambda: ""
    """As other machines reach it; may wait."""

    @property
    def why_not(self) -> str:
        """Why nothing can be measured there now; empty: it can."""
        if self.link is not None and not self.link.live:
            return f"it is not connected{f': {self.link.reason}' if self.link.reason else ''}"
        if self.link is not None and self.link.watching:
            return f"{self.link.holder or 'another window'} controls it"
        if self.session is None or self.state.engine is None:
            return "its engine does not run"
        if self.state.active_runs:
            return "a benchmark runs there"
        return ""


class WindowMachines:
    """`machines` says which there are now."""

    def __init__(self, machines: Callable[[], Iterable[KnownInWindow]], *, monotonic: Clock = time.monotonic) -> None:
        self._machines, self._monotonic = machines, monotonic
        self._due_s = float("-inf")
        self._told: dict[str, FleetMachine] = {}
        self._listed: dict[str, CardsListed] = {}
        self._read: dict[CardKey, DeviceSample] = {}
        self._known: dict[str, KnownInWindow] = {}
        """Of the last look."""
        self._members: dict[str, SessionMember] = {}
        """Those that have measured in this check."""
        self._addresses: dict[str, str] = {}
        self._events: deque[FleetEvent] = deque()
        self._joint, self._start_together = JointGroups(), JointStart(monotonic=monotonic)

    def start(self) -> None:
        """Nothing has to begin."""

    def drain(self) -> Sequence[FleetEvent]:
        """What was measured since the last call, and what has changed, when another look is due."""
        for machine, group in self._joint.to_stop():
            if machine in self._members:
                self._members[machine].stop(group)
        self._start_together.beat([member for name, member in self._members.items() if self._is_there(name)])
        events = list(self._events)
        self._events.clear()
        if self._monotonic() < self._due_s:
            return events
        self._due_s = self._monotonic() + INTERVAL_S
        return [*events, *self._look_at_all()]

    def close(self, deadline_s: float = 0.0) -> bool:
        """The window's machines go on."""
        return True

    # --- the check

    def left_out(self) -> dict[str, str]:
        """Machines on which nothing can be measured now, and why."""
        return {one.name: why for one in self._machines() if (why := one.why_not)}

    def prepare(self, order: MeasureOrder) -> None:
        """Find out how machines that have to meet reach each other. On the thread of the check, and may wait."""
        known = self._known
        names = [name for name in meeting(order) if name in known]
        far = {name: known[name].address() or name for name in names if known[name].link is not None}
        here = address_towards(next(iter(far.values()), ""))
        self._addresses = {name: far.get(name, here) for name in names}

    def measure(self, order: MeasureOrder) -> None:
        """Measure on the cards of these machines, each by the engine that the window has there."""
        known = {one.name: one for one in self._machines()}
        able = {name: one for name, one in known.items() if name in self._members or not one.why_not}
        shares, failed = self._joint.share(
            order,
            {name: partial(self._address, name) for name in able},
            lambda name: known[name].why_not if name in known else "the machine is gone",
        )
        self._events += failed
        for name, groups in shares.items():
            self._member(known[name]).measure(order, groups)

    def cancel(self) -> None:
        """End what is being measured."""
        for member in self._members.values():
            member.cancel()

    def _address(self, name: str) -> str:
        return self._addresses.get(name, name)

    def _member(self, one: KnownInWindow) -> SessionMember:
        """What measures there, and listens to what the window drains."""
        assert one.session is not None  # else nothing can be measured there
        member = self._members.get(one.name)
        if member is None or member.session is not one.session:
            self._forget(one.name)
            member = self._members[one.name] = SessionMember(one.name, one.session)
            member.take(PollResult([], None, one.state))  # which cards it has
            one.session.on_drained = partial(self._hear, member)
        return member

    def _hear(self, member: SessionMember, news: PollResult) -> None:
        measured = [
            event for event in member.take(news) if isinstance(event, GroupStarted | BlocksMeasured | GroupEnded)
        ]
        self._events += self._joint.passed(member.name, measured)

    def rest(self) -> None:
        """The check is over: listen no more."""
        for name in list(self._members):
            self._forget(name)

    def _forget(self, name: str) -> None:
        member = self._members.pop(name, None)
        if member is not None:
            member.session.on_drained = None

    def _is_there(self, name: str) -> bool:
        """Whether it may still say that it is ready."""
        one = self._known.get(name)
        return one is not None and (one.link is None or one.link.state != "lost")

    # --- what is known

    def _look_at_all(self) -> list[FleetEvent]:
        self._known = {one.name: one for one in self._machines()}
        events: list[FleetEvent] = []
        for name in self._told.keys() - self._known.keys():
            del self._told[name]
            self._listed.pop(name, None)
            self._joint.lose(name)
            self._forget(name)
            events.append(MachineLeft(name=name))
        for one in self._known.values():
            events += self._look(one)
        return events

    def _look(self, one: KnownInWindow) -> list[FleetEvent]:
        events: list[FleetEvent] = []
        infos = tuple(device.info for device in one.state.devices.values())
        cards = [info for info in infos if info.kind != "cpu"]
        problem = "" if one.link is None or one.link.live else one.link.reason
        machine = FleetMachine(
            name=one.name,
            state="connected" if one.link is None else one.link.state,
            problem=problem,
            simulated=bool(cards) and all(info.simulated for info in cards),
        )
        if machine.state == "lost":
            self._joint.lose(one.name)
        if machine != self._told.get(one.name):
            self._told[one.name] = machine
            events.append(MachineChanged(machine=machine))
        listed = CardsListed(machine=one.name, devices=infos, problems=one.state.problems)
        if listed != self._listed.get(one.name):
            self._listed[one.name] = listed
            events.append(listed)
        samples = tuple(
            sample
            for device in one.state.devices.values()
            if (sample := device.sample) is not None and sample is not self._read.get((one.name, device.info.id))
        )
        self._read |= {(one.name, sample.device): sample for sample in samples}
        if samples:
            events.append(Readings(machine=one.name, samples=samples))
        return events


def address_towards(other: str) -> str:
    """The address by which another machine reaches this one; its name where that is not known."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(other, PROBE_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # nothing is sent: the system says which of its addresses it would use
            return str(probe.getsockname()[0])
    except (OSError, IndexError, UnicodeError):
        return platform.node()


BEAT_S = 0.008
"""For the events of one beat; what is left waits for the next."""
LOOK_S = 0.95
"""Alerts are looked at about once a second."""
LEAST_DONE = 0.03
"""Share of a check from which on it says how long the rest takes."""
CLOSE_S = 20.0
"""A cluster is given back in that time; nothing waits for it."""


class WatchedFleet:
    """`start`, `beat` often, `end` when it is watched no more."""

    def __init__(
        self, source: FleetSource, name: str, rules: Sequence[Rule], *, monotonic: Clock = time.monotonic
    ) -> None:
        self.source, self.name = source, name
        self.table = FleetTable()
        self.alerts = FleetAlerts(rules)
        self.check: FleetCheck | None = None
        self.report: CheckReport | None = None
        """Of the last check."""
        self.verdicts: dict[CardKey, CardVerdict] = {}
        self.started_s: float | None = None
        """When the check began that runs."""
        self.left_s: float | None = None
        """About how long it still takes; None: nothing can be said of it."""
        self._monotonic = monotonic
        self._look_due_s = 0.0

    @property
    def problem(self) -> str:
        """Why there is no such fleet; empty: there is, or it may come."""
        return cast(str, getattr(self.source, "problem", ""))

    def start(self) -> None:
        """Begin to look for machines."""
        self.source.start()

    def beat(self, now_unix_s: float) -> None:
        """Take what has happened."""
        until = self._monotonic() + BEAT_S
        while True:
            events = self.source.drain()
            self.table.apply(events)
            if self.check is not None:
                self.check.beat(events)
            if not events or self._monotonic() >= until:
                break
        self.left_s = self._left_now_s()
        if self.check is not None and self.check.report is not None:
            self._rest()
            self.report, self.check, self.started_s = self.check.report, None, None
            self.verdicts = {(card.machine, card.device): card for card in self.report.verdict.cards}
        if (now := self._monotonic()) >= self._look_due_s:
            self._look_due_s = now + LOOK_S
            self.alerts.look(self.table, now_unix_s)

    @property
    def why_no_check(self) -> str | None:
        """Reason why no check can begin now."""
        if self.check is not None:
            return "A check of this fleet is running."
        left_out = self.left_out
        cards = measured_cards(self.table.cards)
        if not cards:
            return "No GPU of this fleet can be measured yet."
        if all(card.machine in left_out for card in cards):
            return f"{cards[0].machine} cannot be measured: {left_out[cards[0].machine].rstrip('.')}."
        return None

    def _left_now_s(self) -> float | None:
        """What the share done until now leaves, but no more than was said before: a step that takes longer than the
        others holds the figure, it does not send it up."""
        if self.check is None or self.started_s is None or (done := self.check.done) < LEAST_DONE:
            return None
        left_s = (self._monotonic() - self.started_s) * (1 - done) / done
        return left_s if self.left_s is None else min(left_s, self.left_s)

    @property
    def left_out(self) -> dict[str, str]:
        """Machines whose cards a check would leave out now, and why."""
        if not isinstance(self.source, WindowMachines):
            return {}
        with_cards = {card.machine for card in measured_cards(self.table.cards)}
        return {name: why for name, why in self.source.left_out().items() if name in with_cards}

    @property
    def measured(self) -> list[FleetCard]:
        """The cards that a check would measure now."""
        left_out = self.left_out
        return [card for card in measured_cards(self.table.cards) if card.machine not in left_out]

    def begin(self, plan: CheckPlan) -> None:
        """Check every card."""
        assert self.why_no_check is None
        self.check = FleetCheck(cast(MeasuringSource, self.source), self.measured, plan, known=self.table)
        self.started_s, self.left_s = self._monotonic(), None
        self.check.start()

    def _rest(self) -> None:
        if isinstance(self.source, WindowMachines):
            self.source.rest()

    def end(self) -> Callable[[], Any]:
        """Watch it no more; returns what gives everything back, for another thread: that can take a while."""
        check, source = self.check, self.source
        if check is not None:
            check.cancel()
            self._rest()

        def close() -> None:
            source.close(CLOSE_S)
            if check is not None:
                check.join(CLOSE_S)

        return close
