"""The latest plan for each model, and what hopped during its latest forward. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.records import Hop, ObjectSnapshot
from devexplorer.core.session.poll import Change
from devexplorer.core.split.records import Hopped, SplitPlan, SplitPlanned


class SplitState(FeatureState):
    """Both by the name of the model."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.plans: dict[str, SplitPlan] = {}
        self.hops: dict[str, tuple[Hop, ...]] = {}
        """Of each model that has any."""

    @handles(SplitPlanned)
    def _planned(self, event: SplitPlanned) -> Change:
        self.plans[event.target] = event.plan
        return Change.LABORATORY

    @handles(Hopped)
    def _hopped(self, event: Hopped) -> Change:
        self.hops[event.target] = event.hops
        return Change.LABORATORY

    def forget(self, name: str) -> None:
        """An object was removed."""
        self.plans.pop(name, None)
        self.hops.pop(name, None)

    def forget_all(self) -> None:
        """The engine was lost, and every object with it."""
        self.plans.clear()
        self.hops.clear()
