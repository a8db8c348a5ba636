"""The pieces of `nn.SyncBatchNorm`, which torch has as kernels of accelerators only, in plain operations. Any
thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
