"""The latest values of tensors that were looked at, as the window shows them. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles, object_name
from devexplorer.core.feature import FeatureState
from devexplorer.core.parameters.records import Tie, ValuesDescribed
from devexplorer.core.records import ObjectSnapshot, Offer
from devexplorer.core.session import State
from devexplorer.core.session.poll import Change


class ValuesState(FeatureState):
    """By the target that was described."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.values: dict[str, ValuesDescribed] = {}
        self._described_in: dict[str, ObjectSnapshot | None] = {}
        """The object that contained the target at that time."""

    def are_old(self, target: str) -> bool:
        """Whether the object has changed since the values of the target were described."""
        return target in self.values and self.objects.get(object_name(target)) is not self._described_in.get(target)

    @handles(ValuesDescribed)
    def _described(self, event: ValuesDescribed) -> Change:
        self.values[event.target] = event
        self._described_in[event.target] = self.objects.get(object_name(event.target))
        return Change.LABORATORY

    def forget(self, name: str) -> None:
        """An object was removed."""
        self.values = {target: found for target, found in self.values.items() if object_name(target) != name}

    def forget_all(self) -> None:
        """The engine was lost, and every object with it."""
        self.values.clear()


def offers(state: State, left: str, right: str = "") -> tuple[Offer, ...]:
    """Two parameters of a model that have one shape can be tied."""
    first, second = state.row_of(left), state.row_of(right)
    if first is None or second is None or object_name(left) != object_name(right):
        return ()
    if first.kind != "parameter" or second.kind != "parameter" or first.shape != second.shape:
        return ()
    if first.identity is not None and first.identity == second.identity:
        return ()
    return (Offer(f"Tie {second.path} to {first.path}", Tie(first=left, second=right)),)
