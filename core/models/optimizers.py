"""Makes the optimizers of `core.base.optimizers`. Jobs thread, or that of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.base import OPTIMIZERS


def make_optimizer(kind: str, parameters: Iterable[Tensor], **options: Any) -> torch.optim.Optimizer:
    """An optimizer of this kind over the parameters; `options` are those of its class, `lr` among them."""
    known = OPTIMIZERS[kind]
    made: torch.optim.Optimizer = getattr(torch.optim, known.class_name)(parameters, **known.options, **options)
    return made


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """The kind of an optimizer; `adam` for a class that is not in the table."""
    momentum = bool(optimizer.param_groups[0].get("momentum"))
    for kind, known in OPTIMIZERS.items():
        if type(optimizer) is getattr(torch.optim, known.class_name) and momentum == ("momentum" in known.options):
            return kind
    return "adam"


def held_by(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Every parameter that it changes."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def left_behind(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], torch.device | None]:
    """The state that is on another device than its parameter, and the device of the last such parameter. A step counter
    may stay on the CPU."""
    behind, device = [], None
    for parameter, name, value in state_tensors(optimizer):
        if not (name == "step" and value.dim() == 0) and value.device != parameter.device:
            behind.append(value)
            device = parameter.device
    return behind, device


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[Tensor, str, Tensor]]:
    """Its state: (parameter, key, tensor), counters of steps included."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                yield parameter, key, value
