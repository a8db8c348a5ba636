"""Scaled dot-product attention as one kernel, as CUDA has it: the scores of every query with every key never lie in
memory. Any thread.

torch picks its fused kernels in C++, for devices that it knows. For any other one it takes attention apart into
products and a softmax, whose scores and weights stay alive until backward. So `scaled_dot_product_attention` is
registered for virtual GPUs and goes to `aten::_scaled_dot_product_fused_attention_overrideable`, which torch has for
such devices, derivative included. The host computes the plain formulas, in float32. What CUDA's fused kernels do
not take (float64, heads of odd sizes) is taken apart as there.

Shapes: query (B, H, L, E), key (B, G, S, E), value (B, G, S, V), output (B, H, L, V); G divides H. Beside the output
the kernels keep the logarithm of the sum of each row's exponentials, float32 (B, H, L).

Two kernels differ in memory, below aten/src/ATen/native/transformers/cuda. Flash attention (float16 and bfloat16, no
mask) lays its results out as the operands are: `at::empty_like(q)` of `mha_fwd` in flash_attn/flash_api.cpp, as cuDNN's
does. So where a rotary embedding left the heads apart, taking them together copies. The memory-efficient kernel has a
layout of its own, (B, L, H, V), and rounds the L of its sums up to 32 (`_efficient_attention_forward` in attention.cu,
kAlignLSE in mem_eff_attention). Cards older than Ampere have the second alone; here every card has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.virtual.device.accounting import KIND

FUSED_DTYPES = {torch.float16: 8, torch.bfloat16: 8, torch.float32: 4}
"""dtype -> what the size of a head has to be a multiple of: 16 bytes."""
LSE_ALIGNMENT = 32
FLASH_WIDTH = 256
"""The largest head of flash attention."""
FLASH_ROWS, FLASH_COLUMNS = 128, 32
"""What its backward rounds the length and the size of a head up to."""

aten = torch.ops.aten
_RECORDING = partial(torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey.AutogradFunctionality, False)


_apart = False


@contextmanager
def taken_apart() -> Iterator[None]:
    """Attention of the whole process is products and a softmax, as where there is no fused kernel for it."""
    global _apart
    before, _apart = _apart, True
    try:
        yield
    finally:
        _apart = before


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
    if _apart or not _fits_kernel(query, key, value, bias, enable_gqa=enable_gqa):
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

    The log-sum-exp takes its memory and has no values, as the backward here does without it. Of the rest one is used:
    the place of the random seed holds the host generator's state before the dropout.
    """
    batch, heads, length, _ = query.shape
    nothing = torch.empty(0)
    state = torch.get_rng_state() if dropout_p else nothing
    flash = _is_flash(query, value, attn_bias)
    rows = length if flash else _up(length, LSE_ALIGNMENT)
    sums = torch.zeros(batch, heads, rows, dtype=torch.float32, device=query.device)
    output = torch.empty_like(query) if flash else _laid_out(query, value.shape[3])
    if not query.is_meta:
        output.copy_(_attend((query, key, value, attn_bias), dropout_p, is_causal, scale))
    return output, sums, nothing, nothing, length, key.shape[2], state, nothing, nothing


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
    flash = _is_flash(query, value, attn_bias)
    grads = [torch.empty_like(item) if flash else _laid_out(item, item.shape[3]) for item in (query, key, value)]
    if attn_bias is not None and grad_input_mask[3]:
        grads.append(torch.empty_like(attn_bias))
    if not query.is_meta:
        # Operations of a virtual GPU run below autograd, which has to record these again.
        with torch.random.fork_rng(devices=[], enabled=dropout_p > 0), _RECORDING(), torch.enable_grad():
            inputs = (query, key, value, attn_bias)
            leaves: list[Any] = [item if item is None else item.detach().requires_grad_() for item in inputs]
            if dropout_p:
                torch.set_rng_state(philox_seed)
            output = _attend(leaves, dropout_p, is_causal, scale)
            computed = torch.autograd.grad(output, leaves[: len(grads)], grad_out.float())
        for grad, values in zip(grads, computed, strict=True):
            grad.copy_(values)
    return (*grads, None)[:4]


def backward_scratch(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, mask: Any, out: Tensor,
    *_: Any, **__: Any,
) -> list[int]:  # fmt: skip
    """What the backward takes beside the gradients: a number per row; in 16 bits the query's gradient in float32
    (`dq_accum` of `mha_bwd` in flash_attn/flash_api.cpp, `workspace_size` in mem_eff_attention/kernel_backward.h); and
    copies of the output and its gradient where the heads of a row are apart (`_flash_attention_backward` in
    attention_backward.cu). Gradients of shared keys and values are made for every head first."""
    batch, heads, length, width = query.shape
    rows = _up(length, FLASH_ROWS)
    sizes = [4 * batch * heads * rows]
    if query.dtype == torch.float32:
        return sizes
    sizes.append(4 * batch * heads * rows * _up(width, FLASH_COLUMNS))
    if _is_flash(query, value, attn_bias):
        apart = (item for item in (grad_out, out) if not item.transpose(1, 2).is_contiguous())
        sizes += [item.numel() * item.element_size() for item in apart]
    if key.shape[1] != heads:
        sizes += [item.numel() // item.shape[1] * heads * item.element_size() for item in (key, value)]
    return sizes


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _is_flash(query: Tensor, value: Tensor, bias: Tensor | None) -> bool:
    """Whether flash attention takes these; the other kernel takes what is left."""
    narrow = query.dtype in (torch.float16, torch.bfloat16)
    return narrow and bias is None and query.shape[3] == value.shape[3] <= FLASH_WIDTH


def _laid_out(like: Tensor, width: int) -> Tensor:
    """Room for (B, H, L, width) as the kernels lay it out: (B, L, H, width) in memory, so that taking the heads
    together copies nothing."""
    batch, heads, length, _ = like.shape
    return like.new_empty(batch, length, heads, width).transpose(1, 2)


def _attend(inputs: Sequence[Tensor | None], dropout_p: float, is_causal: bool, scale: float | None) -> Tensor:
    """The plain formulas for query, key, value and bias, in float32; heads of one group share keys and values."""
    wide = [item if item is None else item.float() for item in inputs]
    options = {"scale": scale, "enable_gqa": True}
    return aten._scaled_dot_product_attention_math(*wide, dropout_p, is_causal, **options)[0]  # type: ignore[no-any-return]


def forward_flop(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Two products: scores, and the weighted sum."""
    batch, heads, length, width = query.shape
    return 2 * batch * heads * length * key.shape[2] * (width + value.shape[3])


def backward_flop(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Five products: the scores once more, and two for each operand of both products."""
    batch, heads, length, width = query.shape
    return 2 * batch * heads * length * key.shape[2] * (3 * width + 2 * value.shape[3])
