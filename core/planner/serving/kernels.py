"""What a serving engine has as one kernel each, for models of transformers that run without values: attention to
latents (MLA), the scans of state-space layers, layers whose weights are stored in fewer bits. In the planner's process.

Attention reads keys and values where they lie in the cache, in the cache's own dtype, heads shared between queries as
they are, a sliding window as what a kernel visits: neither masks nor copies of the cache. Packed weights: one product
that reads them as they are stored.

MLA: the cache holds a latent and a rotary part for each token, shared by all heads. transformers' models expand both
into keys and values of every head, for the whole context and each new token. Engines do so for prompts alone. For a
later token they take the query into the latents' space instead (the projection of the keys is absorbed by the query,
that of the values by the output), and attend to the latents as they lie: `attn_impl = "absorb"` in inference/model.py
of DeepSeek-V3, vllm/v1/attention/backends/mla/common.py of vLLM.

Scans: without mamba-ssm transformers takes them apart: Mamba's scan into a loop over the tokens, that of Mamba 2 into
products of chunks whose factors are written out, an update into half a dozen operations that each write the state.

Mamba: 9 floating-point operations for each element of the state and token
(https://github.com/state-spaces/mamba/issues/110), in float32. Mamba 2: the products within a chunk and with the states
between chunks, on the units of the activations' dtype (mamba_ssm/ops/triton/ssd_combined.py), which also writes the
products of each chunk and the states between chunks.

Quantised layers: a product reads weights as they are stored, as Marlin and similar kernels do, and computes in the
dtype of the activations; or in 8 bits, where the method quantises activations too and the card multiplies such numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from devexplorer.core.planner.serving.storage import ACTIVATIONS, LayerPart, Scheme

NAME = "devexplorer_serving"
"""Under which transformers knows them."""
operators = torch.ops.devexplorer_serving
_library: Any = None


def install() -> None:
    """Let transformers find them, once a process."""
    global _library
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    if _library is not None:
        return
    _library = torch.library.Library(NAME, "DEF")
    for schema, without_values, flop in (
        ("packed_product(Tensor x, Tensor[] weights, int out, ScalarType dtype) -> Tensor", _packed, _packed_flop),
        ("latent_attention(Tensor query, Tensor latents, Tensor rotary) -> Tensor", _attended, _attended_flop),
        ("scan(Tensor A, Tensor x, Tensor[] others) -> (Tensor, Tensor)", _scanned, _scan_flop),
        ("chunks(Tensor x, Tensor B, int chunk, Tensor[] others) -> Tensor[]", _chunked, _chunks_flop),
        ("update(Tensor state, Tensor written, Tensor x, Tensor[] others) -> Tensor", _updated, _update_flop),
    ):
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, without_values, "Meta")
        register_flop_formula(getattr(operators, name), get_raw=True)(flop)


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
    attend = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    output = attend(query, key, value, None, 0.0, causal, False, scale=scaling)[0]
    return output.transpose(1, 2).contiguous(), None


def packed_product(x: Tensor, weights: Iterable[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    """x times weights that are stored in any form, in this dtype."""
    return operators.packed_product(x, list(weights), out_features, dtype)  # type: ignore[no-any-return]


def _packed(x: Tensor, weights: list[Tensor], out_features: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features), dtype=dtype)


def _packed_flop(x: Tensor, weights: list[Tensor], out_features: int, *_: Any, **__: Any) -> int:
    return 2 * x.numel() * out_features


def _attended(query: Tensor, latents: Tensor, rotary: Tensor) -> Tensor:
    return query.new_empty((*query.shape[:-1], latents.shape[-1]))


def _attended_flop(query: Tensor, latents: Tensor, rotary: Tensor, *_: Any, **__: Any) -> int:
    return 2 * query[..., 0].numel() * latents.shape[2] * (query.shape[-1] + latents.shape[-1])


class Latents:
    """The layers of one model that keep latents."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        """From now on they attend as engines do; `dtype` is that of activations."""
        self._dtype = dtype
        self._layers: list[Any] = [module for module in model.modules() if keeps_latents(module)]
        self._absorbs = False
        for layer in self._layers:
            layer.expand_kv = self._expander(layer.expand_kv)
            layer.latents = self

    def absorb(self, on: bool) -> None:
        """Whether the next tokens come one by one."""
        self._absorbs = on

    def _expander(self, expand: Any) -> Any:
        def expanded(latents: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
            if self._absorbs:
                return latents, rotary
            return expand(latents.to(self._dtype), rotary.to(self._dtype))  # type: ignore[no-any-return]

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
        found = operators.latent_attention(torch.cat((absorbed, turned), dim=-1), latents, rotary)
        found = found.permute(1, 0, 2, 3).flatten(1, 2)
        values = packed_product(found, [], layer.v_head_dim, query.dtype)
        result: Tensor = values.unflatten(1, (query.shape[0], -1)).permute(1, 2, 0, 3).contiguous()
        return result


def keeps_latents(module: nn.Module) -> bool:
    """Whether it is a layer of attention whose cache holds latents."""
    return hasattr(module, "expand_kv") and hasattr(module, "kv_b_proj")


FLOP = 9
"""Of a scan, for each element of the state and token."""


def _scanned(a: Tensor, x: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:2], a.shape[-1]), dtype=a.dtype)


def _scan_flop(a: Tensor, x: Tensor, *_: Any, **__: Any) -> int:
    return FLOP * x.numel() * int(a.shape[-1])


def _scan(hidden_states: Tensor, dt: Tensor, A: Tensor, *others: Any, **given: Any) -> Any:  # noqa: N803
    output, state = operators.scan(A, hidden_states, [dt, *_tensors(*others, *given.values())])
    return (output, state) if given.get("return_last_state") else output


def _chunked(x: Tensor, b: Tensor, chunk: int, others: list[Tensor]) -> list[Tensor]:
    """Output, the last state; states between chunks and products within them, which other kernels read."""
    batch, length, heads, width = x.shape
    groups, size = b.shape[-2:]
    chunks = -(-length // chunk)
    return [
        torch.empty_like(x, memory_format=torch.contiguous_format),
        x.new_empty((batch, heads, width, size), dtype=torch.float32),
        x.new_empty((batch, chunks, heads, width, size), dtype=torch.float32),
        x.new_empty((batch, chunks, groups, chunk, chunk), dtype=torch.float32),
    ]


def _chunks_flop(x: Tensor, b: Tensor, chunk: int, *_: Any, **__: Any) -> int:
    groups, size = b.shape[-2:]
    tokens, heads, width = x[..., 0, 0].numel(), *x.shape[-2:]
    within = chunk * (groups * size + heads * width)
    return 2 * tokens * (within + 2 * heads * width * int(size))


def _scan_chunks(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    chunk_size: int,
    **given: Any,
) -> Any:
    others = [dt, A, C, *_tensors(*given.values())]
    output, state, *_ = operators.chunks(hidden_states, B, chunk_size, others)
    return (output, state) if given.get("return_final_states") else output


def _updated(state: Tensor, written: Tensor, x: Tensor, others: list[Tensor]) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _update_flop(state: Tensor, *_: Any, **__: Any) -> int:
    return FLOP * state.numel()


def _update(state: Tensor, hidden_states: Tensor, *given: Any, **named: Any) -> Any:
    return operators.update(state, state, hidden_states, _tensors(*given, *named.values()))


def _tensors(*given: Any) -> list[Tensor]:
    """Expanded ones as they lie in memory: one number of a row that is repeated."""
    found = []
    for tensor in given:
        if isinstance(tensor, Tensor):
            found.append(tensor[tuple(slice(1) if step == 0 else slice(None) for step in tensor.stride())])
    return found


KERNELS: dict[str, Callable[..., Any]] = {
    "mamba_selective_scan": _scan,
    "mamba2_chunk_scan": _scan_chunks,
    "mamba_selective_state_update": _update,
    "mamba2_selective_state_update": _update,
}
"""What the models of transformers call, by the names of mamba-ssm's `selective_scan_fn`, `mamba_chunk_scan_combined`
and `selective_state_update`."""


def _calls(model: nn.Module) -> Iterator[tuple[Any, str]]:
    """What is called from the code of this model: the module of Python, and the name there."""
    for home in {type(module).__module__ for module in model.modules()}:
        for name in KERNELS:
            if hasattr(sys.modules.get(home), name):
                yield sys.modules[home], name


def has_scans(model: nn.Module) -> bool:
    """Whether any of this is for the model."""
    return any(_calls(model))


@contextmanager
def one_kernel(model: nn.Module) -> Iterator[None]:
    """Scans and updates of this model are one kernel each."""
    with ExitStack() as stack:
        for home, name in list(_calls(model)):
            stack.enter_context(patch.object(home, name, KERNELS[name]))
        yield


EXPERTS = ("gate_up_proj", "up_proj", "down_proj")
"""Weights of all experts of a layer, as transformers holds them together."""


class PackedWeights(nn.Module):
    """The tensors of a linear layer; those of several experts have them as their first dimension."""

    def __init__(
        self,
        parts: Iterable[LayerPart],
        outputs: int,
        dtype: torch.dtype,
        activations: str,
        bias: Any,
        experts: int = 0,
    ) -> None:
        super().__init__()
        self.out_features = outputs
        self._activations = getattr(torch, activations) if activations else None
        self.eight_bit = False
        leading = (experts,) if experts else ()
        for part in parts:
            kind = dtype if part.dtype == ACTIVATIONS else getattr(torch, part.dtype)
            made = torch.empty((*leading, *part.shape), dtype=kind, device="meta")
            self.register_parameter(part.name, nn.Parameter(made, requires_grad=False))
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor, count: int | None = None) -> Tensor:
        """The product; `count`: of the first so many experts."""
        weights = list(self.parameters(recurse=False))
        given = x.to(self._activations) if self.eight_bit and self._activations is not None else x
        if count is not None:
            return packed_product(given, [weight[:count] for weight in weights], self.out_features, x.dtype)
        rows = packed_product(given.reshape(-1, x.shape[-1]), weights, self.out_features, x.dtype)
        return rows.view(*x.shape[:-1], self.out_features)


def quantise(model: nn.Module, scheme: Scheme, dtype: torch.dtype) -> int:
    """Replace the linear layers that the scheme covers, in a model on `meta`. Returns how many were replaced.

    What is tied to an embedding stays, as the methods leave it.
    """
    tied = [id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)]
    replaced = 0
    for path, module in list(model.named_modules()):
        if hasattr(module, "num_experts") and scheme.covers(path):
            replaced += _quantise_experts(module, scheme, dtype)
        for name, child in list(module.named_children()):
            whole = f"{path}.{name}" if path else name
            if type(child) is not nn.Linear or id(child.weight) in tied or not scheme.covers(whole):
                continue
            parts = scheme.parts(child.out_features, child.in_features)
            packed = PackedWeights(parts, child.out_features, dtype, scheme.activations, child.bias)
            setattr(module, name, packed)
            replaced += 1
    return replaced


def _quantise_experts(module: Any, scheme: Scheme, dtype: torch.dtype) -> int:
    """As many layers as there are experts, gate and up apart, each stored as a linear layer is."""
    replaced = 0
    for name in EXPERTS:
        weight = getattr(module, name, None)
        if not isinstance(weight, Tensor) or weight.dim() != 3:
            continue
        experts, outputs, inputs = weight.shape
        if getattr(module, "is_transposed", False):
            outputs, inputs = inputs, outputs
        bias = getattr(module, f"{name}_bias", None)
        halves = 2 if name == "gate_up_proj" else 1
        parts = []
        for half in range(halves):
            for part in scheme.parts(outputs // halves, inputs):
                parts.append(part._replace(name=f"{part.name}_{half}"))
        delattr(module, name)
        packed = PackedWeights(parts, outputs, dtype, scheme.activations, bias, experts)
        setattr(module, f"{name}_packed", packed)
        replaced += experts * halves
    return replaced


def compute_in_eight_bits(model: nn.Module, on: bool) -> None:
    """Whether the card multiplies numbers of 8 bits."""
    for module in model.modules():
        if isinstance(module, PackedWeights):
            module.eight_bit = on
