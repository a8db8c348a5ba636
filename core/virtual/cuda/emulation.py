"""`CudaEmulation`: within it, code that asks for CUDA gets virtual GPUs. The thread that enters it; others see it
too."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import overrides, serialization
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _device

from devexplorer.core.base import first_line
from devexplorer.core.virtual.backend import installed
from devexplorer.core.virtual.cuda.calls import DeviceCalls, concrete
from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.cuda.defaults import (
    imitate_amp,
    imitate_defaults,
    imitate_files,
    imitate_generators,
    imitate_lazy,
)
from devexplorer.core.virtual.cuda.functions import accelerator_functions, cuda_functions, device_classes
from devexplorer.core.virtual.cuda.observer import Observer
from devexplorer.core.virtual.cuda.parallel import imitate_data_parallel
from devexplorer.core.virtual.cuda.patches import Patches
from devexplorer.core.virtual.cuda.refused import refuse
from devexplorer.core.virtual.cuda.streams import kinds
from devexplorer.core.virtual.cuda.tensors import TYPES, speak_of_cuda, tensor_type
from devexplorer.core.virtual.device.machine import VirtualGpu


def names_cuda(error: BaseException) -> bool:
    """Whether torch refused an accelerator that is not there: code that asks for one failed.

    It is what the innermost exception says in its first line: torch has no exception class for it, and sentences of
    ours around it are not read.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = first_line(error).lower()
    return any(word in text for word in ("cuda", "nvidia driver", "accelerator device when none is available"))


def asks_for_cards(error: BaseException) -> bool:
    """Whether code failed because it asks for CUDA, which this machine does not have."""
    return names_cuda(error) and not torch.cuda.is_available()


def served() -> AbstractContextManager[object]:
    """Around code that asks for CUDA: it gets the virtual GPUs of this process. Where there are none, CUDA is what it
    is."""
    count = len(virtual_cards())
    return CudaEmulation(count) if count else nullcontext()


def virtual_cards() -> tuple[VirtualGpu, ...]:
    """The virtual GPUs that code sees here; none where there is no machine for them yet."""
    machine = installed()
    return () if machine is None else machine.gpus


