"""The memory below tensors: which storage, how many bytes, on which device, shared by whom. Reads only. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor, nn

from devexplorer.core.workspace.walk import device_id, every_tensor

Storage = tuple[str, int]
"""Device and address."""


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
    found: dict[Storage, int] = {}
    for tensor in every_tensor(thing):
        address = storage_address(tensor)
        if address is not None:
            found[device_id(tensor.device), address] = storage_bytes(tensor)
    return found


class Held:
    """Bytes that named objects hold on each device, a shared storage once. Only objects that are named are looked at again."""

    def __init__(self) -> None:
        self.totals: Mapping[str, int] = {}
        """Device -> bytes; never changed after it was handed out."""
        self._storages: dict[str, tuple[Storage, ...]] = {}
        self._names: dict[Storage, set[str]] = {}
        self._bytes: dict[Storage, int] = {}

    def sharing(self, names: Collection[str]) -> tuple[str, ...]:
        """Other objects that shared memory with these when they were last looked at."""
        known = set(names)
        found = {other for name in known for storage in self._storages.get(name, ()) for other in self._names[storage]}
        return tuple(sorted(found - known))

    def renew(self, names: Collection[str], objects: Mapping[str, nn.Module | Tensor]) -> None:
        """Look again at what was made, changed or removed, and at what shared memory with it."""
        totals = dict(self.totals)
        touched = {*names, *self.sharing(names)}
        for name in touched:
            for storage in self._storages.pop(name, ()):
                self._names[storage].discard(name)
                if not self._names[storage]:
                    del self._names[storage]
                    totals[storage[0]] -= self._bytes.pop(storage)
        for name in touched & objects.keys():
            found = storages_of(objects[name])
            self._storages[name] = tuple(found)
            for storage, size in found.items():
                if storage not in self._names:
                    self._names[storage] = set()
                    self._bytes[storage] = size
                    totals[storage[0]] = totals.get(storage[0], 0) + size
                self._names[storage].add(name)
        self.totals = {device: size for device, size in totals.items() if size}
