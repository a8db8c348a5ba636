"""Layers that are alike: two of each kind run, and the second stands for all others. In the planner's process.

A model of 80 equal layers takes as long as one of two so. In inference nothing of a layer but its output and its cache
outlives it, so the peak of memory does not depend on how many run; the parameters and the cache of the others are held
all the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from devexplorer.core.models import parameters_and_buffers

SIMPLE = (bool, int, float, str, type(None))
RUN = 2
"""Of each kind."""
OWN = ("layer_idx", "layer_id", "layer_index")
"""Attributes that differ between layers that are alike."""


@dataclass
class Depth:
    """Which layers of a model were taken out."""

    path: str = ""
    """Of the list of layers; empty: nothing was taken out."""
    times: dict[str, int] = field(default_factory=dict)
    """Name of a layer that runs -> for how many it stands."""
    like: tuple[int, ...] = ()
    """For each layer, the number of the one that runs in its place."""
    dropped: tuple[Tensor, ...] = ()
    """Parameters and buffers that only layers that do not run have."""
    _all: dict[str, Any] = field(default_factory=dict)

    def restore(self, model: nn.Module) -> Depth:
        """Put every layer back."""
        if self.path:
            model.get_submodule(self.path)._modules = self._all
        return Depth()


def without_repeats(model: nn.Module, cache_layers: list[Any]) -> Depth:
    """Take out all but the first two of each kind; `cache_layers` are those of a cache of the model."""
    path, layers = next(
        (
            (path, module)
            for path, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and len(module) == len(cache_layers) > 1
        ),
        ("", nn.ModuleList()),
    )
    kinds: dict[Hashable, list[int]] = {}
    for index, (layer, cached) in enumerate(zip(layers, cache_layers, strict=bool(path))):
        kinds.setdefault(_signature(layer, cached), []).append(index)
    if all(len(same) <= RUN for same in kinds.values()):
        return Depth()
    like = {index: index if index in same[:RUN] else same[RUN - 1] for same in kinds.values() for index in same}
    before, everything = parameters_and_buffers(model), layers._modules
    layers._modules = {str(index): everything[str(index)] for index in sorted(set(like.values()))}
    kept = set(map(id, parameters_and_buffers(model)))
    return Depth(
        path,
        {name: list(like.values()).count(int(name)) for name in layers._modules},
        tuple(like[index] for index in sorted(like)),
        tuple(tensor for tensor in before if id(tensor) not in kept),
        everything,
    )


def _signature(layer: nn.Module, cached: Any) -> Hashable:
    """What decides which operations it runs: classes, plain attributes, shapes, and what its cache keeps."""
    modules = tuple(
        (path, type(module).__name__, _plain(vars(module)))
        for path, module in layer.named_modules(remove_duplicate=False)
    )
    tensors = tuple(
        (path, tuple(tensor.shape), str(tensor.dtype), str(tensor.device))
        for named in (layer.named_parameters, layer.named_buffers)
        for path, tensor in named(remove_duplicate=False)
    )
    return modules, tensors, type(cached).__name__, getattr(cached, "sliding_window", None)


def _plain(attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in attributes.items() if name not in OWN and isinstance(value, SIMPLE))
