"""`nn.DataParallel` on virtual GPUs: the batch split over the cards, one card after the other. The thread that runs the
model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.cuda.on_cpu import OnCpu
from devexplorer.core.virtual.cuda.patches import Patches


def imitate_data_parallel(patches: Patches, cards: Cards) -> None:
    """Let a `DataParallel` run each part of the batch with the parameters copied to its card, and bring the results
    together."""

    def forward(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(mode, OnCpu) for mode in _get_current_function_mode_stack()):
            return parallel.module(*inputs, **kwargs)
        devices = [cards.virtual(index) for index in parallel.device_ids]
        first = devices[0]
        for tensor in chain(parallel.module.parameters(), parallel.module.buffers()):
            if tensor.device != first:
                raise RuntimeError(
                    f"module must have its parameters and buffers on device {parallel.src_device_obj} (device_ids[0])"
                    f" but found one of them on device: {cards.spoken(tensor.device)}"
                )
        parts = _scattered((inputs, kwargs), devices, parallel.dim)
        if len(devices) == 1 or len(parts) == 1:
            arguments, named = parts[0]
            return parallel.module(*arguments, **named)
        replicas = [_replica(parallel.module, device) for device, _ in zip(devices, parts, strict=False)]
        results = []
        for replica, device, (arguments, named) in zip(replicas, devices, parts, strict=False):
            before = cards.current
            cards.current = device
            try:
                results.append(replica(*arguments, **named))
            finally:
                cards.current = before
        return _gathered(results, cards.virtual(parallel.output_device), parallel.dim)

    patches.call(nn.DataParallel, "forward", forward)


def _replica(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy for one card, as `torch.nn.parallel.replicate` makes it: of each registered module another object with the
    same attributes, its parameters plain tensors. What a list holds is still the module that was copied."""
    originals = list(module.modules())
    copies: dict[nn.Module, Any] = {original: original._replicate_for_data_parallel() for original in originals}
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for original, copy in copies.items():
        copy._former_parameters = {}
        for name, child in original._modules.items():
            copy._modules[name] = None
            if child is not None:
                setattr(copy, name, copies[child])
        for name, parameter in original._parameters.items():
            if parameter is None:
                copy._parameters[name] = None
                continue
            if parameter not in moved:  # a tied one stays tied
                there = parameter.to(device)
                moved[parameter] = there.view_as(there) if there is parameter else there
            setattr(copy, name, moved[parameter])
            copy._former_parameters[name] = moved[parameter]
        for name, buffer in original._buffers.items():
            if buffer is not None:
                copy._buffers[name] = buffer.to(device)
    result: nn.Module = copies[module]
    return result


def _scattered(value: Any, devices: Sequence[torch.device], dim: int) -> list[Any]:
    """A part for each card: tensors in equal pieces, as many as there are rows for; everything else is given to all."""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    pieces = min((len(tensor.chunk(len(devices), dim)) for tensor in tensors), default=1)
    return [_part(value, index, pieces, device, dim) for index, device in enumerate(devices[:pieces])]


def _part(value: Any, index: int, pieces: int, device: torch.device, dim: int) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.chunk(pieces, dim)[index].to(device), value)


def _gathered(results: list[Any], device: torch.device, dim: int) -> Any:
    def together(*items: Any) -> Any:
        if not isinstance(items[0], torch.Tensor):
            return items[0]
        join = torch.stack if all(item.dim() == 0 for item in items) else partial(torch.cat, dim=dim)
        return join([item.to(device) for item in items])

    return tree_map(together, *results)
