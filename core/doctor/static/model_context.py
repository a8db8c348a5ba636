"""What all static rules look at: the model, and where a path of it comes from. The main thread."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models.class_source import assigned
from devexplorer.core.models.walk import is_uninitialised, named_modules, size_of


class ModelContext:
    """A model under examination."""

    def __init__(self, model: nn.Module, origins: Origins, collector: FindingCollector) -> None:
        self.model, self.origins, self.collector = model, origins, collector

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every registered module with its path, as it is now."""
        return named_modules(self.model)

    def place(self, path: str) -> SourceLocation | None:
        """The line that set what is at a path of the model, or else what holds it."""
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


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of the values of all of them; lazy ones have none yet."""
    return sum(size_of(tensor) for tensor in tensors if not is_uninitialised(tensor) and not tensor.is_nested)


MOST_LISTED = 3
"""Names in a sentence before the others are counted."""


def listed(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a, b and c`, or `a, b and 4 others`."""
    names = list(dict.fromkeys(names))
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def is_same_device(device: torch.device, other: torch.device) -> bool:
    """Whether both mean one device; `vgpu` is `vgpu:0`."""
    return device.type == other.type and (device.index or 0) == (other.index or 0)
