"""Tensors without values beside those that have some: plans and benchmarks count memory and time with the former. Any
thread."""

from __future__ import annotations

from typing import Any

import torch

from devexplorer.core.virtual.device.machine import VirtualGpu


def kept(inner: torch.Tensor, gpu: VirtualGpu) -> torch.Tensor:
    """The tensor, without its values where this card keeps none of that kind."""
    if gpu.values_bytes is None or inner.is_meta:
        return inner
    floating = inner.is_floating_point() or inner.is_complex()
    if inner.numel() == 1 or (not floating and inner.nbytes <= gpu.values_bytes):
        return inner
    return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")


def mixed(plain: list[Any]) -> bool:
    """Whether some of the tensors have values and others none."""
    kinds = {value.is_meta for value in plain if isinstance(value, torch.Tensor)}
    return len(kinds) == 2


def flat(plain: list[Any]) -> list[Any]:
    """Arguments and the items of those that are lists: `torch.cat` takes one."""
    return [item for value in plain for item in (value if isinstance(value, (list, tuple)) else (value,))]


def without_values(value: Any) -> Any:
    """The argument with every tensor in it on meta."""
    if isinstance(value, (list, tuple)):
        return [without_values(item) for item in value]
    return value.to("meta") if isinstance(value, torch.Tensor) else value
