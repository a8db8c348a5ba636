"""`torch.load(file, map_location="vgpu:1")`: storages that report a virtual GPU as their device. Any thread."""

from __future__ import annotations

import time
from typing import Any

import torch

from devexplorer.core.virtual.device.accounting import KIND, count_storage, gpu_of
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators.handlers import charge_copy


class VirtualStorage(torch.UntypedStorage):
    """CPU memory that reports a virtual GPU as its device and is counted there.

    torch's own `UntypedStorage(size, device="vgpu:1")` has no allocator to ask, and would end the process.
    """

    _gpu: VirtualGpu

    def __new__(cls, nbytes: int = 0, *, device: Any = KIND) -> VirtualStorage:
        """`nbytes` without values. Raises torch's `OutOfMemoryError` when the device is full."""
        gpu = gpu_of(torch.device(device))
        made = super().__new__(cls, nbytes)  # type: ignore[call-arg]  # torch publishes no types for it
        count_storage(made, gpu)
        made._gpu = gpu
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # torch's is read-only as well
        """The virtual GPU."""
        return torch.device(KIND, self._gpu.index)

    def __reduce__(self) -> Any:
        # In a file it is the CPU's, as every tensor on a virtual GPU is.
        host: torch.UntypedStorage = self.cpu()  # type: ignore[no-untyped-call]
        return torch.Tensor.untyped_storage, (torch.empty(0, dtype=torch.uint8).set_(host),)


def register() -> None:
    """Let torch load to virtual GPUs this way, also where `map_location` is a function that calls `storage.vgpu(1)`."""
    torch.serialization.register_package(19, lambda storage: None, _restore)  # before torch's own for such devices (23)
    setattr(torch.UntypedStorage, KIND, _move_storage)
    # torch's own ends the process for a virtual GPU
    torch.UntypedStorage.__new__ = _storage  # type: ignore[method-assign]


def _storage(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """`torch.UntypedStorage(size or values, device=...)`."""
    make: Any = torch._C.StorageBase.__new__
    if device is None:
        return make(cls, *args, **kwargs)
    where = torch.device(device)
    if where.type != KIND:
        return make(cls, *args, device=where, **kwargs)
    if args and not isinstance(args[0], int):
        return _move_storage(torch.UntypedStorage(*args, **kwargs), where)
    return VirtualStorage(*args, **kwargs, device=where)


def _restore(storage: Any, location: str) -> Any:
    return _move_storage(storage, location) if location.partition(":")[0] == KIND else None


def _move_storage(
    storage: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> torch.UntypedStorage:
    where = torch.device(KIND, device or 0) if isinstance(device, int | None) else torch.device(device)
    if storage.device == where:
        return storage
    moved = VirtualStorage(storage.nbytes(), device=where)
    began = time.perf_counter()
    moved.copy_(storage)
    charge_copy(getattr(storage, "_gpu", None), moved._gpu, storage.nbytes(), time.perf_counter() - began)
    return moved
