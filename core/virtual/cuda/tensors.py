"""What tensors say in place of CUDA: the types from before dtypes and devices, and where a tensor is. Any thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.cuda.patches import Patches
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.operators.tensor import VirtualTensor
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter
from devexplorer.core.virtual.torch_api.names import VirtualGenerator

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
_where: Any = torch.Tensor.device
_of_generator: Any = vars(VirtualGenerator)["device"].fget


def dtype_of(kind: Any) -> torch.dtype | None:
    """The dtype of a CUDA tensor type, given as a class or by name; None for anything else."""
    if isinstance(kind, type) and kind.__module__ == "torch.cuda":
        return TYPES.get(kind.__name__)
    return TYPES.get(kind.removeprefix(_PREFIX)) if isinstance(kind, str) and kind.startswith(_PREFIX) else None


def tensor_type(name: str, place: Callable[[torch.Tensor], torch.Tensor]) -> type:
    """A class that makes tensors of that type where `place` puts them, and that such tensors are instances of."""
    dtype = TYPES[name]

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.dtype is dtype and value.device.type in ("cuda", KIND)

    def make(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        return place(getattr(torch, name)(*args, **kwargs))

    return Kind(name, (), {"__new__": make, "__module__": "torch.cuda", "dtype": dtype, "is_cuda": True})


def speak_of_cuda(patches: Patches, cards: Cards) -> None:
    """Let `tensor.device` and `tensor.is_cuda` answer by who asks.

    torch's own code and DevExplorer's still read `vgpu`: below Python that is where the tensors are.
    """

    def device(tensor: torch.Tensor) -> torch.device:
        where: torch.device = _where.__get__(tensor)
        return cards.cuda(where.index) if _examined(sys._getframe(1).f_code.co_filename) else where

    def generators_device(generator: VirtualGenerator) -> torch.device:
        return (
            cards.cuda(generator._index) if _examined(sys._getframe(1).f_code.co_filename) else _of_generator(generator)
        )

    def is_cuda(tensor: torch.Tensor) -> bool:
        return _examined(sys._getframe(1).f_code.co_filename)

    for kind in (VirtualTensor, LazyVirtualParameter, LazyVirtualBuffer):
        patches.put(kind, "device", property(device))
        patches.put(kind, "is_cuda", property(is_cuda))
    patches.put(VirtualGenerator, "device", property(generators_device))
    patches.put(PackedSequence, "is_cuda", property(lambda packed: packed.data.device.type in ("cuda", KIND)))
    patches.put(VirtualTensor, "record_stream", lambda tensor, stream: None)  # memory is never given back too early


def _examined(file: str) -> bool:
    """Whether a file is code of the model or of a library in it; so is what is made as text."""
    return kind_of(file) != "skipped" or file.startswith("<")
