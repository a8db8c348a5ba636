"""The memory below tensors: which storage, how many bytes, on which device, shared by whom. Reads only. Runs on the
jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.models.walk import device_id, every_tensor, no_collections
from devexplorer.core.records import ObjectUse
from devexplorer.core.virtual.device.accounting import block_address
from devexplorer.core.virtual.operators.tensor import VirtualTensor

Storage = tuple[str, int]
"""Device and address."""

MOST_OBJECTS = 30
"""Objects whose share is listed one by one."""


def storage_address(tensor: Tensor) -> int | None:
    """Where the tensor's storage begins; two tensors with the same address share memory. None when it has no memory."""
    if type(tensor) is VirtualTensor:
        return block_address(tensor._inner.untyped_storage())
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # tensors without memory of their own: fake, functional and sparse ones
        return None


def storages_of(thing: nn.Module | Tensor) -> dict[Storage, int]:
    """Bytes of every storage that the object keeps alive."""
    return _storages(every_tensor(thing))


def _storages(tensors: Iterable[Tensor]) -> dict[Storage, int]:
    found: dict[Storage, int] = {}
    ids: dict[torch.device, str] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            where = block_address(storage) if type(tensor) is VirtualTensor else storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # without memory of its own
            continue
        if where:
            device = tensor.device
            name = ids.get(device)
            if name is None:
                name = ids[device] = device_id(device)
            found[name, where] = storage.nbytes()
    return found


class Holdings(NamedTuple):
    """What named objects hold, by device, at one moment; never changed after it was handed out."""

    totals: Mapping[str, int]
    """Bytes, a shared storage once."""
    objects: Mapping[str, tuple[ObjectUse, ...]]
    """The same by object, largest first, at most `MOST_OBJECTS`; a shared storage counts for the object that had it
    first."""


class Held:
    """Bytes that named objects hold on each device, a shared storage once. Only objects that are named are looked at
    again."""

    def __init__(self, beside: Callable[[str], Iterable[Tensor]] = lambda name: ()) -> None:
        """`beside`: tensors that belong to an object without being in it."""
        self.now = Holdings({}, {})
        self._beside = beside
        self._storages: dict[str, dict[Storage, int]] = {}
        self._names: dict[Storage, tuple[str, ...]] = {}
        """Storage -> who holds it, in the order in which they came."""
        self._shared: set[Storage] = set()
        """Those that several hold."""
        self._allocated: dict[Storage, int] = {}
        self._owned: dict[str, dict[str, int]] = {}
        """Object -> device -> bytes that count for it."""

    def sharing(self, names: Collection[str]) -> tuple[str, ...]:
        """Other objects that shared memory with these when they were last looked at."""
        known = set(names)
        holders = {self._names[storage] for storage in self._shared}
        return tuple(sorted({other for names in holders if not known.isdisjoint(names) for other in names} - known))

    @no_collections()
    def renew(self, names: Collection[str], objects: Mapping[str, nn.Module | Tensor]) -> None:
        """Look again at what was made, changed or removed, and at what shared memory with it.

        Only storages that came or went cost more than a look: after the move of one layer those are few.
        """
        totals = dict(self.now.totals)
        touched = {*names, *self.sharing(names)}
        there = [name for name in objects if name in touched]
        found = {name: storages_of(objects[name]) for name in there}
        for name in there:
            found[name].update(_storages(self._beside(name)))
        for name in touched:
            new: Mapping[Storage, int] = found.get(name, {})
            for storage, size in self._storages.pop(name, {}).items():
                if new.get(storage) != size:  # of another size: another storage at the same address
                    self._let_go(name, storage, totals)
        for name in there:
            self._storages[name] = found[name]
            for storage, size in found[name].items():
                holders = self._names.get(storage)
                if holders is None:
                    self._names[storage] = (name,)
                    self._allocated[storage] = size
                    totals[storage[0]] = totals.get(storage[0], 0) + size
                elif name not in holders:
                    self._names[storage] = (*holders, name)
                    self._shared.add(storage)
        for name in touched:
            self._owned.pop(name, None)
        for name in there:
            self._owned[name] = self._shares(name)
        self.now = Holdings({device: size for device, size in totals.items() if size}, self._by_object())

    def _let_go(self, name: str, storage: Storage, totals: dict[str, int]) -> None:
        left = tuple(other for other in self._names[storage] if other != name)
        if left:
            self._names[storage] = left
            if len(left) == 1:
                self._shared.discard(storage)
        else:
            del self._names[storage]
            totals[storage[0]] -= self._allocated.pop(storage)

    def _shares(self, name: str) -> dict[str, int]:
        shares: dict[str, int] = {}
        for storage in self._storages[name]:
            if self._names[storage][0] == name:
                shares[storage[0]] = shares.get(storage[0], 0) + self._allocated[storage]
        return shares

    def _by_object(self) -> dict[str, tuple[ObjectUse, ...]]:
        uses: dict[str, list[ObjectUse]] = {}
        for name, shares in self._owned.items():
            for device, size in shares.items():
                if size:
                    uses.setdefault(device, []).append(ObjectUse(name, size))
        return {
            device: tuple(nlargest(MOST_OBJECTS, found, key=lambda use: use.bytes)) for device, found in uses.items()
        }
