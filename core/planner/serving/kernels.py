"""Operations of a serving engine, as one kernel each, for models of transformers that run without values. In the
planner's process.

Attention reads keys and values where they lie in the cache, in the cache's own dtype, heads shared between queries as
they are, a sliding window as what a kernel visits: neither masks nor copies of the cache. Packed weights: one product
that reads them as they are stored.
"""

from __future__ import annotations

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
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
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


def packed_product(x: Tensor, weights: Sequence[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    """x times weights that are stored in any form, in this dtype."""
    return torch.ops.devexplorer_serving.packed_product(x, list(weights), out_features, dtype)  # type: ignore[no-any-return]


def _without_values(x: Tensor, weights: Sequence[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features), dtype=dtype)


def _packed_flop(x: Tensor, weights: Sequence[Tensor], out_features: int, *_: Any, **__: Any) -> int:
    return 2 * x.numel() * out_features
