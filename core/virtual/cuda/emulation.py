"""`CudaEmulation`: within it, code that asks for CUDA gets virtual GPUs. The thread that enters it; others see it
too."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, count
from types import FrameType
from typing import Any

import torch
from torch import nn, overrides, serialization
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from devexplorer.core.base import first_line
from devexplorer.core.virtual.backend import backward_guard, installed, set_data
from devexplorer.core.virtual.cuda.cards import (
    TYPES,
    Cards,
    Patches,
    dtype_of,
    in_words_of_cuda,
    read_as_cuda,
    speak_of_cuda,
    tensor_type,
)
from devexplorer.core.virtual.cuda.functions import (
    accelerator_functions,
    cuda_functions,
    device_classes,
    imitate_amp,
    imitate_defaults,
    imitate_files,
    imitate_generators,
    imitate_lazy,
    leave_uncompiled,
    refuse,
)
from devexplorer.core.virtual.cuda.on_cpu import OnCpu
from devexplorer.core.virtual.device.accounting import InOrder, Timed
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators.tensor import VirtualTensor


class Observer:
    """Hears of each device that code names, and of what virtual GPUs cannot do in CUDA's place. This one does nothing
    with it.

    `frame` is where the emulation was asked: the code in question is there or further out.
    """

    def seen(self, frame: FrameType | None, argument: str | None = None) -> None:
        """A device was named in a call made at this frame, in an argument of that name."""

    def missing(self, name: str, frame: FrameType | None) -> None:
        """A card was named that is not there; CUDA's error follows."""

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """Something was used that has no equivalent on a virtual GPU; without a frame: at no particular line."""


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
    `observer` hears what the code asks for. With `spoken` also what people read says `cuda:1`: `repr` of tensors,
    errors, the names of types, saved files. All changes of torch are taken back on the way out.
    """

    def __init__(
        self, devices: int, observer: Observer | None = None, *, virtual: bool = True, spoken: bool = False
    ) -> None:
        self._patches = Patches()
        self._observer = observer or Observer()
        self._cards = (
            Cards(devices, lambda name: self._observer.missing(name, sys._getframe(1))) if virtual and devices else None
        )
        self._spoken = spoken and self._cards is not None
        self._mode: Any = DeviceCalls(self._observer, self._cards, lambda: self._patches.on, self._spoken)
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
        imitate_files(patches, cards, self._spoken)
        speak_of_cuda(patches, cards)
        if self._spoken:
            read_as_cuda(patches, virtual_cards()[: cards.count])
            leave_uncompiled(patches, self._not_checked)

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


# Sees every call of torch that names a device, and turns CUDA's into virtual GPUs'.

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

    def __init__(self, observer: Observer, cards: Cards | None, active: Callable[[], bool], spoken: bool) -> None:
        super().__init__()
        self._observer = observer
        self._cards = cards
        self._active = active
        self._spoken = spoken
        self._special: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: self._cuda,
            torch.Tensor.to: self._to,
            torch.Tensor.type: self._type,
        }
        if cards is not None:
            self._special |= {
                torch.Tensor.data.__set__: self._set_data,  # type: ignore[attr-defined]
                torch.Tensor.pin_memory: self._pin_memory,
                torch.autograd.grad: self._grad,
                torch.Tensor.register_hook: self._hook,
                torch.Tensor.register_post_accumulate_grad_hook: self._hook,
            }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._active():
            return func(*args, **(kwargs or {}))
        if not self._spoken:
            return self._call(func, args, kwargs)
        try:
            return self._call(func, args, kwargs)
        except Exception as error:
            in_words_of_cuda(error)
            raise

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
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

    def _grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        with backward_guard():
            return func(*args, **kwargs)

    def _hook(self, func: Any, args: Any, kwargs: Any) -> Any:
        hook = args[1] if len(args) > 1 else kwargs["hook"]
        return func(args[0], self.within(hook))


# Streams and events of virtual GPUs, on which everything is done when it returns.


class _CurrentEmulation(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Any] = {}


def kinds(cards: Cards) -> dict[str, Any]:
    """`torch.cuda.Stream`, `Event` and what goes with them, for these cards."""
    numbers = count(1)
    current = _CurrentEmulation()

    class Stream(InOrder):
        """Orders work of a card that is done in order anyway."""

        def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
            self.device_index = cards.ordinal(device)
            self.device = cards.cuda(self.device_index)
            self.priority = priority
            self.stream_id = next(numbers)
            self.cuda_stream = self.stream_id

        def record_event(self, event: Any = None) -> Any:
            """An event that has happened."""
            event = Event() if event is None else event
            event.record(self)
            return event

        def __enter__(self) -> Any:
            return StreamContext(self).__enter__()

        def __exit__(self, *error: Any) -> None:
            current.streams.pop(self.device_index, None)

    class StreamContext:
        """`torch.cuda.stream(...)`: its card and stream are the current ones within."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream
            self._before: tuple[int, Any] = (0, None)

        def __enter__(self) -> Any:
            if self.stream is not None:
                index = self.stream.device_index
                self._before = cards.current, current.streams.get(index)
                cards.current = index
                current.streams[index] = self.stream
            return self.stream

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                cards.current = self._before[0]
                current.streams[self.stream.device_index] = self._before[1]

    class Event(Timed):
        """A moment on the simulated clock of a card."""

        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._timed, self._gpu, self._seconds = enable_timing, None, None
            self.device: torch.device | None = None

        def record(self, stream: Any = None) -> None:
            """Note the time."""
            index = cards.current if stream is None else stream.device_index
            self.device, self._gpu = cards.cuda(index), cards.gpu(index)
            self._seconds = self._gpu.clock.thread_seconds

    def current_stream(device: Any = None) -> Any:
        index = cards.ordinal(device)
        return current.streams.get(index) or default_stream(index)

    default: dict[int, Any] = {}

    def default_stream(device: Any = None) -> Any:
        index = cards.ordinal(device)
        if index not in default:
            default[index] = Stream(index)
            default[index].stream_id = default[index].cuda_stream = 0
        return default[index]

    def set_stream(stream: Any) -> None:
        if stream is not None:
            cards.current = stream.device_index
            current.streams[stream.device_index] = stream

    return {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
    }


