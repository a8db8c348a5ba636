"""Scaled dot-product attention as one kernel, as CUDA has it: the scores of every query with every key never lie in
memory. Any thread.

torch picks its fused kernels in C++, for devices that it knows. For any other one it takes attention apart into
products and a softmax, whose scores and weights stay alive until backward. So `scaled_dot_product_attention` is
registered for virtual GPUs and goes to `aten::_scaled_dot_product_fused_attention_overrideable`, which torch has for
such devices, derivative included. The host computes the plain formulas, in float32. What CUDA's fused kernels do
not take (float64, heads of odd sizes) is taken apart as there.

Shapes: query (B, H, L, E), key (B, G, S, E), value (B, G, S, V), output (B, H, L, V); G divides H. Beside the output
the kernels keep the logarithm of the sum of each row's exponentials, float32 (B, H, L); the one for float32 rounds L up
to 32 (kAlignLSE of aten/src/ATen/native/transformers/cuda/mem_eff_attention).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.virtual.device.accounting import KIND

FUSED_DTYPES = {torch.float16: 8, torch.bfloat16: 8, torch.float32: 4}
"""dtype -> what the size of a head has to be a multiple of: 16 bytes."""
LSE_ALIGNMENT = 32

aten = torch.ops.aten


def register(library: Any) -> None:
    """Let attention on virtual GPUs go to the fused kernel, with gradients and without."""
    library.impl("scaled_dot_product_attention", attention, "AutogradPrivateUse1")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`aten::scaled_dot_product_attention` of tensors on virtual GPUs."""
    if attn_mask is not None and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    bias = attn_mask
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        bias = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
    if not _fits_kernel(query, key, value, bias, enable_gqa=enable_gqa):
        options = {"scale": scale, "enable_gqa": enable_gqa}
        plain = aten._scaled_dot_product_attention_math(query, key, value, bias, dropout_p, is_causal, None, **options)
        return plain[0]  # type: ignore[no-any-return]
    fused = aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, bias, dropout_p, is_causal, False, scale=scale
    )
    return fused[0]  # type: ignore[no-any-return]


def _fits_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, enable_gqa: bool) -> bool:
    tensors = [query, key, value] if mask is None else [query, key, value, mask]
    multiple = FUSED_DTYPES.get(query.dtype)
    if multiple is None or any(item.device.type != KIND or item.device != query.device for item in tensors):
        return False
    if any(item.dim() != 4 or item.dtype != query.dtype for item in (query, key, value)):
        return False
    if mask is not None and mask.dtype != query.dtype:
        return False
    grouped = key.shape[1] != query.shape[1]
    whole = not grouped or (enable_gqa and query.dtype != torch.float32 and query.shape[1] % key.shape[1] == 0)
    same = (
        query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1:3] == value.shape[1:3]
        and query.shape[3] == key.shape[3]
    )
    return (
        whole
        and same
        and query.shape[3] % multiple == 0
        and value.shape[3] % multiple == 0
        and min(*query.shape, *key.shape) > 0
    )


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_fused_attention_overrideable` on the host's tensors: output, log-sum-exp, and what CUDA's
    variants also return.

    Of the latter one is used: the place of the random seed holds the host generator's state before the dropout.
    """
    batch, heads, length, _ = query.shape
    nothing = torch.empty(0)
    state = torch.get_rng_state() if dropout_p else nothing
    rows = -(-length // LSE_ALIGNMENT) * LSE_ALIGNMENT if query.dtype == torch.float32 else length
    summed = torch.empty(batch, heads, rows, dtype=torch.float32, device=query.device)
    output = _laid_out((batch, heads, length, value.shape[3]), query)
    if not query.is_meta:
        weights, sums = _weights(query, key, attn_bias, is_causal, scale)
        summed[:, :, :length] = sums
        kept = weights if not dropout_p else torch.dropout(weights, dropout_p, True)
        output.copy_(kept @ _spread(value, heads))
    return output, summed, nothing, nothing, length, key.shape[2], state, nothing, nothing


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and bias; the weights are computed again, as the kernels do it."""
    bias = attn_bias if grad_input_mask[3] else None
    grads = [_laid_out(item.shape, item) for item in (query, key, value)]
    if query.is_meta:
        return (*grads, None if bias is None else torch.empty_like(bias))
    heads, groups = query.shape[1], key.shape[1]
    weights, _ = _weights(query, key, attn_bias, is_causal, scale)
    kept = weights
    if dropout_p:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(philox_seed)
            mask = torch.dropout(torch.ones_like(weights), dropout_p, True)
        kept = weights * mask
    grad = grad_out.float()
    grad_kept = grad @ _spread(value, heads).transpose(2, 3)
    grad_weights = grad_kept * mask if dropout_p else grad_kept
    scores = weights * (grad_weights - (grad_weights * weights).sum(3, keepdim=True))
    factor = _factor(query, scale)
    grads[0].copy_(scores @ _spread(key, heads) * factor)
    grads[1].copy_(_gathered(scores.transpose(2, 3) @ query.float() * factor, groups))
    grads[2].copy_(_gathered(kept.transpose(2, 3) @ grad, groups))
    return (*grads, None if bias is None else scores.sum_to_size(bias.shape).to(bias.dtype))


def _laid_out(shape: Sequence[int], like: Tensor) -> Tensor:
    """Room for (B, H, L, E) as the kernels lay it out: (B, L, H, E) in memory, so that taking the heads together copies
    nothing."""
    batch, heads, length, width = shape
    return torch.empty(batch, length, heads, width, dtype=like.dtype, device=like.device).transpose(1, 2)


def _weights(
    query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Softmax over the keys, (B, H, L, S), and the log-sum-exp of its rows; a row without any key has weights of
    zero."""
    scores = query.float() @ _spread(key, query.shape[1]).transpose(2, 3) * _factor(query, scale)
    if bias is not None:
        scores = scores + bias.float()
    if is_causal:
        seen = torch.ones(scores.shape[2:], dtype=torch.bool).tril_()
        scores = scores.masked_fill(~seen, float("-inf"))
    sums = scores.logsumexp(3)
    weights = (scores - sums.unsqueeze(3)).exp()
    return weights.nan_to_num(nan=0.0) if bias is not None else weights, sums


def _factor(query: Tensor, scale: float | None) -> float:
    return 1 / query.shape[3] ** 0.5 if scale is None else scale


def _spread(grouped: Tensor, heads: int) -> Tensor:
    """Keys or values for every head: heads of one group share theirs."""
    groups = grouped.shape[1]
    return grouped.float() if groups == heads else grouped.float().repeat_interleave(heads // groups, 1)


def _gathered(grad: Tensor, groups: int) -> Tensor:
    """The gradient of shared keys or values: the sum over the heads of each group."""
    heads = grad.shape[1]
    return grad if groups == heads else grad.unflatten(1, (groups, heads // groups)).sum(2)


def forward_flop(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Two products: scores, and the weighted sum."""
    batch, heads, length, width = query.shape
    return 2 * batch * heads * length * key.shape[2] * (width + value.shape[3])


def backward_flop(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Five products: the scores once more, and two for each operand of both products."""
    batch, heads, length, width = query.shape
    return 2 * batch * heads * length * key.shape[2] * (3 * width + 2 * value.shape[3])
