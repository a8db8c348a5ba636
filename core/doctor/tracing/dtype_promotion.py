"""Results that are wider than the activations they are computed from, because of one operand of a wider dtype. The
thread that is watched.

What somebody asked for is none: a cast, `dtype=`, autocast, a loss; nor a sum with another activation that is wide
already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.mixed_devices import origin_of
from devexplorer.core.models.casts import dtype_name

_MADE_BY_NOBODY = ("output", "result", "copy", "gradient", "unknown")
"""Origins of operands that are activations themselves."""


class DtypePromotion:
    """Finds them."""

    def after(self, call: Call, result: Any) -> None:
        """A call was made."""
        if (
            not isinstance(result, Tensor)
            or not result.dtype.is_floating_point
            or call.kind.casts
            or call.kind.loss
            or call.kind.factory
        ):
            return
        width = result.dtype.itemsize
        floating = [one for one in call.operands if one.dtype.is_floating_point and one.dim() > 0]
        if not any(one.dtype.itemsize < width for one in floating) or call.kwargs.get("dtype") is not None:
            return
        narrow = max((one for one in floating if one.dtype.itemsize < width), key=Tensor.numel)
        wide = next((one for one in floating if one.dtype is result.dtype), None)
        if (
            wide is None
            or result.numel() < narrow.numel()
            or any(one is result for one in floating)
            or _autocast(result)
        ):
            return
        known = call.run.sources.known(wide)
        if (known is not None and known.cast) or wide.numel() > narrow.numel():
            return
        origin = origin_of(call, wide)
        if wide.numel() == narrow.numel() and origin.kind in _MADE_BY_NOBODY:
            return
        run = call.run
        if run.book.again("dtype-promotion", call.place, run.path):
            return
        small, large = (dtype_name(one.dtype) for one in (narrow, result))
        run.book.add(
            "dtype-promotion",
            f"{call.kind.sentence} gives {large}, although {run.sources.of(narrow).words(run.path)} is {small}: "
            f"{origin.words(run.path)} is {large}.",
            "Make that operand as narrow as what it meets: "
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
