"""What torch and user code expect of an accelerator by its name: `torch.vgpu`, `torch.autocast("vgpu")`,
`torch.Generator`, `torch.Stream` and `torch.Event`, and `torch.load(file, map_location="vgpu:1")`. Any thread; all
figures are the virtual GPUs'.

Autocast: torch has the lists of operations in C++ for its own devices (`aten/src/ATen/autocast_mode.h`); for a device
in Python they are registered here. Unlike there, a weight's cast is not kept between uses, but within `keeping_casts`.

The functions of `torch.accelerator` call some of `torch._C`, which ask the device guard and the allocator that a device
in C++ has. While `vgpu` is the accelerator of the process, the answers come from the virtual GPUs; each function is
replaced only where this torch has it.

`torch.Generator`, `torch.Stream` and `torch.Event`: the C++ behind them asks the device's hooks, and those of a Python
device cannot answer. So the names in `torch` become classes that dispatch on the device; for other devices they return
torch's objects, and `isinstance` works as before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from devexplorer.core.virtual.device import accounting
from devexplorer.core.virtual.device.accounting import (
    KIND,
    PRIVATE_USE,
    Event,
    Stream,
    count_storage,
    current_gpu,
    current_stream,
    gpu_named,
    gpu_of,
    gpus,
    set_current,
    set_stream,
)
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators.handlers import charge_copy
from devexplorer.core.virtual.operators.operations import DTYPE_NAMES

KEY = "AutocastPrivateUse1"

LOWER = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
         "convolution", "addmm",
         "addmv", "addr", "matmul", "mm", "mv", "linear", "addbmm", "baddbmm", "bmm",
         "scaled_dot_product_attention")  # fmt: skip
"""They run in autocast's dtype."""

FULL = ("exp", "log", "log2", "log10", "log1p", "expm1", "rsqrt", "reciprocal", "pow.Tensor_Scalar", "softplus",
        "layer_norm", "group_norm",
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "nll_loss2d", "cross_entropy_loss", "kl_div",
        "cosine_similarity", "binary_cross_entropy_with_logits", "softmax.int", "log_softmax.int", "cumsum", "cumprod",
        "sum",
        "sum.dim_IntList", "prod", "norm.Scalar", "dist", "cdist")  # fmt: skip
"""They run in float32."""

_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None
"""`id()` of a weight -> itself and its cast; None: casts are not kept."""


@contextmanager
def keeping_casts() -> Iterator[None]:
    """Cast each float32 leaf that requires a gradient once, and keep that until the end, as CUDA's autocast does until
    it ends.

    torch does not notify a Python device when its autocast ends, so this goes around it. For plans, which
    are on one thread.
    """
    global _casts
    before, _casts = _casts, {}
    try:
        yield
    finally:
        _casts = before


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if (
        _casts is None
        or value.dtype is not torch.float32
        or dtype is torch.float32
        or not (value.is_leaf and value.requires_grad)
    ):
        return value.to(dtype)
    if id(value) not in _casts:
        _casts[id(value)] = value, value.to(dtype)
    return _casts[id(value)][1]


def register_autocast(everything: Any, aten: Any) -> None:
    """Register both lists, and that every other operation takes its tensors as they are."""
    everything.fallback(torch.library.fallthrough_kernel, KEY)
    for names, lower in ((LOWER, True), (FULL, False)):
        for name in names:
            aten.impl(name, _casting(name, lower), KEY)


