"""What was measured last by experiments, as the window shows it. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles
from devexplorer.core.experiments.records import CrossoverMeasured, WorkTimed
from devexplorer.core.feature import FeatureState
from devexplorer.core.records import ObjectSnapshot
from devexplorer.core.session.poll import Change


class ExperimentState(FeatureState):
    """The latest of each."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.work: WorkTimed | None = None
        """Matrix products timed with and without synchronisation."""
        self.crossover: CrossoverMeasured | None = None

    @handles(WorkTimed)
    def _timed(self, event: WorkTimed) -> Change:
        self.work = event
        return Change.LABORATORY

    @handles(CrossoverMeasured)
    def _compared(self, event: CrossoverMeasured) -> Change:
        self.crossover = event
        return Change.LABORATORY
