"""What a model takes, and what belongs to it: parameters, buffers, gradients, optimizer state, by device. The thread
that is observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch import nn

from devexplorer.core.observe.memory import bytes_here, device_of
from devexplorer.core.observe.records import ParameterPlace

MOST_PLACES = 10_000


class ModelWeight:
    """What a model and what belongs to it takes, by device."""

    def __init__(self) -> None:
        self.parameters = 0
        self.packed = False
        """Some weights are objects of C++ that do not say what they take."""
        self.modules: frozenset[int] = frozenset()
        self.devices: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        self.gradients: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.places: list[ParameterPlace] = []


def weighed(model: Any, optimizers: list[Any], former: ModelWeight | None) -> ModelWeight:
    """`former`: the time before; what is gone since then is as it was."""
    weight = ModelWeight()
    modules = list(nn.Module.modules(model))
    weight.modules = frozenset(id(module) for module in modules if module is not model)
    for module in modules:
        weight.packed = weight.packed or any(isinstance(value, torch.ScriptObject) for value in vars(module).values())
    for name, tensor in _tensors(model):
        device, size = device_of(tensor), bytes_here(tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        weight.devices[device] += size
        weight.dtypes[dtype] += size
        if not isinstance(tensor, nn.Parameter):
            continue
        weight.parameters += tensor.numel()
        gradient = tensor.grad
        states: Counter[str] = Counter()
        for optimizer in optimizers:
            for value in optimizer.state.get(tensor, {}).values():
                if isinstance(value, torch.Tensor):
                    states[device_of(value)] += bytes_here(value)
        weight.states.update(states)
        if gradient is not None:
            weight.gradients[device_of(gradient)] += bytes_here(gradient)
        if len(weight.places) < MOST_PLACES:
            weight.places.append(
                ParameterPlace(
                    name=name,
                    device=device,
                    dtype=dtype,
                    bytes=size,
                    gradient_bytes=0 if gradient is None else bytes_here(gradient),
                    gradient_device=None if gradient is None else device_of(gradient),
                    optimizer_bytes=states.total(),
                    optimizer_device=states.most_common(1)[0][0] if states else None,
                )
            )
    if former is not None:
        _keep_what_is_gone(weight, former)
    return weight


def _keep_what_is_gone(weight: ModelWeight, former: ModelWeight) -> None:
    """Gradients are freed between steps, and an optimizer may be gone before its model is."""
    kept: list[str] = []
    if former.gradients and not weight.gradients:
        weight.gradients = former.gradients
        kept += ["gradient_bytes", "gradient_device"]
    if former.states and not weight.states:
        weight.states = former.states
        kept += ["optimizer_bytes", "optimizer_device"]
    before = {place.name: place for place in former.places}
    for number, place in enumerate(weight.places):
        known = before.get(place.name)
        if kept and known is not None:
            weight.places[number] = msgspec.structs.replace(place, **{name: getattr(known, name) for name in kept})


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and buffers, each once; lazy ones have no size yet. By torch's own methods: the model can have some of
    the script's."""
    for name, tensor in [*nn.Module.named_parameters(model), *nn.Module.named_buffers(model)]:
        if not nn.parameter.is_lazy(tensor):
            yield name, tensor
