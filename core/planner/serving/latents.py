"""Attention to latents (MLA) as serving engines compute it, for models of transformers that run without values. In the
planner's process.

The cache holds a latent and a rotary part for each token, shared by all heads. transformers' models expand both into
keys and values of every head, for the whole context and each new token. Engines do so for prompts alone. For a later
token they take the query into the latents' space instead (the projection of the keys is absorbed by the query, that of
the values by the output), and attend to the latents as they lie: `attn_impl = "absorb"` in inference/model.py of
DeepSeek-V3, vllm/v1/attention/backends/mla/common.py of vLLM.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from devexplorer.core.planner.serving.kernels import packed_product

_library: Any = None


def _install() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("devexplorer_latents", "DEF")
        _library.define("attention(Tensor query, Tensor latents, Tensor rotary) -> Tensor")
        _library.impl("attention", _without_values, "Meta")
        register_flop_formula(torch.ops.devexplorer_latents.attention, get_raw=True)(_flop)


def _without_values(query: Tensor, latents: Tensor, rotary: Tensor) -> Tensor:
    return query.new_empty((*query.shape[:-1], latents.shape[-1]))


def _flop(query: Tensor, latents: Tensor, rotary: Tensor, *_: Any, **__: Any) -> int:
    rows = query.shape[0] * query.shape[1] * query.shape[2] * latents.shape[2]
    return 2 * rows * int(query.shape[-1] + latents.shape[-1])


class Latents:
    """The layers of one model that keep latents."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        """From now on they attend as engines do; `dtype` is that of activations."""
        self._dtype = dtype
        self._layers: list[Any] = [module for module in model.modules() if keeps_latents(module)]
        self._absorbs = False
        for layer in self._layers:
            _install()
            layer.expand_kv = self._expander(layer.expand_kv)
            layer.latents = self

    def absorb(self, on: bool) -> None:
        """Whether the next tokens come one by one."""
        self._absorbs = on

    def _expander(self, expand: Any) -> Any:
        def expanded(latents: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
            if self._absorbs:
                return latents, rotary
            keys, values = expand(latents.to(self._dtype), rotary.to(self._dtype))
            return keys, values

        return expanded

    def attention(self, layer: Any, query: Tensor, latents: Tensor, rotary: Tensor) -> Tensor | None:
        """Of queries (B, H, L, E) to latents (B, 1, S, C): (B, L, H, V). None where keys were expanded."""
        if not self._absorbs:
            return None
        weights = [weight for weight in layer.kv_b_proj.parameters(recurse=False) if weight.dim() > 1]
        plain, turned = query.split([layer.qk_nope_head_dim, layer.qk_rope_head_dim], dim=-1)
        plain = plain.permute(1, 0, 2, 3).flatten(1, 2)
        absorbed = packed_product(plain, weights, latents.shape[-1], query.dtype)  # keys' and values': read once
        absorbed = absorbed.unflatten(1, (query.shape[0], -1)).transpose(0, 1)
        found = torch.ops.devexplorer_latents.attention(torch.cat((absorbed, turned), dim=-1), latents, rotary)
        found = found.permute(1, 0, 2, 3).flatten(1, 2)
        values = packed_product(found, [], layer.v_head_dim, query.dtype)
        result: Tensor = values.unflatten(1, (query.shape[0], -1)).permute(1, 2, 0, 3).contiguous()
        return result


def keeps_latents(module: nn.Module) -> bool:
    """Whether it is a layer of attention whose cache holds latents."""
    return hasattr(module, "expand_kv") and hasattr(module, "kv_b_proj")
