"""Kernels that the cards have and that are several operations here: scaled dot-product attention, whose scores never
lie in memory as a whole, and the pieces of `nn.SyncBatchNorm`. Any thread.

torch picks its fused kernels in C++, for devices that it knows. For any other one it takes attention apart into
products and a softmax, whose scores and weights stay alive until backward. So `scaled_dot_product_attention` is
registered for virtual GPUs and goes to `aten::_scaled_dot_product_fused_attention_overrideable`, which torch has for
such devices, derivative included. The host computes the plain formulas, in float32. What CUDA's fused kernels do
not take (float64, bfloat16 on a T4) is taken apart as there.

Shapes: query (B, H, L, E), key (B, G, S, E), value (B, G, S, V), output (B, H, L, V); G divides H. Beside the output
the kernels keep the logarithm of the sum of each row's exponentials, float32 (B, H, L).

Which kernel runs goes by card, dtype and mask (`can_use_flash_attention`, `can_use_mem_efficient_attention` in
transformers/cuda/sdp_utils.cpp, below aten/src/ATen/native):

- flash attention from compute capability 8.0 on, in float16 and bfloat16, without a mask, with heads of one size up to
  256, and with as many keys as queries if it is causal. It lays its results out as the operands are:
  `at::empty_like(q)` of `mha_fwd` in transformers/cuda/flash_attn/flash_api.cpp, as cuDNN's does. So where a rotary
  embedding left the heads apart, taking them together copies. Heads that are no multiple of 8 are filled up before
  (`pad_last_dim` in transformers/attention.cpp).
- else the memory-efficient kernel, on every card, in float16, float32 and, from 8.0 on, bfloat16. It has a layout of
  its own, (B, L, H, V), and rounds the L of its sums up to 32 (`_efficient_attention_forward` in
  transformers/cuda/attention.cu, kAlignLSE in mem_eff_attention). Heads that share keys are not for it (the
  documentation of `scaled_dot_product_attention`, torch 2.13).
- else the plain formulas.

The larger heads that flash attention does not train on some cards (193 to 224; capability 8.6, 8.9 and 12) are not
told apart, nor are AMD's cards, which are taken to have both kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.virtual.device.accounting import KIND, gpu_of

FUSED_DTYPES = {torch.float16: 8, torch.bfloat16: 8, torch.float32: 4}
"""dtype -> what the size of a head has to be a multiple of: 16 bytes (`minimum_gemm_alignment` in sdp_utils.cpp)."""
LSE_ALIGNMENT = 32
FLASH_SINCE = 8
"""Major compute capability, also of bfloat16 in the other kernel."""
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


class Kernel(Enum):
    """Fused kernels."""

    FLASH = "flash"
    EFFICIENT = "memory-efficient"


def has_flash(capability: str) -> bool:
    """Whether a chip (`7.5`, `gfx942`) has flash attention: `check_flash_attention_hardware_support` in sdp_utils.cpp.
    AMD's are taken to have it; on Apple's attention is taken apart anyway."""
    major = capability.partition(".")[0]
    return not major.isdigit() or int(major) >= FLASH_SINCE


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
    gpu = gpu_of(query.device)
    here = has_flash(gpu.profile.compute_capability)
    chosen, elsewhere = (
        _kernel(flash, query, key, value, bias, is_causal=is_causal, enable_gqa=enable_gqa)
        for flash in (here, not here)
    )
    gpu.attention_by_card |= chosen is not elsewhere and not _apart
    if _apart or chosen is None:
        options = {"scale": scale, "enable_gqa": enable_gqa}
        plain = aten._scaled_dot_product_attention_math(query, key, value, bias, dropout_p, is_causal, None, **options)
        return plain[0]  # type: ignore[no-any-return]
    width = query.shape[-1]
    if missing := -width % FUSED_DTYPES[query.dtype]:
        query, key, value = (torch.nn.functional.pad(item, (0, missing)) for item in (query, key, value))
        scale = width**-0.5 if scale is None else scale
    fused = aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, bias, dropout_p, is_causal, chosen is Kernel.FLASH, scale=scale
    )
    return fused[0][..., :width] if missing else fused[0]  # type: ignore[no-any-return]


def _kernel(
    flash: bool, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool, enable_gqa: bool
) -> Kernel | None:
    """What runs on a card that has flash attention, or on one that has not."""
    if not _are_for_kernels(query, key, value, mask):
        return None
    grouped = key.shape[1] != query.shape[1]
    one_width, narrow = query.shape[3] == value.shape[3], query.dtype != torch.float32
    if flash and narrow and mask is None and one_width and query.shape[3] <= FLASH_WIDTH:
        square = not is_causal or query.shape[2] == key.shape[2]
        if square and (not grouped or (enable_gqa and query.shape[1] % key.shape[1] == 0)):
            return Kernel.FLASH
    multiple = FUSED_DTYPES[query.dtype]
    whole = query.shape[3] % multiple == value.shape[3] % multiple == 0
    known = flash or query.dtype != torch.bfloat16
    return Kernel.EFFICIENT if known and whole and not grouped else None


def _are_for_kernels(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    tensors = [query, key, value] if mask is None else [query, key, value, mask]
    if query.dtype not in FUSED_DTYPES or any(
        item.device.type != KIND or item.device != query.device or item.dtype != query.dtype for item in tensors
    ):
        return False
    return (
        all(item.dim() == 4 for item in (query, key, value))
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1:3] == value.shape[1:3]
        and query.shape[3] == key.shape[3]
        and min(*query.shape, *key.shape, *value.shape) > 0
    )


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    flash: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_fused_attention_overrideable` on the host's tensors: output, log-sum-exp, and what CUDA's
    variants also return.

    `flash` says which kernel it is; in torch the place is `return_debug_mask`, and nothing here makes such masks. The
    log-sum-exp takes its memory and has no values, as the backward here does without it. Of the rest two are used: the
    place of the random seed holds the host generator's state before the dropout, that of the lengths of packed queries
    whether it was flash attention.
    """
    batch, heads, length, _ = query.shape
    nothing = torch.empty(0)
    state = torch.get_rng_state() if dropout_p else nothing
    rows = length if flash else _up(length, LSE_ALIGNMENT)
    sums = torch.zeros(batch, heads, rows, dtype=torch.float32, device=query.device)
    output = torch.empty_like(query) if flash else _laid_out(query, value.shape[3])
    if not query.is_meta:
        output.copy_(_attend((query, key, value, attn_bias), dropout_p, is_causal, scale))
    return output, sums, torch.tensor(flash), nothing, length, key.shape[2], state, nothing, nothing


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    was_flash: Tensor,
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
    flash = bool(was_flash)
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
    logsumexp: Tensor, was_flash: Tensor, *_: Any, **__: Any,
) -> list[int]:  # fmt: skip
    """What the backward takes beside the gradients.

    Flash attention (`mha_bwd` in flash_attn/flash_api.cpp, `_flash_attention_backward` in attention_backward.cu): a
    number per row, the query's gradient in float32, copies of the output and its gradient where the heads of a row are
    apart; gradients of shared keys and values are made for every head first.

    The memory-efficient kernel (`_efficient_attention_backward` in attention_backward.cu): a copy of the output's
    gradient where the heads are apart, and a number per row, in float32 as the sums of a product that is there as a
    whole (`kKernelComputesDelta` in mem_eff_attention/kernel_backward.h). In 16 bits the query's gradient in float32
    (`workspace_size` there); those of keys and values, which larger heads may need too, go by the shared memory of the
    card and are left out.
    """
    batch, heads, length, width = query.shape
    numbers = 4 * batch * heads
    apart = [_bytes(item) for item in (grad_out, out) if not item.transpose(1, 2).is_contiguous()]
    accumulator = numbers * _up(length, FLASH_ROWS) * _up(width, FLASH_COLUMNS)
    if bool(was_flash):
        shared = (key, value) if key.shape[1] != heads else ()
        expanded = [_bytes(item) // item.shape[1] * heads for item in shared]
        return [numbers * _up(length, FLASH_ROWS), accumulator, *apart, *expanded]
    copied = [] if grad_out.transpose(1, 2).is_contiguous() else [_bytes(grad_out)]
    if query.dtype == torch.float32:
        return [*copied, _bytes(out), numbers * length, numbers * length]
    return [*copied, numbers * length, accumulator]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


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


def _others(values: Tensor) -> list[int]:
    """Every dimension but that of the channels."""
    return [axis for axis in range(values.dim()) if axis != 1]


def _along(channels: Tensor, values: Tensor) -> Tensor:
    """A number per channel, shaped so that it meets its channel."""
    return channels.view([-1 if axis == 1 else 1 for axis in range(values.dim())])


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def stats(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean, and one over the standard deviation, of each channel."""
    wide = _wide(values)
    variance, mean = torch.var_mean(wide, _others(wide), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats_with_counts(
    values: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same of the batches of all ranks together, from that of each; moves the running figures on."""
    weights = counts.to(mean.dtype).view(-1, 1)
    total = weights.sum()
    together = (mean * weights).sum(0) / total
    variance = ((invstd.pow(-2) - eps + (mean - together).square()) * weights).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(together * momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(variance * (total / (total - 1)) * momentum)
    return together, (variance + eps).rsqrt()


def elemt(
    values: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """The values, normalised."""
    scale = invstd if weight is None else invstd * weight
    result = (_wide(values) - _along(mean, values)) * _along(scale, values)
    return (result if bias is None else result + _along(bias, values)).to(values.dtype)


def backward_reduce(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    for_values: bool,
    for_weight: bool,
    for_bias: bool,
) -> tuple[Any, Any, Any, Any]:
    """Sums over this rank's batch: of the gradient, of it times the distance from the mean; gradients of weight and
    bias."""
    wide = _wide(grad)
    sums = wide.sum(_others(grad))
    distances = (wide * (_wide(values) - _along(mean, values))).sum(_others(grad))
    return sums, distances, distances * invstd if for_weight else None, sums if for_bias else None


def backward_elemt(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    distances: Tensor,
    count: Tensor,
) -> Tensor:
    """Gradient of the values, from the sums over all ranks."""
    total = count.sum().to(mean.dtype)
    scale = invstd if weight is None else invstd * weight
    pulled = _along(sums / total, values) + (_wide(values) - _along(mean, values)) * _along(
        invstd.square() * distances / total, values
    )
    return ((_wide(grad) - pulled) * _along(scale, values)).to(values.dtype)


COMPOSED: dict[str, Callable[..., Any]] = {
    "aten::batch_norm_stats": stats,
    "aten::batch_norm_gather_stats_with_counts": gather_stats_with_counts,
    "aten::batch_norm_elemt": elemt,
    "aten::batch_norm_backward_reduce": backward_reduce,
    "aten::batch_norm_backward_elemt": backward_elemt,
}
