"""What autograd's graphs hold: the nodes behind tensors, what each has saved for backward, and which parameters they
lead to. Any thread; nothing is unpacked, so that hooks of the user's (checkpointing) do not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_PREFIX = "_raw_saved_"
_known: dict[type, tuple[str, ...]] = {}
"""Names of what a kind of node saves."""


def grad_fn(tensor: torch.Tensor) -> Any:
    """The node that a tensor is a result of; None: it has no graph, or one that torch would have to make anew, as that
    of a view that was written into."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a leaf; asking another tensor for it would warn."""
    try:
        return tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    except RuntimeError:  # see `grad_fn`
        return None


def saved_in(node: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a node has saved for backward, each with its name there; none after a backward that has freed
    them."""
    for attribute in _attributes_of(type(node)):
        try:
            values = getattr(node, attribute)
        except (RuntimeError, AttributeError):  # freed
            continue
        for value in values if isinstance(values, (tuple, list)) else (values,):
            for tensor in data_of(value):
                yield attribute.removeprefix(_PREFIX), tensor


def _attributes_of(kind: type) -> tuple[str, ...]:
    if kind not in _known:
        _known[kind] = tuple(name for name in dir(kind) if name.startswith(_PREFIX))
    return _known[kind]


def data_of(saved: Any) -> list[torch.Tensor]:
    """The tensor in a place where one is saved; where hooks have packed it, those that they made of it."""
    try:
        data = getattr(saved, "data", None)
    except RuntimeError:  # freed
        return []
    if isinstance(data, torch.Tensor):
        return [data]
    if isinstance(data, (tuple, list)):
        return [one for one in data if isinstance(one, torch.Tensor)]
    return []