def _casting(name: str, lower: bool) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    key = torch._C._parse_dispatch_key(KEY)
    assert key is not None
    keys = torch._C.DispatchKeySet(key)

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("vgpu") if lower else torch.float32

        def cast(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                castable = (
                    value.is_floating_point() and value.dtype is not torch.float64 and value.device.type == "vgpu"
                )
                return _cast(value, dtype) if castable else value
            return value

        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operation(*map(cast, args), **{key: cast(value) for key, value in kwargs.items()})

    return run


def register_module() -> None:
    """Let `torch.accelerator` answer for virtual GPUs where they are the accelerator."""
    for name, ours in _ANSWERS.items():
        original = getattr(torch._C, f"_accelerator_{name}", None)
        if original is not None:
            setattr(torch._C, f"_accelerator_{name}", _either(original, ours))


def _either(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*args: Any) -> Any:
        accelerator = torch._C._accelerator_getAccelerator()
        return (ours if accelerator is not None and accelerator.type == KIND else original)(*args)

    return answer


def _set_index(index: int) -> None:
    if index >= 0:
        set_current(gpu_named(index))


def exchange(index: int) -> int:
    """Change the current device and return the one before; a negative index changes nothing."""
    before = current_gpu().index
    _set_index(index)
    return before


def empty_cache() -> None:
    """Give cached segments of every device back."""
    for gpu in gpus():
        gpu.memory.empty_cache()


def reset_peak(device: Any = None) -> None:
    """Let the peaks start again."""
    gpu_named(device).memory.reset_peak()


def reset_accumulated(device: Any = None) -> None:
    """Let the sums of what came and went start again."""
    gpu_named(device).memory.reset_accumulated()


def memory_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device, as cudaMemGetInfo counts: cached memory is not free."""
    gpu = gpu_named(device)
    return gpu.profile.usable_bytes - gpu.used_bytes, gpu.profile.usable_bytes


def _capability(index: int) -> dict[str, Any]:
    gpu_named(index)
    return {"supported_dtypes": {getattr(torch, name) for name in _DTYPES if hasattr(torch, name)} | set(DTYPE_NAMES)}


_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "complex64", "complex128")

_ANSWERS: dict[str, Callable[..., Any]] = {
    "getDeviceIndex": lambda: current_gpu().index,
    "setDeviceIndex": _set_index,
    "exchangeDevice": exchange,
    "maybeExchangeDevice": exchange,
    "getStream": current_stream,
    "setStream": set_stream,
    "synchronizeDevice": gpu_named,
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": lambda index: gpu_named(index).memory.statistics(),
    "resetAccumulatedStats": reset_accumulated,
    "resetPeakStats": reset_peak,
    "getMemoryInfo": memory_info,
    "getDeviceCapability": _capability,
}


Where: TypeAlias = "torch.device | str | int | None"


class Properties(NamedTuple):
    """What the profile knows of a card."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int | None


def _counted(counter: str, figure: str) -> staticmethod[..., int]:
    """The function that returns one of the allocator's statistics: bytes in live tensors (rounded as the allocator
    does), or in segments."""
    return staticmethod(lambda device=None: gpu_named(device).memory.statistics()[counter]["all"][figure])


class VgpuModule:
    """What `torch.vgpu` is. `vgpu` without a number means the current device of the thread, by default
    `vgpu:0`."""

    Stream = accounting.Stream
    Event = accounting.Event
    current_stream = staticmethod(accounting.current_stream)
    default_stream = staticmethod(accounting.default_stream)
    set_stream = staticmethod(accounting.set_stream)
    mem_get_info = staticmethod(memory_info)
    empty_cache = staticmethod(empty_cache)
    reset_peak_memory_stats = staticmethod(reset_peak)
    reset_accumulated_memory_stats = staticmethod(reset_accumulated)

    def is_available(self) -> bool:
        """Whether there is a virtual GPU."""
        return bool(gpus())

    def is_initialized(self) -> bool:
        """Nothing has to be initialised."""
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """How many virtual GPUs there are."""
        return len(gpus())

    def current_device(self) -> int:
        """What `vgpu` without a number means on this thread."""
        return current_gpu().index

    def set_device(self, device: Where) -> None:
        """Let `vgpu` without a number mean this device on the calling thread."""
        set_current(gpu_named(device))

    _exchange_device = _maybe_exchange_device = staticmethod(exchange)

    @contextmanager
    def device(self, device: Where) -> Iterator[None]:
        """The current device within a block; None or a negative number changes nothing."""
        if device is None or (isinstance(device, int) and device < 0):
            yield
            return
        before = current_gpu()
        set_current(gpu_named(device))
        try:
            yield
        finally:
            set_current(before)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        """The current stream within a block, its device included; None changes nothing."""
        if stream is None:
            yield
            return
        with stream:
            yield

    def is_current_stream_capturing(self) -> bool:
        """Nothing is captured: virtual GPUs have no graphs."""
        return False

    def get_device_properties(self, device: Where = None) -> Properties:
        """What the profile knows."""
        profile = gpu_named(device).profile
        return Properties(profile.name, *self.get_device_capability(device), profile.usable_bytes, profile.sm_count)

    def get_device_name(self, device: Where = None) -> str:
        """The profile's name."""
        return gpu_named(device).profile.name

    def get_device_capability(self, device: Where = None) -> tuple[int, int]:
        """Compute capability (major, minor); (0, 0) for a card that has none."""
        major, _, minor = gpu_named(device).profile.compute_capability.partition(".")
        return (int(major), int(minor)) if minor else (0, 0)

    def synchronize(self, device: Where = None) -> None:
        """Operations are done when they return."""
        gpu_named(device)

    memory_allocated = _counted("allocated_bytes", "current")
    max_memory_allocated = _counted("allocated_bytes", "peak")
    memory_reserved = _counted("reserved_bytes", "current")
    max_memory_reserved = _counted("reserved_bytes", "peak")

    def memory_stats(self, device: Where = None) -> dict[str, int]:
        """What `torch.accelerator.memory_stats` says."""
        return torch.accelerator.memory.memory_stats(gpu_named(device).index)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """dtypes for `torch.autocast("vgpu")`."""
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        """Does nothing: random values come from the CPU's generator, so a seed gives the same ones on every
        device."""

    def manual_seed_all(self, seed: int) -> None:
        """As `manual_seed`."""

    def initial_seed(self) -> int:
        """The CPU generator's seed."""
        return torch.initial_seed()

    def get_rng_state(self, device: Where = None) -> torch.Tensor:
        """The CPU generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Where = None) -> None:
        """Set the CPU generator's state."""
        torch.set_rng_state(state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """The CPU generator's state for each device."""
        return [torch.get_rng_state() for _ in gpus()]

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        """Set the CPU generator's state."""
        for state in states[:1]:
            torch.set_rng_state(state)


_CGenerator: Any = torch.Generator


class VirtualGenerator(_CGenerator):  # type: ignore[misc]  # torch's type is final only to mypy
    """A generator of the CPU: a seed gives the same numbers on every device."""

    _index: int

    def __new__(cls, device: Any = KIND) -> VirtualGenerator:
        """Of the device that is named."""
        gpu = gpu_named(device)
        made = super().__new__(cls)
        made._index = gpu.index
        return cast(VirtualGenerator, made)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Everything is done in `__new__`."""

    @property
    def device(self) -> torch.device:
        """The virtual GPU."""
        return torch.device(KIND, self._index)

    def clone_state(self) -> VirtualGenerator:
        """Another generator that goes on from the same state."""
        return _restored(self._index, self.get_state())

    graphsafe_get_state = clone_state

    def __reduce__(self) -> Any:
        return _restored, (self._index, self.get_state())


def _restored(index: int, state: torch.Tensor) -> VirtualGenerator:
    made = VirtualGenerator(torch.device(KIND, index))
    made.set_state(state)
    return made


def register_names() -> None:
    """Replace torch's classes."""
    for name, virtual, accelerator_by_default in _TYPES:
        setattr(torch, name, _either_type(name, getattr(torch, name), virtual, accelerator_by_default))


_TYPES: tuple[tuple[str, Callable[..., Any], bool], ...] = (
    ("Generator", VirtualGenerator, False),
    ("Stream", Stream, True),
    ("Event", lambda device=None, **options: Event(**options, device=device), True),
)
"""Name, what makes ours, and whether no device means the accelerator (else the CPU)."""


def _either_type(name: str, original: Any, virtual: Callable[..., Any], accelerator_by_default: bool) -> Any:
    class Kind(type(original)):  # type: ignore[misc]  # whatever metaclass torch gave it
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original) if cls is either else super().__instancecheck__(value)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original) if cls is either else super().__subclasscheck__(other)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not either:  # a user-defined subclass
                return super().__call__(*args, **kwargs)
            device = args[0] if args else kwargs.get("device")
            return (virtual if _is_virtual(device, kwargs, accelerator_by_default) else original)(*args, **kwargs)

    either = Kind(name, (original,), {"__doc__": original.__doc__, "__module__": "torch", "__slots__": ()})
    return either


