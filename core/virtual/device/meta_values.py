"""Tensors without values (on `meta`), which plans and benchmarks use to count memory and time. Any thread.

A GPU that counts keeps the values of what is small: of inputs and what is made of them alone, such as masks, which
models look at. What meets a parameter has none, and what such a result is written into loses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from devexplorer.core.virtual.device.machine import VirtualGpu


def drop_values(inner: torch.Tensor, gpu: VirtualGpu) -> torch.Tensor:
    """Move the tensor to `meta` if this GPU keeps no values of its kind."""
    if gpu.values_bytes is None or inner.is_meta:
        return inner
    if inner.nbytes <= gpu.values_bytes:
        return inner
    return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")


def has_mixed_values(plain: Sequence[Any]) -> bool:
    """Whether some of the tensors have values and others none."""
    kinds = {value.is_meta for value in flatten(plain) if isinstance(value, torch.Tensor)}
    return len(kinds) == 2


def lose_values(inner: Any) -> None:
    """Of this tensor and all that share its memory: a result without values was written there."""
    for item in flatten([inner]):
        if isinstance(item, torch.Tensor) and not item.is_meta:
            held = item.untyped_storage()._vgpu  # type: ignore[attr-defined]
            held.lost = held.gpu.lost_values = True


def with_its_values(inner: Any) -> Any:
    """The argument, whose tensors are on meta where their values were lost: of the same block."""
    if isinstance(inner, (list, tuple)):
        return [with_its_values(item) for item in inner]
    if not isinstance(inner, torch.Tensor) or inner.is_meta:
        return inner
    held = getattr(inner.untyped_storage(), "_vgpu", None)
    if held is None or not held.lost:
        return inner
    without = torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")
    without.untyped_storage()._vgpu = held  # type: ignore[attr-defined]
    return without


def numbered(indices: Sequence[Any]) -> list[Any]:
    """Truth values among indices as numbers, where they are known: without values nobody could count them."""
    found: list[Any] = []
    for index in indices:
        known = isinstance(index, torch.Tensor) and index.dtype == torch.bool and not index.is_meta
        found += index.nonzero(as_tuple=True) if known else [index]
    return found


def flatten(plain: Sequence[Any]) -> list[Any]:
    """Arguments and the items of those that are lists: `torch.cat` takes one."""
    return [item for value in plain for item in (value if isinstance(value, (list, tuple)) else (value,))]


def to_meta(value: Any) -> Any:
    """The argument with every tensor in it on meta."""
    if isinstance(value, (list, tuple)):
        return [to_meta(item) for item in value]
    return value.to("meta") if isinstance(value, torch.Tensor) else value
