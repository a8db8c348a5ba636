"""What a window knows of the steps of a running script. Main thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Self

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.observe.records import ScriptSteps
from devexplorer.core.records.base import BaseEvent
from devexplorer.core.records.objects import ObjectSnapshot
from devexplorer.core.session.poll import Change
from devexplorer.core.telemetry.history import SAME_S, History
from devexplorer.core.telemetry.metrics import Metric

KEPT = 3_600
GAP_S = 30.0
"""So long without a step is a pause: a step can take a while."""
PHASES = (
    "forward", "backward", "optimizer", "evaluation", "input wait", "copies", "read back", "other ranks", "rest",
)  # fmt: skip
"""As they are stacked, from the bottom: what computes, then what it waits for."""


class ScriptState(FeatureState):
    """The steps of the script that is shown; of a machine none."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.steps: deque[ScriptSteps] = deque(maxlen=KEPT)
        self.history = History([Metric(phase, phase, "seconds") for phase in PHASES], gap_s=GAP_S)
        """Seconds of a step by phase. A phase that a step had nothing of is 0 there."""

    @handles(ScriptSteps)
    def _took(self, event: ScriptSteps) -> Change:
        if self.steps and event.time_unix_s <= self.steps[-1].time_unix_s + SAME_S:
            return Change.NOTHING  # told once more
        self.steps.append(event)
        known = [event.phases.get(phase, 0.0 if self.history.has(phase) else None) for phase in PHASES]
        self.history.append(event.time_unix_s, known)
        return Change.LABORATORY

    def past(self) -> Iterable[BaseEvent]:
        """All of them."""
        return tuple(self.steps)

    def go_on_from(self, older: Self) -> None:
        """Steps that were told before come first."""
        newer = list(self.steps)
        self.steps, self.history = older.steps, older.history
        for event in newer:
            self._took(event)