def _is_virtual(device: Any, named: dict[str, Any], accelerator_by_default: bool) -> bool:
    if "device_type" in named:
        return bool(named["device_type"] == PRIVATE_USE)
    if device is None:
        accelerator = torch._C._accelerator_getAccelerator() if accelerator_by_default else None
        return accelerator is not None and accelerator.type == KIND
    return torch.device(device).type == KIND


class VirtualStorage(torch.UntypedStorage):
    """CPU memory that reports a virtual GPU as its device and is counted there.

    torch's own `UntypedStorage(size, device="vgpu:1")` has no allocator to ask, and would end the process.
    """

    _gpu: VirtualGpu

    def __new__(cls, nbytes: int = 0, *, device: Any = KIND) -> VirtualStorage:
        """`nbytes` without values. Raises torch's `OutOfMemoryError` when the device is full."""
        gpu = gpu_of(torch.device(device))
        made = super().__new__(cls, nbytes)  # type: ignore[call-arg]  # torch publishes no types for it
        count_storage(made, gpu)
        made._gpu = gpu
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # torch's is read-only as well
        """The virtual GPU."""
        return torch.device(KIND, self._gpu.index)

    def __reduce__(self) -> Any:
        # In a file it is the CPU's, as every tensor on a virtual GPU is.
        host: torch.UntypedStorage = self.cpu()  # type: ignore[no-untyped-call]
        return torch.Tensor.untyped_storage, (torch.empty(0, dtype=torch.uint8).set_(host),)


