"""Copies of trained modules that are meant to get no gradient: target networks, teachers, averages of weights. The
calling thread."""

from __future__ import annotations

import re
from collections.abc import Collection

import torch
from torch import Tensor, nn

from devexplorer.core.models import named_modules
from devexplorer.core.virtual.operators.tensor import VirtualTensor

_NAMES = re.compile(r"target|teacher|momentum|ema|shadow|average|reference|frozen|_k$", re.IGNORECASE)


def copies(model: nn.Module, without: Collection[int]) -> set[int]:
    """`id()` of those parameters among `without` (the ids of all without a gradient) that belong to a second copy of
    something trained.

    A copy has the class, the names and the shapes of another module that gets gradients, and its values, or a name that
    says so. Layers of a list are no copies of one another, whatever their values are.
    """
    by_kind: dict[type, list[tuple[str, nn.Module]]] = {}
    for path, module in named_modules(model):
        if path and not path.rpartition(".")[2].isdigit() and next(module.parameters(), None) is not None:
            by_kind.setdefault(type(module), []).append((path, module))
    found: set[int] = set()
    for modules in by_kind.values():
        idle = [
            (path, item) for path, item in modules if all(id(parameter) in without for parameter in item.parameters())
        ]
        trained = [item for _, item in modules if not any(id(parameter) in without for parameter in item.parameters())]
        for path, module in idle:
            if any(_same(module, other, by_name=_NAMES.search(path) is not None) for other in trained):
                found.update(id(parameter) for parameter in module.parameters())
    return found


def _same(module: nn.Module, other: nn.Module, *, by_name: bool) -> bool:
    item, two = dict(module.named_parameters()), dict(other.named_parameters())
    if list(item) != list(two) or any(item[name].shape != two[name].shape for name in item):
        return False
    if by_name:
        return True
    varied = False
    for name, parameter in item.items():
        here, there = _values(parameter), _values(two[name])
        if here.is_meta or there.is_meta or here.device != there.device or not torch.equal(here, there):
            return False
        varied = varied or bool((here != here.flatten()[:1]).any())
    return varied


def _values(tensor: Tensor) -> Tensor:
    return (tensor._inner if type(tensor) is VirtualTensor else tensor).detach()
