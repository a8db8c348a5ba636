"""Puts virtual GPUs into torch as the device `vgpu`, offers what the engine and the workspace need of them, and moves
tensors there and back without replacing the tensor object. Any thread.

On real devices `Module.to` replaces what is inside a parameter (`parameter.data = moved`), and the object stays. A
tensor on a virtual GPU has another Python class than one on the CPU, so here two objects exchange their contents. torch
has that too (`torch.utils.swap_tensors`, which `Module.to` calls on the way to a virtual GPU), but hooks and attributes
stay behind there, and it refuses tensors that a graph or a weak reference knows. So pairs with a virtual tensor go
through `swap_contents`, all others to torch's own.

torch's dispatcher is one for the process, so is this: `install` can be called any number of times. It rests on
`torch.utils.backend_registration._setup_privateuseone_for_python_backend` (torch >= 2.10), which is private:
`unavailable` looks first. Four kernels and a fallback below Python's key serve what torch builds there itself
(`torch.tensor(..., device=)`, `.to()`, indexing, factories); everything else arrives at
`VirtualTensor.__torch_dispatch__`. No dispatch mode is on, so CPU tensors pay nothing.

torch has one accelerator in a process, and takes a registered backend for it, before CUDA: every backward on a CUDA
card then fails in autograd's engine (torch 2.14.1; nothing takes a registration back). So `install` refuses where CUDA
cards are usable. Beside them virtual GPUs are in a process from which the cards are hidden (`without_cards`).
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import backend_registration

from devexplorer.core.base import Unavailable
from devexplorer.core.devices.cuda_visible_devices import VARIABLE
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import DeviceInfo
from devexplorer.core.virtual.device.accounting import KIND, gpu_of, is_virtual, set_machine
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.virtual.operators import handlers, kernels
from devexplorer.core.virtual.operators.backward import backward_guard, device_guard
from devexplorer.core.virtual.operators.tensor import (
    VirtualTensor,
    new_tensor,
    register_handlers,
    register_kernels,
    register_set_data,
)
from devexplorer.core.virtual.torch_api import lazy, module, parallel, tracing
from devexplorer.core.virtual.torch_api.lazy import move_lazily, move_uninitialised

OWN = ("_inner", "_gpu", "_is_param")
"""Attributes that belong to the contents, not to the object."""
DENSE = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia")
"""Devices between which torch replaces contents in place."""
_EDGE: Any = torch.autograd.graph.get_gradient_edge


def register(library: Any) -> None:
    """Let `Module.to` and `tensor.data = …` keep objects."""
    library.impl("_has_compatible_shallow_copy_type", _replaceable, "AutogradPrivateUse1")
    register_set_data(set_data)
    torch.utils.swap_tensors = _swapping(torch.utils.swap_tensors)


def _replaceable(tensor: Tensor, new: Tensor) -> bool:
    """Whether `tensor.data = new` works: from a virtual GPU anywhere, to one only from another one."""
    return isinstance(tensor, VirtualTensor) and (
        isinstance(new, VirtualTensor) or (new.device.type in DENSE and new.layout is torch.strided)
    )


KERNELS = {torch.ops.aten._has_compatible_shallow_copy_type.default: _replaceable}
"""Asked below autograd as well: by what resizes."""


def _swapping(original: Any) -> Callable[[Tensor, Tensor], None]:
    def swap_tensors(t1: Tensor, t2: Tensor) -> None:
        if any(isinstance(tensor, VirtualTensor) for tensor in (t1, t2)) and t1.is_leaf and t2.is_leaf:
            swap_contents(t1, t2)
        else:
            original(t1, t2)

    swap_tensors.__doc__ = original.__doc__
    return swap_tensors


def set_data(tensor: Tensor, value: Tensor) -> None:
    """`tensor.data = value` where the value is on a device of another kind: the object is a tensor there from now on,
    its gradient too."""
    if not tensor.is_leaf:
        raise RuntimeError(
            f"only a leaf can be given data on another device; this tensor on {tensor.device} was computed"
        )
    new: Tensor = value.data
    new = (
        nn.Parameter(new, tensor.requires_grad)
        if isinstance(tensor, nn.Parameter)
        else new.requires_grad_(tensor.requires_grad)
    )
    gradient = tensor.grad
    tensor.grad = None
    swap_contents(tensor, new)
    if gradient is not None and gradient.shape == new.shape:
        moved = gradient.to(value.device, value.dtype)
        if gradient.is_leaf:
            swap_contents(gradient, moved)
        tensor.grad = gradient if gradient.is_leaf else moved


def swap_contents(first: Tensor, second: Tensor) -> None:
    """Swap class, contents and device of two leaves. Hooks stay with the objects; the first one keeps its
    attributes."""
    for tensor in (first, second):
        _end_recording(tensor)
    kept = {name: value for name, value in first.__dict__.items() if name not in OWN}
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)
    for name, value in kept.items():
        first.__dict__.setdefault(name, value)
    for tensor in (first, second):
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(tensor, hooks) is not None:
                setattr(tensor, hooks, getattr(tensor, hooks))  # ties what Python keeps to the new contents


def _end_recording(tensor: Tensor) -> None:
    """A graph that was recorded before would put its gradient into contents that are no longer used: let its backward
    say so."""
    if tensor.requires_grad and tensor._use_count() > 1:  # type: ignore[attr-defined]
        _EDGE(tensor).node.register_prehook(_refuse)


def _refuse(_: Any) -> None:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward; run forward again on the new device,"
        " then backward"
    )


__all__ = [
    "VirtualTensor",
    "add_virtual_gpus",
    "backward_guard",
    "beside_cards",
    "install",
    "is_virtual",
    "meta_empty",
    "move_lazily",
    "move_uninitialised",
    "swapping",
    "unavailable",
    "warm_up",
]

_lock = threading.Lock()
_installed: list[tuple[VirtualMachine, tuple[Any, ...]]] = []
"""The machine of this process and the kernels' registrations (which end with their objects); empty before `install`."""


