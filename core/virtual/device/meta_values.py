"""Tensors without values (on `meta`), which plans and benchmarks use to count memory and time. Any thread."""

from __future__ import annotations

from typing import Any

import torch

from devexplorer.core.virtual.device.machine import VirtualGpu


def drop_values(inner: torch.Tensor, gpu: VirtualGpu) -> torch.Tensor:
    """Move the tensor to `meta` if this GPU keeps no values of its kind."""
    if gpu.values_bytes is None or inner.is_meta:
        return inner
    floating = inner.is_floating_point() or inner.is_complex()
    if inner.numel() == 1 or (not floating and inner.nbytes <= gpu.values_bytes):
        return inner
    return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")


def has_mixed_values(plain: list[Any]) -> bool:
    """Whether some of the tensors have values and others none."""
    kinds = {value.is_meta for value in plain if isinstance(value, torch.Tensor)}
    return len(kinds) == 2


def flatten(plain: list[Any]) -> list[Any]:
    """Arguments and the items of those that are lists: `torch.cat` takes one."""
    return [item for value in plain for item in (value if isinstance(value, (list, tuple)) else (value,))]


def to_meta(value: Any) -> Any:
    """The argument with every tensor in it on meta."""
    if isinstance(value, (list, tuple)):
        return [to_meta(item) for item in value]
    return value.to("meta") if isinstance(value, torch.Tensor) else value
