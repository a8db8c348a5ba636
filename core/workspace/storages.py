"""The memory below tensors: which storage, how many bytes, on which device. Reads only. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from devexplorer.core.workspace.walk import every_tensor


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


def bytes_by_device(things: Iterable[nn.Module | Tensor]) -> dict[str, int]:
    """Bytes that these objects hold on each device; a storage that several tensors share counts once."""
    totals: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for thing in things:
        for tensor in every_tensor(thing):
            device, address = str(tensor.device), storage_address(tensor)
            if address is None or (device, address) in seen:
                continue
            seen.add((device, address))
            totals[device] = totals.get(device, 0) + storage_bytes(tensor)
    return totals
