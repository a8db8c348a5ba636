"""Sees every call of torch that names a device, and turns CUDA's into virtual GPUs'. The threads of the examined
code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.cuda.observer import Observer
from devexplorer.core.virtual.cuda.tensors import dtype_of
from devexplorer.core.virtual.operators.tensor import VirtualTensor
from devexplorer.core.virtual.tensor_swap import set_data

_CONCRETE = frozenset({"cuda", "vgpu", "xpu", "mps"})


def concrete(device: Any) -> bool:
    """Whether this names an accelerator."""
    if isinstance(device, torch.device):
        return device.type in _CONCRETE
    if isinstance(device, str):
        return device.partition(":")[0] in _CONCRETE
    return isinstance(device, int) and not isinstance(device, bool)


class DeviceCalls(TorchFunctionMode):
    """`cards` is None where CUDA is real or is not there: then it only looks."""

    def __init__(self, observer: Observer, cards: Cards | None, active: Callable[[], bool]) -> None:
        super().__init__()
        self._observer = observer
        self._cards = cards
        self._active = active
        self._special: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: self._cuda,
            torch.Tensor.to: self._to,
            torch.Tensor.type: self._type,
        }
        if cards is not None:
            self._special |= {
                torch.Tensor.data.__set__: self._set_data,  # type: ignore[attr-defined]
                torch.Tensor.pin_memory: self._pin_memory,
                torch.Tensor.register_hook: self._hook,
                torch.Tensor.register_post_accumulate_grad_hook: self._hook,
            }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._active():
            return func(*args, **(kwargs or {}))
        special = self._special.get(func)
        if special is not None:
            return special(func, args, kwargs or {})
        if kwargs:
            device = kwargs.get("device")
            if device is not None and concrete(device):
                kwargs = {**kwargs, "device": self._mapped(device, "device")}
            return func(*args, **kwargs)
        return func(*args)

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs within this mode also where torch calls it from backward or on another thread, which
        know no modes."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._active() or any(mode is self for mode in _get_current_function_mode_stack()):
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return run

    def _mapped(self, device: Any, argument: str | None = None) -> Any:
        mapped = device if self._cards is None else self._cards.virtual(device)
        self._observer.seen(sys._getframe(1), argument)
        return mapped

    def _cuda(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = args[1] if len(args) > 1 else kwargs.get("device")
        if self._cards is None:
            self._observer.seen(sys._getframe(1))
            return func(*args, **kwargs)
        options = {name: value for name, value in kwargs.items() if name in ("non_blocking", "memory_format")}
        if len(args) > 2:
            options["non_blocking"] = args[2]
        where = self._mapped(torch.device("cuda", self._cards.current) if device is None else device)
        return args[0].to(where, **options)

    def _to(self, func: Any, args: Any, kwargs: Any) -> Any:
        if len(args) > 1 and concrete(args[1]):
            args = (args[0], self._mapped(args[1]), *args[2:])
        elif kwargs and concrete(kwargs.get("device")):
            kwargs = {**kwargs, "device": self._mapped(kwargs["device"], "device")}
        return func(*args, **kwargs)

    def _type(self, func: Any, args: Any, kwargs: Any) -> Any:
        wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
        dtype = dtype_of(wanted)
        if dtype is not None:
            self._observer.seen(sys._getframe(1))
            if self._cards is not None:
                return args[0].to(self._cards.virtual("cuda"), dtype)
        result = func(*args, **kwargs)
        if wanted is None and self._cards is not None and isinstance(result, str):
            return result.replace("torch.vgpu.", "torch.cuda.")
        return result

    def _set_data(self, func: Any, args: Any, kwargs: Any) -> Any:
        # `parameter.data = parameter.data.to("cuda:0")`: among real devices one tensor takes the place of another
        tensor, value = args
        if isinstance(value, VirtualTensor) and not isinstance(tensor, VirtualTensor):
            return set_data(tensor, value)
        return func(*args, **kwargs)

    def _pin_memory(self, func: Any, args: Any, kwargs: Any) -> Any:
        # The memory of a virtual GPU's host is the same everywhere: a copy is all that can be seen of
        # pinning.
        return func(args[0]) if isinstance(args[0], VirtualTensor) else args[0].detach().clone()

    def _hook(self, func: Any, args: Any, kwargs: Any) -> Any:
        hook = args[1] if len(args) > 1 else kwargs["hook"]
        return func(args[0], self.within(hook))
