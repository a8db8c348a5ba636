"""`torch.cuda.FloatTensor` and its like: what torch had before dtypes and devices. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TYPES: dict[str, torch.dtype] = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
_PREFIX = "torch.cuda."


def dtype_of(kind: Any) -> torch.dtype | None:
    """The dtype of a tensor type of CUDA's, given as such or as its name; None for anything else."""
    if isinstance(kind, type) and kind.__module__ == "torch.cuda":
        return TYPES.get(kind.__name__)
    return TYPES.get(kind.removeprefix(_PREFIX)) if isinstance(kind, str) and kind.startswith(_PREFIX) else None


def tensor_type(name: str, place: Callable[[torch.Tensor], torch.Tensor]) -> type:
    """A class that makes tensors of that type where `place` puts them, and that such tensors are instances of."""
    dtype = TYPES[name]

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.dtype is dtype and value.device.type in ("cuda", "vgpu")

    def make(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        return place(getattr(torch, name)(*args, **kwargs))

    return Kind(name, (), {"__new__": make, "__module__": "torch.cuda", "dtype": dtype, "is_cuda": True})
