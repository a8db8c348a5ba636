"""What was measured last by experiments, as the window shows it. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles
from devexplorer.core.experiments.records import Ask, CrossoverMeasured, WorkTimed
from devexplorer.core.feature import FeatureState
from devexplorer.core.records import ObjectSnapshot, Offer
from devexplorer.core.session import State
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


def offers(state: State, *targets: str) -> tuple[Offer, ...]:
    """One tensor may become an array."""
    row = state.row_of(targets[0])
    if len(targets) != 1 or row is None or row.kind not in ("tensor", "parameter", "buffer"):
        return ()
    return (Offer("To NumPy", Ask(target=targets[0], question="numpy")),)
