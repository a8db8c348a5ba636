"""Checks that the tensors of an operation are on one device; otherwise raises PyTorch's own error message. Any
thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from devexplorer.core.virtual.operators.operations import Operation


def check_devices(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse tensors from different devices in PyTorch's words. A CPU scalar may join, and arguments that CUDA takes
    from the CPU."""
    named = [*zip(operation.arguments, args, strict=False), *kwargs.items()]
    first = named[0][1]
    if _is_host(first) and "indices" in operation.host_arguments:
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor ({first.device})"
        )
    seen: str | None = None
    for name, value in named:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor):
                continue
            joins = tensor.dim() == 0 and not (name == operation.arguments[0] and changes_first(operation))
            if _is_host(tensor) and (joins or name in operation.host_arguments):
                continue
            seen = seen or str(tensor.device)
            if str(tensor.device) != seen:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {seen} and"
                    f" {tensor.device}! (when checking argument for argument {name} in method {operation.name})"
                )


def changes_first(operation: Operation) -> bool:
    """Whether it writes into its first argument, which then has to be where the others are, also when it is a
    number."""
    return operation.returns[:1] == [0] and operation.name != "aten::fill_"  # which fetches a value from wherever it is


def _is_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"