def register() -> None:
    """Let torch load to virtual GPUs this way, also where `map_location` is a function that calls `storage.vgpu(1)`."""
    torch.serialization.register_package(19, lambda storage: None, _restore)  # before torch's own for such devices (23)
    setattr(torch.UntypedStorage, KIND, _move_storage)
    # torch's own ends the process for a virtual GPU
    torch.UntypedStorage.__new__ = _storage  # type: ignore[method-assign]


def _storage(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """`torch.UntypedStorage(size or values, device=...)`."""
    make: Any = torch._C.StorageBase.__new__
    if device is None:
        return make(cls, *args, **kwargs)
    where = torch.device(device)
    if where.type != KIND:
        return make(cls, *args, device=where, **kwargs)
    if args and not isinstance(args[0], int):
        return _move_storage(torch.UntypedStorage(*args, **kwargs), where)
    return VirtualStorage(*args, **kwargs, device=where)


def _restore(storage: Any, location: str) -> Any:
    return _move_storage(storage, location) if location.partition(":")[0] == KIND else None


def _move_storage(
    storage: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> torch.UntypedStorage:
    where = torch.device(KIND, device or 0) if isinstance(device, int | None) else torch.device(device)
    if storage.device == where:
        return storage
    moved = VirtualStorage(storage.nbytes(), device=where)
    began = time.perf_counter()
    moved.copy_(storage)
    charge_copy(getattr(storage, "_gpu", None), moved._gpu, storage.nbytes(), time.perf_counter() - began)
    return moved