# `nn.DataParallel` on virtual GPUs: the batch split over the cards, one card after the other.


def imitate_data_parallel(patches: Patches, cards: Cards) -> None:
    """Let a `DataParallel` run each part of the batch with the parameters copied to its card, and bring the results
    together."""

    def forward(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(mode, OnCpu) for mode in _get_current_function_mode_stack()):
            return parallel.module(*inputs, **kwargs)
        devices = [cards.virtual(index) for index in parallel.device_ids]
        first = devices[0]
        for tensor in chain(parallel.module.parameters(), parallel.module.buffers()):
            if tensor.device != first:
                raise RuntimeError(
                    f"module must have its parameters and buffers on device {parallel.src_device_obj} (device_ids[0])"
                    f" but found one of them on device: {cards.spoken(tensor.device)}"
                )
        parts = _scattered((inputs, kwargs), devices, parallel.dim)
        if len(devices) == 1 or len(parts) == 1:
            arguments, named = parts[0]
            return parallel.module(*arguments, **named)
        replicas = [_replica(parallel.module, device) for device, _ in zip(devices, parts, strict=False)]
        results = []
        for replica, device, (arguments, named) in zip(replicas, devices, parts, strict=False):
            before = cards.current
            cards.current = device
            try:
                results.append(replica(*arguments, **named))
            finally:
                cards.current = before
        return _gathered(results, cards.virtual(parallel.output_device), parallel.dim)

    patches.call(nn.DataParallel, "forward", forward)


def _replica(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy for one card, as `torch.nn.parallel.replicate` makes it: of each registered module another object with the
    same attributes, its parameters plain tensors. What a list holds is still the module that was copied."""
    originals = list(module.modules())
    copies: dict[nn.Module, Any] = {original: original._replicate_for_data_parallel() for original in originals}
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for original, copy in copies.items():
        copy._former_parameters = {}
        for name, child in original._modules.items():
            copy._modules[name] = None
            if child is not None:
                setattr(copy, name, copies[child])
        for name, parameter in original._parameters.items():
            if parameter is None:
                copy._parameters[name] = None
                continue
            if parameter not in moved:  # a tied one stays tied
                there = parameter.to(device)
                moved[parameter] = there.view_as(there) if there is parameter else there
            setattr(copy, name, moved[parameter])
            copy._former_parameters[name] = moved[parameter]
        for name, buffer in original._buffers.items():
            if buffer is not None:
                copy._buffers[name] = buffer.to(device)
    result: nn.Module = copies[module]
    return result


def _scattered(value: Any, devices: Sequence[torch.device], dim: int) -> list[Any]:
    """A part for each card: tensors in equal pieces, as many as there are rows for; everything else is given to all."""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    pieces = min((len(tensor.chunk(len(devices), dim)) for tensor in tensors), default=1)
    return [_part(value, index, pieces, device, dim) for index, device in enumerate(devices[:pieces])]


def _part(value: Any, index: int, pieces: int, device: torch.device, dim: int) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.chunk(pieces, dim)[index].to(device), value)


def _gathered(results: list[Any], device: torch.device, dim: int) -> Any:
    def together(*items: Any) -> Any:
        if not isinstance(items[0], torch.Tensor):
            return items[0]
        join = torch.stack if all(item.dim() == 0 for item in items) else partial(torch.cat, dim=dim)
        return join([item.to(device) for item in items])

    return tree_map(together, *results)
