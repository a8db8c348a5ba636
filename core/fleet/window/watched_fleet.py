"""A fleet that a window watches: its source, its table, its alerts, the check that runs or has run. Main thread; the
source and the check have threads of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from devexplorer.core.alerts.rules import Rule
from devexplorer.core.base import Clock
from devexplorer.core.fleet.alerts import FleetAlerts
from devexplorer.core.fleet.check.fleet_check import CheckReport, FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan, measured_cards
from devexplorer.core.fleet.events import CardKey
from devexplorer.core.fleet.records import CardVerdict
from devexplorer.core.fleet.source import MOST_EVENTS, FleetSource, MeasuringSource
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.fleet.window.window_machines import WindowMachines

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
            if events:
                self.table.apply(events)
            if self.check is not None:
                self.check.beat(events)
            if len(events) < MOST_EVENTS or self._monotonic() >= until:
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
