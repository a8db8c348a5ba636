"""The latest report of the planner, and whether it is about the model as it is. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.planner.records import FitPlanned, FitReport, PlannedTensor, planned_tensors
from devexplorer.core.records import ObjectSnapshot
from devexplorer.core.session.poll import Change


class FitState(FeatureState):
    """One report at a time."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.report: FitReport | None = None
        self._was: tuple[str, tuple[PlannedTensor, ...]] = "", ()
        """The model of the workspace that it is about, and its tensors as they were planned for."""
        self._compared: tuple[object, object, bool] | None = None

    @property
    def is_old(self) -> bool:
        """Whether the model that the report is about has been removed, or changed: what a part of it is, or whether it
        is trained; where it is does not matter."""
        (name, then), now = self._was, self.objects.get(self._was[0])
        if now is None or not then:
            return bool(name) and now is None
        if self._compared is None or self._compared[0] is not then or self._compared[1] is not now:
            self._compared = then, now, planned_tensors(now) != then  # a large model takes a while
        return self._compared[2]

    @handles(FitPlanned)
    def _planned(self, event: FitPlanned) -> Change:
        self.report, self._was = event.report, (event.target, event.report.spec.tensors)
        return Change.LABORATORY