def unavailable() -> str | None:
    """Why this process cannot have virtual GPUs, in one sentence; None when it can. Changes nothing."""
    return unsupported() or beside_cards()


def beside_cards(listed: Sequence[DeviceInfo] = ()) -> str | None:
    """Why virtual GPUs have to be in another process than the CUDA cards of this one; None where it has none.
    `listed`: its devices, where they are known; a driver that hangs need not be asked twice."""
    if _installed:
        return None
    devices = listed or TorchBackend().devices()
    cards = [info.id for info in devices if info.kind == "cuda" and info.usable]
    if not cards and not torch.cuda.is_initialized():
        return None
    named = ", ".join(cards) or "CUDA"
    return (
        f"this process can use {named}, and PyTorch fails to train there once virtual GPUs are registered; start a"
        f" process with {VARIABLE}= (empty) for virtual GPUs"
    )


def unsupported() -> str | None:
    """Why virtual GPUs cannot work with this torch, in one sentence; None when they can. Changes nothing."""
    if _installed:
        return None
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend") or not hasattr(torch._C, "_acc"):
        return f"torch {torch.__version__} has no hook for Python devices; virtual GPUs need torch 2.10 or newer"
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        return (
            f"this process already has a device '{name}' in the one place that torch keeps for such devices; start with"
            f" TORCH_DEVICE_BACKEND_AUTOLOAD=0 to have virtual GPUs instead of '{name}'"
        )
    return None


def installed() -> VirtualMachine | None:
    """The machine, where there is one already."""
    return _installed[0][0] if _installed else None


