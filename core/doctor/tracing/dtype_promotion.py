"""Results that are wider than the activations they are computed from, because of one operand of a wider dtype. The
thread that is watched.

What was asked for is none: a cast, `dtype=`, autocast, a loss; nor a sum with another activation that is wide
already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.mixed_devices import origin_of
from devexplorer.core.models import dtype_name

_MADE_BY_NOBODY = ("output", "result", "copy", "gradient", "unknown")
"""Origins of operands that are activations themselves."""


def dtype_promotion(call: Call, result: Any) -> None:
    """Find a result that an operand made wider."""
    if (
        not isinstance(result, Tensor)
        or not result.dtype.is_floating_point
        or call.kind.casts
        or call.kind.loss
        or call.kind.factory
    ):
        return
    width = result.dtype.itemsize
    floating = [item for item in call.operands if item.dtype.is_floating_point and item.dim() > 0]
    if not any(item.dtype.itemsize < width for item in floating) or call.kwargs.get("dtype") is not None:
        return
    narrow = max((item for item in floating if item.dtype.itemsize < width), key=Tensor.numel)
    wide = next((item for item in floating if item.dtype is result.dtype), None)
    if wide is None or result.numel() < narrow.numel() or any(item is result for item in floating) or _autocast(result):
        return
    known = call.run.sources.known(wide)
    if (known is not None and known.cast) or wide.numel() > narrow.numel():
        return
    origin = origin_of(call, wide)
    if wide.numel() == narrow.numel() and origin.kind in _MADE_BY_NOBODY:
        return
    run = call.run
    if run.collector.again("dtype-promotion", call.place, run.path):
        return
    small, large = (dtype_name(item.dtype) for item in (narrow, result))
    run.collector.add(
        "dtype-promotion",
        f"{call.kind.sentence} gives {large}, although {run.sources.of(narrow).description(run.path)} is {small}: "
        f"{origin.description(run.path)} is {large}.",
        "Give that operand the dtype of the other one: "
        + ("dtype=x.dtype where it is made." if origin.kind == "factory" else "y.to(x.dtype)."),
        place=call.place,
        severity="note" if call.by_torch else None,
        bytes=result.numel() * (width - narrow.dtype.itemsize),
    )


def _autocast(tensor: Tensor) -> bool:
    kind = tensor.device.type
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:  # a device that autocast does not know
        return False
