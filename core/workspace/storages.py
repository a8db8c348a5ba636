"""The memory below tensors: which storage, how many bytes, on which device, shared by whom. Reads only. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from torch import Tensor, nn

from devexplorer.core.records.devices import ObjectUse
from devexplorer.core.workspace.walk import device_id, every_tensor

Storage = tuple[str, int]
"""Device and address."""

MOST_OBJECTS = 30
"""Objects whose share is told one by one."""


def storage_address(tensor: Tensor) -> int | None:
    """Where the tensor's storage begins; two tensors with the same address share memory. None when it has no memory."""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # tensors without memory of their own: fake ones, functional ones
        return None
    return address - int(tensor.storage_offset()) * tensor.element_size() if address else None


def storage_bytes(tensor: Tensor) -> int:
    """Size of the whole storage, which a view shares with others."""
    return tensor.untyped_storage().nbytes()


def storages_of(thing: nn.Module | Tensor) -> dict[Storage, int]:
    """Bytes of every storage that the object keeps alive."""
    return _storages(every_tensor(thing))


def _storages(tensors: Iterable[Tensor]) -> dict[Storage, int]:
    found: dict[Storage, int] = {}
    for tensor in tensors:
        address = storage_address(tensor)
        if address is not None:
            found[device_id(tensor.device), address] = storage_bytes(tensor)
    return found


class Holdings(NamedTuple):
    """What named objects hold, by device, at one moment; never changed after it was handed out."""

    totals: Mapping[str, int]
    """Bytes, a shared storage once."""
    objects: Mapping[str, tuple[ObjectUse, ...]]
    """The same by object, largest first, at most `MOST_OBJECTS`; a shared storage counts for the object that had it first."""


class Held:
    """Bytes that named objects hold on each device, a shared storage once. Only objects that are named are looked at again."""

    def __init__(self, beside: Callable[[str], Iterable[Tensor]] = lambda name: ()) -> None:
        """`beside`: tensors that belong to an object without being in it."""
        self.now = Holdings({}, {})
        self._beside = beside
        self._storages: dict[str, tuple[Storage, ...]] = {}
        self._names: dict[Storage, dict[str, None]] = {}
        """Storage -> who holds it, in the order in which they came."""
        self._bytes: dict[Storage, int] = {}
        self._owned: dict[str, dict[str, int]] = {}
        """Object -> device -> bytes that count for it."""

    @property
    def totals(self) -> Mapping[str, int]:
        """Device -> bytes; never changed after it was handed out."""
        return self.now.totals

    def sharing(self, names: Collection[str]) -> tuple[str, ...]:
        """Other objects that shared memory with these when they were last looked at."""
        known = set(names)
        found = {other for name in known for storage in self._storages.get(name, ()) for other in self._names[storage]}
        return tuple(sorted(found - known))

    def renew(self, names: Collection[str], objects: Mapping[str, nn.Module | Tensor]) -> None:
        """Look again at what was made, changed or removed, and at what shared memory with it."""
        totals = dict(self.now.totals)
        touched = {*names, *self.sharing(names)}
        for name in touched:
            self._owned.pop(name, None)
            for storage in self._storages.pop(name, ()):
                del self._names[storage][name]
                if not self._names[storage]:
                    del self._names[storage]
                    totals[storage[0]] -= self._bytes.pop(storage)
        there = [name for name in objects if name in touched]
        for name in there:
            found = storages_of(objects[name]) | _storages(self._beside(name))
            self._storages[name] = tuple(found)
            for storage, size in found.items():
                if storage not in self._names:
                    self._names[storage] = {}
                    self._bytes[storage] = size
                    totals[storage[0]] = totals.get(storage[0], 0) + size
                self._names[storage][name] = None
        for name in there:
            self._owned[name] = self._shares(name)
        self.now = Holdings({device: size for device, size in totals.items() if size}, self._by_object())

    def _shares(self, name: str) -> dict[str, int]:
        shares: dict[str, int] = {}
        for storage in self._storages[name]:
            if next(iter(self._names[storage])) == name:
                shares[storage[0]] = shares.get(storage[0], 0) + self._bytes[storage]
        return shares

    def _by_object(self) -> dict[str, tuple[ObjectUse, ...]]:
        uses: dict[str, list[ObjectUse]] = {}
        for name, shares in self._owned.items():
            for device, size in shares.items():
                if size:
                    uses.setdefault(device, []).append(ObjectUse(name, size))
        return {device: tuple(nlargest(MOST_OBJECTS, found, key=lambda use: use.bytes)) for device, found in uses.items()}