def install() -> VirtualMachine:
    """Register the device `vgpu` with torch, once, and return the machine that holds its devices (none at first).

    The one place that registers: raises `Unavailable` where this process must not, so that no way leads around it.
    """
    with _lock:
        if _installed:
            return _installed[0][0]
        reason = unavailable()
        if reason is not None:
            raise Unavailable(reason)
        machine = VirtualMachine()
        set_machine(machine)
        register_handlers(handlers.HANDLERS)
        register_kernels({**handlers.COPY_KERNELS, **KERNELS, **handlers.SUBCLASS_KERNELS})
        backend_registration._setup_privateuseone_for_python_backend(
            KIND, backend_module=module.VgpuModule(), device_guard=device_guard()
        )
        make_library: Any = torch.library.Library  # torch publishes no types for it
        library, everything = make_library("aten", "IMPL"), make_library("_", "IMPL")
        library.impl("empty.memory_format", _empty, "PrivateUse1")
        library.impl("empty_strided", _empty_strided, "PrivateUse1")
        library.impl("_copy_from", handlers.copy_from, "PrivateUse1")
        library.impl("_local_scalar_dense", handlers.scalar, "PrivateUse1")
        library.impl("_pin_memory", handlers.pin, "CPU")
        library.impl("record_stream", lambda tensor, stream: None, "PrivateUse1")  # FSDP calls it below Python's key
        for window in ("default", "periodic", "beta"):  # its kernel is chosen by the device, not by the dispatcher
            overload = getattr(torch.ops.aten.kaiser_window, window)
            library.impl(overload, partial(_factory, overload), "PrivateUse1")
        everything.fallback(_factory, "PrivateUse1")
        for irregular in ("SparsePrivateUse1", "SparseCsrPrivateUse1"):
            everything.fallback(_dense_only, irregular)
        module.register_autocast(everything, library)
        kernels.register(library)
        handlers.register(library)
        register(library)
        module.register()
        module.register_names()
        module.register_module()
        parallel.register_parallel()
        parallel.register_collectives()
        lazy.register()
        tracing.register_scripting()
        tracing.register_tracing()
        _installed.append((machine, (library, everything)))
        return machine


def add_virtual_gpus(spec: str, visible: str | None = None) -> list[str]:
    """Add virtual GPUs to this process, for scripts: `add_virtual_gpus("2x Tesla T4")`; returns their ids (`vgpu:0`,
    …).

    `visible` is what CUDA_VISIBLE_DEVICES would be for real cards: which of them there are, and in which order. Raises
    `BadInput` for a profile that does not exist, `Unavailable` where this torch has no hook for such devices, and where
    this process can use CUDA cards: training on them would fail from then on.
    """
    profiles = parse_virtual(spec)
    why = unavailable()
    if why is not None:
        raise Unavailable(f"virtual GPUs are not available: {why}")
    machine = install()
    if visible is not None:
        machine.set_visible(visible)
    return [device.id for device in machine.add(profiles)]


@contextmanager
def swapping() -> Iterator[None]:
    """Let `Module.to` swap the contents of parameters of every class, also of wrappers by other packages, so that they
    stay themselves.

    Parameters on virtual GPUs stay the same objects without it (`core.virtual.backend`). The flag is torch's and
    global: hold it only around a move.
    """
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def warm_up() -> None:
    """Pay now what torch would pay at the first operation of a tensor subclass: it imports its distributed tensors (0.3
    s)."""
    with contextlib.suppress(ImportError):  # a torch built without them has nothing to pay
        importlib.import_module("torch.distributed.tensor")


def meta_empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> VirtualTensor:
    """A tensor on a virtual GPU that has memory and costs time, but no values: for benchmarks and plans.

    What is computed with it has no values either; asking for them raises torch's error for meta tensors.
    """

    def make() -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    return new_tensor(make, prod(shape) * dtype.itemsize, gpu_of(torch.device(device)))


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()

    def make() -> torch.Tensor:
        return torch.empty(
            size, dtype=dtype, layout=layout, memory_format=memory_format or torch.contiguous_format, device="cpu"
        )

    return new_tensor(make, prod(size) * dtype.itemsize, gpu_of(device or torch.device(KIND)))


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    elements = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))

    def make() -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    return new_tensor(make, elements * dtype.itemsize, gpu_of(device or torch.device(KIND)))


def _dense_only(overload: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"virtual GPUs hold dense tensors only ({overload} is of a sparse one); keep it on the CPU or make it dense"
    )


def _factory(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Whatever else arrives below Python's key: factories that torch has for named backends only (`tril_indices`)."""
    device = kwargs.get("device")
    if device is None:
        raise NotImplementedError(f"{overload} does not work on virtual GPUs; do it on the CPU and move the result")
    return overload(*args, **{**kwargs, "device": torch.device("cpu")}).to(device)
