"""Operations of a serving engine, as one kernel each, for models of transformers that run without values. In the
planner's process.

Attention reads keys and values where they lie in the cache, in the cache's own dtype, heads shared between queries as
they are, a sliding window as what a kernel visits: neither masks nor copies of the cache. Experts: the products of the
experts that are expected to be chosen, which only their values could tell. Packed weights: one product that reads them
as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry, register_flop_formula

NAME = "devexplorer_serving"
"""Under which transformers knows them."""
_SCHEMA = "packed_product(Tensor x, Tensor[] weights, int out_features, ScalarType dtype) -> Tensor"
_library: Any = None

aten = torch.ops.aten


def install() -> None:
    """Let transformers find them, once a process."""
    global _library
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    ALL_EXPERTS_FUNCTIONS.register(NAME, experts)
    if _library is None:
        _library = torch.library.Library(NAME, "DEF")
        _library.define(_SCHEMA)
        _library.impl("packed_product", _without_values, "Meta")
        register_flop_formula(torch.ops.devexplorer_serving.packed_product, get_raw=True)(_packed_flop)
    assert torch.ops.devexplorer_serving.packed_product in flop_registry


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of queries (B, H, L, E) to keys (B, G, S, E): one fused kernel without a mask; or to latents."""
    latents = getattr(module, "latents", None)
    found = None if latents is None else latents.attention(module, query, key, value)
    if found is not None:
        return found, None
    window = sliding_window or getattr(module, "sliding_window", None)
    if isinstance(window, int) and query.shape[2] > 1 and key.shape[2] > window:
        key, value = key[:, :, -window:], value[:, :, -window:]  # each query visits as many
    causal = query.shape[2] > 1
    output = aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, None, 0.0, causal, False, scale=scaling
    )[0]
    return output.transpose(1, 2).contiguous(), None


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


def packed_product(x: Tensor, weights: Sequence[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    """x times weights that are stored in any form, in this dtype."""
    return torch.ops.devexplorer_serving.packed_product(x, list(weights), out_features, dtype)  # type: ignore[no-any-return]


def _without_values(x: Tensor, weights: Sequence[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features), dtype=dtype)


def _packed_flop(x: Tensor, weights: Sequence[Tensor], out_features: int, *_: Any, **__: Any) -> int:
    return 2 * x.numel() * out_features
