"""The names under which tensors are held in workspace objects, so that ties survive a move. Reads
only. Jobs thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from torch import Tensor, nn

from devexplorer.core.models import named_modules
from devexplorer.core.workspace.targets import Target

Key = tuple[str, str]
"""Name of the object and path of the tensor in it ("" for a tensor of the workspace)."""
Slot = tuple[nn.Module, str]
"""A module and the name under which it holds a buffer."""
_Modules = Sequence[tuple[str, nn.Module]]
"""Every module of an object with its path."""


class Holders:
    """Every location of registered tensors in some targets; tensors of the workspace are left out.

    `asked` are the ids to find. None: all tensors with more than one location. Most models have none, so
    this is quick.
    """

    def __init__(self, targets: Iterable[Target], asked: Collection[int] | None = None) -> None:
        self._keys: dict[int, tuple[Key, ...]] = {}
        self._slots: dict[int, tuple[Slot, ...]] = {}
        walked = [
            (target.name, named_modules(target.thing, target.path))
            for target in targets
            if isinstance(target.thing, nn.Module)
        ]
        if asked is None:
            asked = _held_twice(modules for _, modules in walked)
        if asked:
            for name, modules in walked:
                self._add(name, modules, asked)

    def _add(self, name: str, modules: _Modules, asked: Collection[int]) -> None:
        keys, slots = self._keys, self._slots
        for place, module in modules:
            prefix = f"{place}." if place else ""
            for register in (module._parameters, module._buffers):
                for key, tensor in register.items():
                    identity = id(tensor)
                    if tensor is None or identity not in asked:
                        continue
                    keys[identity] = (*keys.get(identity, ()), (name, prefix + key))
                    if register is module._buffers:
                        slots[identity] = (*slots.get(identity, ()), (module, key))

    def keys(self, tensor: Tensor, key: Key) -> tuple[Key, ...]:
        """Every name of the tensor that is held under this one, which comes first."""
        keys = self._keys.get(id(tensor))
        return (key,) if keys is None else tuple(dict.fromkeys((key, *keys)))

    def slots(self, buffer: Tensor, slot: Slot) -> tuple[Slot, ...]:
        """Every module that holds this buffer."""
        return self._slots.get(id(buffer)) or (slot,)


def _held_twice(objects: Iterable[_Modules]) -> set[int]:
    """`id()` of every tensor with more than one place."""
    places = Counter(
        id(tensor)
        for modules in objects
        for _, module in modules
        for register in (module._parameters, module._buffers)
        for tensor in register.values()
        if tensor is not None
    )
    return {identity for identity, count in places.items() if count > 1}
