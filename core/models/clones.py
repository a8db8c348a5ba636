"""Copies of a model with other tensors in the place of its own. No thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from devexplorer.core.models.copies import deep_copy


def twin(model: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model with other tensors in the place of its own: what is tied stays tied, and no value is
    copied."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in memo:
            made = make(tensor)
            memo[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
    second: nn.Module = deep_copy(model, memo)
    return second
