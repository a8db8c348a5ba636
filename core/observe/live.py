"""What a window knows of the steps of a running script. Main thread."""

from __future__ import annotations

from collections import deque

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.observe.records import ScriptSteps
from devexplorer.core.records.objects import ObjectSnapshot
from devexplorer.core.session.poll import Change

KEPT = 3_600


class ScriptState(FeatureState):
    """The steps of the script that is shown; of a machine none."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.steps: deque[ScriptSteps] = deque(maxlen=KEPT)

    @handles(ScriptSteps)
    def _took(self, event: ScriptSteps) -> Change:
        self.steps.append(event)
        return Change.LABORATORY
