"""Under which names tensors are held, in a whole workspace object and in others: so that ties survive a move. Reads only. Jobs thread."""

from __future__ import annotations

from collections.abc import Container, Iterable

from torch import Tensor, nn

from devexplorer.core.workspace.walk import named_modules

Key = tuple[str, str]
"""Name of the object and path of the tensor in it ("" for a tensor of the workspace)."""
Slot = tuple[nn.Module, str]
"""A module and the name under which it holds a buffer."""


class Holders:
    """Every place of every registered tensor in some objects, each given as (name, path, thing); tensors of the workspace are left out.

    `asked` limits that to tensors with these ids: the move of one layer has to know of few.
    """

    def __init__(self, objects: Iterable[tuple[str, str, nn.Module | Tensor]], asked: Container[int] | None = None) -> None:
        self._keys: dict[int, tuple[Key, ...]] = {}
        self._slots: dict[int, tuple[Slot, ...]] = {}
        for name, path, thing in objects:
            if isinstance(thing, nn.Module):
                self._add(name, path, thing, asked)

    def _add(self, name: str, path: str, root: nn.Module, asked: Container[int] | None) -> None:
        keys, slots = self._keys, self._slots
        for place, module in named_modules(root, path):
            prefix = f"{place}." if place else ""
            for register in (module._parameters, module._buffers):
                for key, tensor in register.items():
                    identity = id(tensor)
                    if tensor is None or (asked is not None and identity not in asked):
                        continue
                    here = (name, prefix + key)
                    keys[identity] = (*keys[identity], here) if identity in keys else (here,)
                    if register is module._buffers:
                        slot = (module, key)
                        slots[identity] = (*slots[identity], slot) if identity in slots else (slot,)

    def keys(self, tensor: Tensor) -> tuple[Key, ...]:
        """Every name of the tensor, as a walk over the whole objects finds them."""
        return self._keys.get(id(tensor), ())

    def slots(self, buffer: Tensor) -> tuple[Slot, ...]:
        """Every module that holds this buffer."""
        return self._slots.get(id(buffer), ())
