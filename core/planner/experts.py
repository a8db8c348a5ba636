"""Mixtures of experts without values: which expert gets which token is in the values of the router, so every expert
that is expected to be chosen gets an equal share. For models of transformers, in the planner's process."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_CHOICE = "_experts_implementation"
NAME = "devexplorer_experts"
"""Under which transformers knows this way to run them."""
EQUAL_SHARES = "Every expert is as likely as the others, and those that are chosen get equal shares."


def has_experts(model: nn.Module) -> bool:
    """Whether it has any that transformers 5 runs in a way that can be chosen."""
    return any(_configs(model))


def _configs(model: nn.Module) -> Iterator[Any]:
    """What says how each layer of experts is run."""
    if "transformers.integrations.moe" in sys.modules:
        for layer in model.modules():
            config = getattr(layer, "config", None)
            if hasattr(layer, "has_gate") and hasattr(layer, "num_experts") and hasattr(config, _CHOICE):
                yield config


@contextmanager
def equal_shares(model: nn.Module) -> Iterator[None]:
    """Have its experts run so."""
    before = {id(config): (config, getattr(config, _CHOICE)) for config in _configs(model)}
    if before:
        sys.modules["transformers.integrations.moe"].ALL_EXPERTS_FUNCTIONS.register(NAME, experts)
    for config, _ in before.values():
        setattr(config, _CHOICE, NAME)
    try:
        yield
    finally:
        for config, own in before.values():
            setattr(config, _CHOICE, own)


def chosen_experts(experts: int, tokens: int, each: int) -> int:
    """How many of them get a token, where every token takes `each` different ones and all are as likely."""
    return min(experts, math.ceil(experts * (1 - (1 - each / experts) ** tokens)))


def experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The experts of one layer: those that are expected to be chosen get equal shares of the tokens."""
    tokens, each = top_k_index.shape
    count = chosen_experts(self.num_experts, tokens, each)
    rows = -(-tokens * each // count)
    order = torch.empty(count * rows, dtype=torch.int64, device=hidden_states.device)
    given = hidden_states.index_select(0, order).view(count, rows, -1)
    first = "gate_up_proj" if self.has_gate else "up_proj"
    wide = _expert_product(self, first, given, count)
    wide = self._apply_gate(wide) if self.has_gate else self.act_fn(wide)
    narrow = _expert_product(self, "down_proj", wide, count).view(count * rows, -1)[: tokens * each]
    weighted = narrow * top_k_weights.reshape(-1, 1).to(narrow.dtype)
    return weighted.view(tokens, each, -1).sum(1).to(hidden_states.dtype)


def _expert_product(self: Any, name: str, given: Tensor, count: int) -> Tensor:
    packed = getattr(self, f"{name}_packed", None)
    if packed is not None:
        return packed(given, count)  # type: ignore[no-any-return]
    weight = getattr(self, name)[:count]
    product = torch.bmm(given, weight if self.is_transposed else weight.transpose(1, 2))
    bias = getattr(self, f"{name}_bias", None)
    return product if bias is None else product + bias[:count, None]
