"""What all static rules look at: the model, its registered tensors, and where a path of it comes from. The main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.book import Book
from devexplorer.core.doctor.origins import Origins
from devexplorer.core.doctor.places import Place
from devexplorer.core.doctor.reading import assigned
from devexplorer.core.workspace.storages import storage_address
from devexplorer.core.workspace.walk import is_uninitialised, named_modules, size_of


class Registered(NamedTuple):
    """A parameter or buffer under one of its names."""

    path: str
    module: nn.Module
    name: str
    tensor: Tensor
    is_buffer: bool

    @property
    def kind(self) -> str:
        """`parameter` or `buffer`."""
        return "buffer" if self.is_buffer else "parameter"


class Memory(NamedTuple):
    """The bytes of one storage that a tensor reaches."""

    device: str
    storage: int
    first: int
    last: int

    def shares(self, other: Memory) -> bool:
        """Whether both reach a byte together, as far as first and last say."""
        return self[:2] == other[:2] and self.first <= other.last and other.first <= self.last


class Scene:
    """A model under examination."""

    def __init__(self, model: nn.Module, origins: Origins, book: Book) -> None:
        self.model, self.origins, self.book = model, origins, book

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every registered module with its path, as it is now."""
        return named_modules(self.model)

    def registered(self) -> list[Registered]:
        """Every parameter and buffer under each of its names, as it is now."""
        return [
            Registered(joined(path, name), module, name, tensor, register is module._buffers)
            for path, module in self.modules
            for register in (module._parameters, module._buffers)
            for name, tensor in register.items()
            if tensor is not None
        ]

    def place(self, path: str) -> Place | None:
        """The line that set what stands at a path of the model, or else what holds it."""
        names = path.split(".")
        owners: list[nn.Module] = [self.model]
        for name in names[:-1]:
            child = owners[-1]._modules.get(name)
            if child is None:
                break
            owners.append(child)
        if len(owners) == len(names):
            found = self.origins.attribute(owners[-1], names[-1])
            if found is not None:
                return found
        for index in range(len(owners) - 1, -1, -1):  # `self.layer.weight = …` in the class of what holds the layer
            dotted = ".".join(names[index:])
            found = assigned(type(owners[index]), dotted) or assigned(type(owners[index]), f"{dotted}.data")
            if found is not None:
                return found
        for index in range(len(owners) - 1, -1, -1):
            found = self.origins.attribute(owners[index], names[index])
            if found is not None:
                return found
        return None


def joined(path: str, name: str) -> str:
    """`blocks.0` and `scale` → `blocks.0.scale`."""
    return f"{path}.{name}" if path else name


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


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of the values of all of them; lazy ones have none yet."""
    return sum(size_of(tensor) for tensor in tensors if not is_uninitialised(tensor) and not tensor.is_nested)


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b and c`, or `a, b and 4 others`."""
    names = list(dict.fromkeys(names))
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def is_same_device(device: torch.device, other: torch.device) -> bool:
    """Whether both mean one device; `vgpu` is `vgpu:0`."""
    return device.type == other.type and (device.index or 0) == (other.index or 0)
