"""What is registered in a model at one moment: its modules, its parameters and buffers, and the memory that they reach.
The main thread.

Taken once for all rules of a step: a model can have ten thousand modules, each with something to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.static.model_context import joined
from devexplorer.core.models.storages import storage_address
from devexplorer.core.models.walk import is_uninitialised, named_modules


class Registered(NamedTuple):
    """A parameter or buffer under one of its names."""

    path: str
    tensor: Tensor
    is_buffer: bool


class Memory(NamedTuple):
    """The bytes of one storage that a tensor reaches."""

    device: str
    storage: int
    first: int
    last: int

    def shares(self, other: Memory) -> bool:
        """Whether both reach a byte together, as far as first and last say."""
        return self[:2] == other[:2] and self.first <= other.last and other.first <= self.last


def memory_of(tensor: Tensor) -> Memory | None:
    """Which bytes a tensor reaches; None where it has none, or none of its own."""
    if is_uninitialised(tensor) or tensor.layout is not torch.strided or tensor.is_nested or tensor.numel() == 0:
        return None
    address = storage_address(tensor)
    if not address:
        return None
    first = int(tensor.storage_offset()) * tensor.element_size()
    reach = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Memory(str(tensor.device), address, first, first + (int(reach) + 1) * tensor.element_size() - 1)


class Registry:
    """Holds the modules and tensors for as long as it lives, which is one step of the checks."""

    def __init__(self, model: nn.Module) -> None:
        modules = named_modules(model)
        self.tensors = [
            Registered(joined(path, name), tensor, register is module._buffers)
            for path, module in modules
            for register in (module._parameters, module._buffers)
            for name, tensor in register.items()
            if tensor is not None
        ]
        """Every parameter and buffer under each of its names."""
        self.by_path = {item.path: item for item in self.tensors}
        self.module_ids = {id(module) for _, module in modules}
        self.tensor_ids = {id(item.tensor) for item in self.tensors}
        self.memory = {item.path: memory_of(item.tensor) for item in self.tensors}
        """Path -> what it reaches; None: nothing."""
        self._by_storage: dict[tuple[str, int], list[tuple[Memory, Registered]]] = {}
        for item in self.tensors:
            memory = self.memory[item.path]
            if memory is not None:
                self._by_storage.setdefault(memory[:2], []).append((memory, item))

    def sharing(self, tensor: Tensor) -> list[Registered]:
        """Registered tensors that share bytes with this one."""
        memory = memory_of(tensor)
        if memory is None:
            return []
        return [item for other, item in self._by_storage.get(memory[:2], ()) if memory.shares(other)]

    def groups(self) -> list[list[Registered]]:
        """Registered tensors that share memory under several names, one Parameter under several names left out."""
        return [group for entries in self._by_storage.values() if len(entries) > 1 for group in _overlapping(entries)]


def _overlapping(entries: Sequence[tuple[Memory, Registered]]) -> Iterator[list[Registered]]:
    """Those of one storage that share bytes with the first of them, in their order."""
    for cluster in _clusters([memory for memory, _ in entries]):
        left = [entries[index] for index in cluster]
        while left:
            memory, item = left[0]
            group = [
                other
                for reach, other in left[1:]
                if memory.shares(reach) and (other.is_buffer or other.tensor is not item.tensor)
            ]
            left = [entry for entry in left if not memory.shares(entry[0])]
            if group:
                yield [item, *group]


def _clusters(memories: Sequence[Memory]) -> list[list[int]]:
    """Indices of what overlaps, directly or through others: a storage can be cut into thousands of parts that do
    not."""
    found: list[list[int]] = []
    end = -1
    for index in sorted(range(len(memories)), key=lambda index: memories[index].first):
        if memories[index].first > end:
            found.append([])
        found[-1].append(index)
        end = max(end, memories[index].last)
    return sorted(sorted(cluster) for cluster in found)
