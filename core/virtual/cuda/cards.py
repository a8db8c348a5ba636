"""Which virtual GPU a CUDA device means, and what tensors say in place of CUDA; attributes of torch are changed for a
while, and every change is taken back. Any thread."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.optim import optimizer
from torch.utils import _foreach_utils

from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators.tensor import VirtualParameter, VirtualTensor
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter
from devexplorer.core.virtual.torch_api.module import VirtualGenerator

_NOTHING = object()


class Patches:
    """What was put in place of what. Not for reuse after `undo`."""

    def __init__(self) -> None:
        self.on = True
        """Whether the changes hold. A function that other code kept (`from torch.cuda import is_available`) asks it at
        each call."""
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class."""
        self._before.append((owner, name, vars(owner).get(name, _NOTHING)))
        setattr(owner, name, value)

    def rename(self, kind: type, part: str, name: str) -> None:
        """Set a part of a class's name, which is no entry of its dictionary."""
        self._before.append((kind, part, getattr(kind, part)))
        setattr(kind, part, name)

    def call(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        """Set a function or method; who kept it finds the one that was there before when all is undone."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def either(*args: Any, **kwargs: Any) -> Any:
            return (function if self.on else original)(*args, **kwargs)

        self.put(owner, name, either)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        self.on = False
        while self._before:
            owner, name, before = self._before.pop()
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


class _CurrentCard(threading.local):
    index = 0


class Cards:
    """The cards that the examined code sees. `missing` is called with the name of one that is not there, before CUDA's
    error is raised."""

    def __init__(self, count: int, missing: Callable[[str], None]) -> None:
        self.count = count
        self._missing = missing
        self._current = _CurrentCard()
        self._virtual = tuple(torch.device(KIND, index) for index in range(count))
        self._cuda = tuple(torch.device("cuda", index) for index in range(count))

    @property
    def current(self) -> int:
        """The ordinal that `cuda` without a number means on this thread."""
        return self._current.index

    @current.setter
    def current(self, index: int) -> None:
        self._current.index = self.ordinal(index)

    def ordinal(self, device: Any = None) -> int:
        """The number of a device given in any of torch's ways; raises CUDA's error for a card that is not there."""
        if device is None:
            index: int | None = None
        elif isinstance(device, int):
            index = device
        else:
            where = torch.device(device)
            if where.type not in ("cuda", KIND):
                raise ValueError(f"Expected a cuda device, but got: {where}")
            index = where.index
        if index is None or index == -1:
            return self._current.index
        if not 0 <= index < self.count:
            self._missing(f"cuda:{index}")
            raise torch.AcceleratorError(
                f"CUDA error: invalid device ordinal\nThere is no cuda:{index} here: "
                + (f"the cards are cuda:0 to cuda:{self.count - 1}" if self.count > 1 else "the one card is cuda:0")
            )
        return index

    def virtual(self, device: Any) -> Any:
        """The virtual GPU that a device argument means; anything else as it is."""
        if isinstance(device, torch.device):
            is_card = device.type == "cuda"
        elif isinstance(device, str):
            is_card = device.startswith("cuda")
        else:
            is_card = isinstance(device, int) and not isinstance(device, bool)
        return self._virtual[self.ordinal(device)] if is_card else device

    def cuda(self, index: int) -> torch.device:
        """What code of the model sees instead of `vgpu:index`."""
        return self._cuda[index] if index < self.count else torch.device("cuda", index)

    def spoken(self, device: torch.device) -> torch.device:
        """A device as code of the model knows it."""
        return self.cuda(device.index or 0) if device.type == KIND else device

    def gpu(self, device: Any = None) -> VirtualGpu:
        """The virtual GPU behind a device given in any of torch's ways; None: the current one."""
        return gpu_of(self._virtual[self.ordinal(device)])


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
CUDA_VERSION = "13.0"
"""What `torch.version.cuda` says: the CUDA of the wheels that PyTorch's index gives for Linux, 2.11 to 2.14
(https://pytorch.org/get-started/locally). No driver is behind it."""
_OF_VIRTUAL = re.compile(r"\bvgpu(:\d+)?\b")
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
    if torch.distributed.is_available():
        _mesh(patches, cards)
    patches.put(PackedSequence, "is_cuda", property(lambda packed: packed.data.device.type in ("cuda", KIND)))
    patches.put(VirtualTensor, "record_stream", lambda tensor, stream: None)  # memory is never given back too early


def _mesh(patches: Patches, cards: Cards) -> None:
    """The same of meshes and what is distributed over them: FSDP asks a mesh where parameters have to be, and works on
    streams there."""
    from torch.distributed.tensor import DTensor  # the first operation of a tensor imports it in any case

    kind: Any = torch.distributed.device_mesh.DeviceMesh
    own = vars(kind)["device_type"].fget

    def device_type(mesh: Any) -> str:
        name: str = own(mesh)
        if name not in ("cuda", KIND):
            return name
        asks = sys._getframe(1).f_code
        return "cuda" if _examined(asks.co_filename) or asks.co_name == "__repr__" else KIND

    def device(tensor: torch.Tensor) -> torch.device:
        where: torch.device = _where.__get__(tensor)
        return cards.spoken(where) if _examined(sys._getframe(1).f_code.co_filename) else where

    patches.put(kind, "device_type", property(device_type))
    patches.put(DTensor, "device", property(device))
    patches.call(getattr(torch, KIND), "current_device", lambda: cards.current)


def read_as_cuda(patches: Patches, gpus: Sequence[VirtualGpu]) -> None:
    """Let what people read of these cards say `cuda:1`, and of their tensors that they are PyTorch's own."""
    for gpu in gpus:
        patches.put(gpu, "spoken", f"cuda:{gpu.index}")
    for part, name in (("__module__", "torch"), ("__qualname__", "Tensor"), ("__name__", "Tensor")):
        patches.rename(VirtualTensor, part, name)
    patches.put(torch.version, "cuda", CUDA_VERSION)
    make = nn.Parameter.__new__

    def made(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is VirtualParameter:
            data = data.detach()  # torch wants to see the same class come out of that
        parameter: Any = make(cls, data, requires_grad)
        if type(parameter) is VirtualTensor:
            parameter.__class__ = VirtualParameter
        return parameter

    patches.put(nn.Parameter, "__new__", staticmethod(made))
    for module in (optimizer, _foreach_utils):  # torch goes by the exact class when it chooses to take them all at once
        kinds = [*module._foreach_supported_types, VirtualTensor, VirtualParameter]
        patches.put(module, "_foreach_supported_types", kinds)


def in_words_of_cuda(error: Exception) -> None:
    """Let the text of an error that names a virtual GPU name the card that it stands for."""
    error.args = tuple(_OF_VIRTUAL.sub(_as_cuda, word) if isinstance(word, str) else word for word in error.args)


def _as_cuda(found: re.Match[str]) -> str:
    return f"cuda{found[1]}" if found[1] else "CUDA"


def _examined(file: str) -> bool:
    """Whether a file is code of the model or of a library in it; so is what is made as text."""
    return kind_of(file) != "skipped" or file.startswith("<")