_stack: Any = overrides  # the functions for its stack of modes are not published

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class CudaEmulation:
    """A context manager around building, moving and running a model.

    With `virtual` the code within sees `devices` CUDA cards, `cuda:N` being `vgpu:N`; the virtual
    GPUs have to be there already. Without it nothing is imitated: CUDA is what it is on this machine. In both cases
    `observer` hears what the code asks for. All changes of torch are taken back on the way out.
    """

    def __init__(self, devices: int, observer: Observer | None = None, *, virtual: bool = True) -> None:
        self._patches = Patches()
        self._observer = observer or Observer()
        self._cards = (
            Cards(devices, lambda name: self._observer.missing(name, sys._getframe(1))) if virtual and devices else None
        )
        self._mode: Any = DeviceCalls(self._observer, self._cards, lambda: self._patches.on)
        self._defaults: _Defaults | None = None
        self._visible: str | None = None

    def name_of(self, device: str) -> str:
        """What the examined code calls a device: `cuda:1` for `vgpu:1` while CUDA is imitated."""
        return device.replace("vgpu", "cuda", 1) if self._cards is not None else device

    def __enter__(self) -> CudaEmulation:
        self._defaults = _Defaults()
        self._visible = os.environ.get(_VISIBLE)
        try:
            self._watch()
            if self._cards is not None:
                self._imitate(self._cards)
            self._mode.__enter__()
        except BaseException:
            self._patches.undo()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            assert self._defaults is not None
            self._defaults.restore()
            if self._cards is not None and os.environ.get(_VISIBLE) != self._visible:
                why = "The code sets it while it runs; virtual GPUs are chosen before, so that it saw all of them."
                self._observer.not_checked(_VISIBLE, why, None)
        finally:
            self._patches.undo()

    def _not_checked(self, what: str, why: str) -> None:
        self._observer.not_checked(what, why, sys._getframe(1))

    def _seen(self) -> None:
        self._observer.seen(sys._getframe(1))

    def _watch(self) -> None:
        observer, cards, patches, mode = self._observer, self._cards, self._patches, self._mode
        enter, load, start = _device.DeviceContext.__init__, torch.load, threading.Thread.start
        apply, keep = BackwardCFunction.apply, saved_tensors_hooks.__init__

        def context(self: Any, device: Any) -> None:
            if concrete(device):
                mapped = device if cards is None else cards.virtual(device)
                observer.seen(sys._getframe(1), "device")
                device = mapped
            enter(self, device)

        def loaded(*args: Any, **kwargs: Any) -> Any:
            if concrete(kwargs.get("map_location", args[1] if len(args) > 1 else None)):
                observer.seen(sys._getframe(1), "map_location")
            return load(*args, **kwargs)

        def started(thread: threading.Thread) -> None:
            thread.run = mode.within(thread.run)  # type: ignore[method-assign]
            start(thread)

        def kept(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
            keep(self, pack_hook, mode.within(unpack_hook))  # a checkpoint runs its part of forward again in there

        patches.call(_device.DeviceContext, "__init__", context)
        patches.call(torch, "load", loaded)
        patches.call(serialization, "load", loaded)
        patches.call(threading.Thread, "start", started)
        patches.call(BackwardCFunction, "apply", mode.within(apply))
        patches.call(saved_tensors_hooks, "__init__", kept)

    def _imitate(self, cards: Cards) -> None:
        patches = self._patches
        cuda = {
            **cuda_functions(cards, self._not_checked, self._seen),
            **device_classes(cards, self._seen),
            **kinds(cards),
        }
        for name in TYPES:
            cuda[name] = tensor_type(name, self._placed)
        for name, value in cuda.items():
            self._put(name, value)
        for name, value in accelerator_functions(cards, cuda).items():
            if hasattr(torch.accelerator, name):
                patches.call(torch.accelerator, name, value)
        patches.put(torch.cuda, "default_generators", (torch.default_generator,) * cards.count)
        patches.call(torch.cuda.profiler, "start", lambda: None)
        patches.call(torch.cuda.profiler, "stop", lambda: None)
        patches.put(torch.cuda.nvtx, "_nvtx", _Marks())
        patches.call(torch.backends.cudnn, "is_available", lambda: True)
        patches.call(torch.backends.cuda, "is_built", lambda: True)
        imitate_amp(patches)
        refuse(patches, set(cuda), self._not_checked)
        imitate_lazy(patches, cards, self._seen)
        imitate_data_parallel(patches, cards)
        imitate_defaults(patches, cards)
        imitate_generators(patches, cards)
        imitate_files(patches, cards)
        speak_of_cuda(patches, cards)

    def _put(self, name: str, value: Any) -> None:
        """Replace something in torch.cuda, and in the modules there that it comes from."""
        original = getattr(torch.cuda, name, None)
        for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
            if original is not None and vars(owner).get(name) is original:
                if isinstance(value, type):
                    self._patches.put(owner, name, value)
                else:
                    self._patches.call(owner, name, value)

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._cards is not None
        return tensor.to(self._cards.virtual("cuda"))


class _Defaults:
    """torch's default device and its modes, which code may leave otherwise than it found them."""

    def __init__(self) -> None:
        self._context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        self._device = _device.CURRENT_DEVICE
        self._modes = list(_stack._get_current_function_mode_stack())

    def restore(self) -> None:
        """Put all of them back."""
        while _stack._len_torch_function_stack():
            _stack._pop_mode()
        for mode in self._modes:
            _stack._push_mode(mode)
        torch._GLOBAL_DEVICE_CONTEXT.device_context = self._context
        _device.CURRENT_DEVICE = self._device


class _Marks:
    """In place of NVTX: marks for a profiler that is not there."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: 0
