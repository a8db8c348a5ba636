"""What a window knows of the steps of a running script. Main thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

import msgspec

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState, Listener
from devexplorer.core.observe.records import RunReport, ScriptEnded, ScriptHeld, ScriptSteps
from devexplorer.core.records import StoredRun
from devexplorer.core.records.base import BaseEvent
from devexplorer.core.records.objects import ObjectSnapshot
from devexplorer.core.session.poll import Change, PollResult
from devexplorer.core.telemetry.history import SAME_S, History
from devexplorer.core.telemetry.metrics import Metric

if TYPE_CHECKING:
    from devexplorer.core.machines.records import ScriptsFound
    from devexplorer.core.session.session import Session

KEPT = 3_600
GAP_S = 30.0
"""So long without a step is a pause: a step can take a while."""
PHASES = (
    "forward", "backward", "optimizer", "evaluation", "input wait", "copies", "read back", "other ranks", "rest",
)  # fmt: skip
"""As they are stacked, from the bottom: what computes, then what it waits for."""


class RunKeeper(Listener):
    """Keeps the run of the script that this session shows in the history, once it has ended; of a host, tells windows
    which scripts run on its machine. Main thread, but for `scripts`."""

    def drained(self, result: PollResult) -> None:
        """Look for the end of it."""
        for event in result.events:
            if isinstance(event, ScriptEnded):
                keep(self.session, event.report)

    def scripts(self) -> ScriptsFound:
        """Those of this user. Any thread: it waits for their answers."""
        from devexplorer.core.machines.records import ScriptsFound  # these two when somebody asks
        from devexplorer.core.observe.running import running

        return ScriptsFound(scripts=tuple(running()))


def keep(session: Session, ended: bytes | RunReport, done: Callable[[StoredRun], None] = lambda run: None) -> None:
    """Keep a run in the history of a session of this machine: of a script that was shown, or from a file; `done` gets
    what is kept. A second time changes nothing."""
    from devexplorer.core.observe.kind import conditions_of, result_of  # with its statistics, which no start needs

    here = isinstance(ended, bytes)
    report = msgspec.json.decode(ended, type=RunReport) if isinstance(ended, bytes) else ended
    session.listener("history").add(result_of(report), conditions_of(report, here=here), done, once=True)


class ScriptState(FeatureState):
    """The steps of the script that is shown; of a machine none."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.steps: deque[ScriptSteps] = deque(maxlen=KEPT)
        self.history = History([Metric(phase, phase, "seconds") for phase in PHASES], gap_s=GAP_S)
        """Seconds of a step by phase. A phase that a step had nothing of is 0 there."""
        self.ended: ScriptEnded | None = None
        """None: it runs, or ended without a word."""
        self.held = ""
        """How it is stopped; empty: it is not."""

    @handles(ScriptSteps)
    def _took(self, event: ScriptSteps) -> Change:
        if self.steps and event.time_unix_s <= self.steps[-1].time_unix_s + SAME_S:
            return Change.NOTHING  # told once more
        self.steps.append(event)
        known = [event.phases.get(phase, 0.0 if self.history.has(phase) else None) for phase in PHASES]
        self.history.append(event.time_unix_s, known)
        return Change.LABORATORY

    @handles(ScriptEnded)
    def _ended(self, event: ScriptEnded) -> Change:
        self.ended = event
        return Change.LABORATORY

    @handles(ScriptHeld)
    def _is_held(self, event: ScriptHeld) -> Change:
        if event.how == self.held:
            return Change.NOTHING
        self.held = event.how
        return Change.LABORATORY

    def past(self) -> Iterable[BaseEvent]:
        """All of them."""
        return (*self.steps, *([self.ended] if self.ended else []), ScriptHeld(how=self.held))

    def go_on_from(self, older: Self) -> None:
        """Steps that were told before come first."""
        newer = list(self.steps)
        self.steps, self.history = older.steps, older.history
        for event in newer:
            self._took(event)
