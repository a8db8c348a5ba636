"""Under which names tensors are held, in a whole workspace object and in others: so that ties survive a move. Reads only. Jobs thread."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

Key = tuple[str, str]
"""Name of the object and path of the tensor in it ("" for a tensor of the workspace)."""
Slot = tuple[nn.Module, str]
"""A module and the name under which it holds a buffer."""


class Holders:
    """Every place of every registered tensor in some objects, each given as (name, path, thing); tensors of the workspace are left out."""

    def __init__(self, objects: Iterable[tuple[str, str, nn.Module | Tensor]]) -> None:
        self._keys: dict[int, list[Key]] = {}
        self._slots: dict[int, list[Slot]] = {}
        for name, path, thing in objects:
            if isinstance(thing, nn.Module):
                self._add(name, path, thing)

    def _add(self, name: str, path: str, root: nn.Module) -> None:
        for place, module in root.named_modules(prefix=path):
            prefix = f"{place}." if place else ""
            for key, tensor in (*module._parameters.items(), *module._buffers.items()):
                self._keys.setdefault(id(tensor), []).append((name, prefix + key))
            for key, buffer in module._buffers.items():
                self._slots.setdefault(id(buffer), []).append((module, key))

    def keys(self, tensor: Tensor) -> list[Key]:
        """Every name of the tensor, as a walk over the whole objects finds them."""
        return self._keys.get(id(tensor), [])

    def slots(self, buffer: Tensor) -> list[Slot]:
        """Every module that holds this buffer."""
        return self._slots.get(id(buffer), [])
