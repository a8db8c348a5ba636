"""Models that a script calls itself, and what is told of them. The thread that is observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from devexplorer.core.observe.records import ObservedModel, ParameterPlace
from devexplorer.core.observe.weights import ModelWeight


class CalledModel:
    """A model that the script calls itself."""

    __slots__ = ("bare", "beside", "calls", "inner", "name", "place", "ref", "weight")

    def __init__(self, ref: Any, name: str, place: str) -> None:
        self.ref, self.name, self.place = ref, name, place
        self.bare = False
        """It had no parameters when it was called first."""
        self.inner = False
        """It was a part of another when it was called first."""
        self.beside = False
        """It is a loss or an observer of quantisation."""
        self.calls = 0
        self.weight: ModelWeight | None = None


def largest_first(called: Mapping[int, CalledModel], gone: Mapping[Any, CalledModel]) -> list[CalledModel]:
    """Those that are no parts of others (of one whose `forward` was called directly, say). `called`: by identity."""
    parts: set[int] = set()
    for root in (*called.values(), *gone.values()):
        if root.weight is not None:
            parts |= root.weight.modules
    kept = [root for key, root in called.items() if key not in parts]
    kept += gone.values()
    return sorted(kept, key=lambda root: -(root.weight.parameters if root.weight else 0))


def observed_models(found: list[CalledModel], called: Mapping[int, CalledModel]) -> tuple[ObservedModel, ...]:
    """For the report: those of one class that were made at one place are one."""
    merged: dict[tuple[str, str], ObservedModel] = {}
    roots = [root for root in found if not root.beside]
    if any(root.weight is not None and root.weight.parameters for root in roots):
        roots = [root for root in roots if _is_model(root)]
    for root in roots:
        key, known = (root.name, root.place), merged.get((root.name, root.place))
        calls = root.calls
        weight = root.weight or ModelWeight()
        if not root.calls:  # only methods of it were called, which call its parts
            calls += max((part.calls for number, part in called.items() if number in weight.modules), default=0)
        if known is not None and known.parameters >= weight.parameters:  # made anew, and gone unweighed perhaps
            merged[key] = msgspec.structs.replace(known, calls=known.calls + calls)
            continue
        merged[key] = ObservedModel(
            name=root.name,
            place=root.place,
            calls=calls,
            parameters=weight.parameters,
            bytes_by_device=dict(weight.devices),
            bytes_by_dtype=dict(weight.dtypes),
            gradient_bytes=dict(weight.gradients),
            optimizer_bytes=dict(weight.states),
        )
    return tuple(merged.values())


def parameter_places(found: list[CalledModel]) -> tuple[ParameterPlace, ...]:
    """Of the first that was weighed."""
    for root in found:
        if root.weight is not None:
            return tuple(root.weight.places)
    return ()


def _is_model(root: CalledModel) -> bool:
    """Where there is one with parameters: whether this is another. One that was gone before it was weighed may be."""
    if root.weight is None:
        return not root.bare
    return bool(root.weight.parameters) or root.weight.packed
