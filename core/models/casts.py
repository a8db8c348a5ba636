"""What a change of dtype does: which tensors it concerns, and whether it can lose anything. Pure functions, any
thread."""

from __future__ import annotations

import math
from functools import cache

import torch

from devexplorer.core.base import BadInput, parse_dtype, parse_model_dtype


def torch_dtype(text: str) -> torch.dtype:
    """`"half"` -> `torch.float16`; `BadInput` for names that mean nothing."""
    dtype = getattr(torch, parse_dtype(text))
    assert isinstance(dtype, torch.dtype)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` -> `float32`."""
    return str(dtype).removeprefix("torch.")


def model_dtype(text: str) -> torch.dtype:
    """The dtype for a whole model: floating point or complex, as `Module.to` wants it."""
    return torch_dtype(parse_model_dtype(text))


def cast_of(own: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype that a model's tensor of dtype `own` gets when the model is cast: integer buffers keep theirs, complex
    tensors stay complex."""
    if dtype is None or not (own.is_floating_point or (own.is_complex and dtype.is_complex)):
        return own
    return dtype


@cache
def loses(old: torch.dtype, new: torch.dtype) -> bool:
    """Whether some value of `old` cannot be written in `new`, so that casting back may not restore the bits.

    >>> loses(torch.float16, torch.float32), loses(torch.float32, torch.bfloat16), loses(torch.int64, torch.float32)
    (False, True, True)
    """
    if old == new or old == torch.bool:
        return False
    if new == torch.bool or (old.is_complex and not new.is_complex):
        return True
    if old.is_floating_point or old.is_complex:
        if not (new.is_floating_point or new.is_complex):
            return True
        a, b = torch.finfo(old), torch.finfo(new)  # of a complex dtype: that of its real part
        return bool(b.eps > a.eps or b.max < a.max or b.smallest_normal > a.smallest_normal)
    whole = torch.iinfo(old)
    if new.is_floating_point or new.is_complex:
        exact = 2 / torch.finfo(new).eps  # every whole number up to here has its own value
        return bool(whole.max > min(exact, torch.finfo(new).max))
    target = torch.iinfo(new)
    return whole.max > target.max or whole.min < target.min


def refuse_value(dtype: torch.dtype, value: float) -> None:
    """Raise `BadInput` when a tensor of this dtype cannot hold the value at all (rounding is fine)."""
    name = dtype_name(dtype)
    if dtype == torch.bool:
        if value not in (0, 1):
            raise BadInput(f"bool holds 0 and 1 only, not {value:g}")
    elif dtype.is_floating_point or dtype.is_complex:
        if math.isfinite(value) and abs(value) > torch.finfo(dtype).max:
            raise BadInput(f"{value:g} is too large for {name}, which goes up to {torch.finfo(dtype).max:g}")
    elif not math.isfinite(value) or value != math.floor(value):
        raise BadInput(f"{name} holds whole numbers only, not {value:g}")
    elif not torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max:
        raise BadInput(
            f"{value:g} is out of range for {name}, which goes from {torch.iinfo(dtype).min} to"
            f" {torch.iinfo(dtype).max}"
        )
