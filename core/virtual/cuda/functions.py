"""What torch answers in CUDA's place when virtual GPUs replace the cards: `torch.cuda` and `torch.accelerator`,
defaults, generators, files, mixed precision; and what virtual GPUs cannot do, each use noted as not checked. Any
thread."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch import nn, serialization
from torch.amp import autocast_mode, grad_scaler
from torch.nn.parallel import comm
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.virtual.backend import move_lazily
from devexplorer.core.virtual.cuda.cards import Cards, Patches, dtype_of
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter

NotChecked = Callable[[str, str], None]
"""Notes what could not be looked at, and why."""


class CudaProperties:
    """`torch.cuda.get_device_properties`: what the profile knows."""

    def __init__(self, gpu: VirtualGpu, capability: tuple[int, int], not_checked: NotChecked) -> None:
        self.name = gpu.profile.name
        self.major, self.minor = capability
        self.total_memory = gpu.profile.usable_bytes
        self.multi_processor_count = gpu.profile.sm_count
        self.is_integrated = self.is_multi_gpu_board = 0
        self.warp_size = 32  # of every CUDA card so far: CUDA C++ programming guide, hardware implementation
        self._not_checked = not_checked

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_"):
            self._not_checked(f"get_device_properties().{name}", "No profile of a virtual GPU says that.")
        raise AttributeError(f"a virtual GPU's properties have no {name}")

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"
        )


def device_classes(cards: Cards, seen: Callable[[], None]) -> dict[str, Any]:
    """`torch.cuda.device` and `device_of`: the current card within a block; `seen` is called when code names a card."""

    class device:  # noqa: N801  # torch's name
        """The current card within a block; None changes nothing."""

        def __init__(self, device: Any) -> None:
            if device is not None:
                seen()
            self.idx = cards.ordinal(device) if device is not None else -1
            self.prev_idx = -1

        def __enter__(self) -> None:
            self.prev_idx = cards.current
            if self.idx >= 0:
                cards.current = self.idx

        def __exit__(self, *_: object) -> None:
            cards.current = self.prev_idx

    class device_of(device):  # noqa: N801  # torch's name
        """The card of a tensor; one on the CPU changes nothing."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.device if obj.device.type in ("cuda", "vgpu") else None)

    return {"device": device, "device_of": device_of}


def cuda_functions(cards: Cards, not_checked: NotChecked, seen: Callable[[], None]) -> dict[str, Any]:
    """The functions of `torch.cuda` by name; `seen` is called when code names a card to work on."""
    gpu = cards.gpu

    def set_device(device: Any) -> None:
        seen()
        cards.current = device

    def empty_cache() -> None:
        for index in range(cards.count):
            gpu(index).memory.empty_cache()

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))  # random values of a virtual GPU come from the CPU's generator

    def set_state(state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state.cpu())

    def set_states(states: Iterable[torch.Tensor]) -> None:
        for state in states:
            set_state(state)

    def supports_bf16(including_emulation: bool = True) -> bool:
        return including_emulation or capability()[0] >= 8

    def properties(device: Any = None) -> CudaProperties:
        try:
            card = gpu(device)
        except torch.AcceleratorError:
            raise AssertionError("Invalid device id") from None  # torch asks before CUDA does
        return CudaProperties(card, capability(device), not_checked)

    vgpu = getattr(torch, KIND)
    answers = {name: _of_card(getattr(vgpu, function), cards) for name, function in _OF_CARD.items()}
    capability = answers["get_device_capability"]
    return {
        **answers,
        "is_available": lambda: cards.count > 0,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: cards.count,
        "current_device": lambda: cards.current,
        "set_device": set_device,
        "get_device_properties": properties,
        "is_bf16_supported": supports_bf16,
        "is_tf32_supported": lambda: capability()[0] >= 8,
        "is_current_stream_capturing": lambda: False,
        "empty_cache": empty_cache,
        "ipc_collect": lambda: None,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "seed": lambda: seed(random.getrandbits(63)),
        "seed_all": lambda: seed(random.getrandbits(63)),
        "initial_seed": vgpu.initial_seed,
        "get_rng_state": vgpu.get_rng_state,
        "set_rng_state": set_state,
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in range(cards.count)],
        "set_rng_state_all": set_states,
        "set_sync_debug_mode": lambda debug_mode: None,
        "get_sync_debug_mode": lambda: 0,
    }


_SAME = (
    "get_device_name", "get_device_capability", "synchronize", "mem_get_info", "memory_allocated",
    "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)  # fmt: skip
_OF_CARD = {
    **{name: name for name in _SAME},
    "memory_cached": "memory_reserved",
    "max_memory_cached": "max_memory_reserved",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_max_memory_cached": "reset_peak_memory_stats",
}
"""Functions of torch.cuda about one card, and those of `torch.vgpu` that answer them."""


def _of_card(function: Callable[[int], Any], cards: Cards) -> Callable[..., Any]:
    return lambda device=None: function(cards.ordinal(device))


def accelerator_functions(cards: Cards, cuda: dict[str, Any]) -> dict[str, Any]:
    """The functions of `torch.accelerator` by name."""
    device = cuda["device"]

    def current(check_available: bool = False) -> torch.device | None:
        return torch.device("cuda") if cards.count else None

    same = ("is_available", "device_count", "synchronize", "empty_cache", "memory_allocated", "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved", "memory_stats", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
            "current_stream",
            "set_stream")  # fmt: skip
    return {
        **{name: cuda[name] for name in same},
        "current_accelerator": current,
        "current_device_index": cuda["current_device"],
        "current_device_idx": cuda["current_device"],
        "set_device_index": cuda["set_device"],
        "set_device_idx": cuda["set_device"],
        "device_index": device,
        "get_memory_info": cuda["mem_get_info"],
    }


WHY = {
    "CUDAGraph": "A virtual GPU cannot capture a graph of CUDA's kernels.",
    "graph": "A virtual GPU cannot capture a graph of CUDA's kernels.",
    "graph_pool_handle": "A virtual GPU cannot capture a graph of CUDA's kernels.",
    "MemPool": "A virtual GPU has one pool of memory.",
    "use_mem_pool": "A virtual GPU has one pool of memory.",
    "CUDAPluggableAllocator": "A virtual GPU has its own allocator.",
    "change_current_allocator": "A virtual GPU has its own allocator.",
    "cudart": "There is no CUDA runtime behind a virtual GPU.",
}
"""Reasons where there is more to say than `OTHERWISE`."""
OTHERWISE = "A virtual GPU has no equivalent."
_HARMLESS: dict[str, tuple[str, Callable[..., Any]]] = {
    "make_graphed_callables": (
        f"{WHY['graph']} What it would have captured runs as it is written.",
        lambda callables, *args, **kwargs: callables,
    ),
    "set_per_process_memory_fraction": (
        "A virtual GPU has no such limit; all of its memory is there.",
        lambda *args, **kwargs: None,
    ),
    "memory_summary": ("A virtual GPU writes no such table; the code got an empty text.", lambda *args, **kwargs: ""),
    "memory._record_memory_history": (
        "A virtual GPU's history is not kept where this code looks for it.",
        lambda *args, **kwargs: None,
    ),
}
"""Calls without which the rest still runs: what is noted about each, and what it does."""
_OWNERS = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs)
_LEFT = frozenset({"CudaError", "DeferredCudaCallError", "amp", "graphs", "has_half", "has_magma", "jiterator",
                   "memory", "nccl", "nvtx",
                   "profiler", "random", "sparse", "streams", "tunable", "default_generators", "cudaStatus",
                   "check_error"})  # fmt: skip
"""Names in `torch.cuda` that do nothing by themselves."""


def refuse(patches: Patches, imitated: set[str], not_checked: NotChecked) -> None:
    """Let everything in torch.cuda that is not imitated say so when it is used."""
    for name in torch.cuda.__all__:
        if name in imitated or name in _LEFT or name in _HARMLESS or name.endswith("Storage"):
            continue
        value = getattr(torch.cuda, name)
        for owner in _OWNERS:
            if vars(owner).get(name) is value:
                _refuse(patches, owner, name, "torch.cuda", not_checked)
    for module in (comm, torch.cuda.nccl):
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_"):
                _refuse(patches, module, name, module.__name__, not_checked)
    for name in ("_snapshot", "_dump_snapshot"):
        _refuse(patches, torch.cuda.memory, name, "torch.cuda.memory", not_checked)
    for name in ("_create_jit_fn", "_create_multi_output_jit_fn"):
        _refuse(patches, torch.cuda.jiterator, name, "torch.cuda.jiterator", not_checked)
    for path in _HARMLESS:
        _allow(patches, path, not_checked)
    _profilers(patches, not_checked)
    _groups(patches, not_checked)
    _extensions(patches, not_checked)


def _refuse(patches: Patches, owner: Any, name: str, module: str, not_checked: NotChecked) -> None:
    what = f"{module}.{name}"

    def refused(*args: Any, **kwargs: Any) -> Any:
        not_checked(what, WHY.get(name, OTHERWISE))
        raise NotImplementedError(f"{what} does not work on virtual GPUs")

    if isinstance(getattr(owner, name), type):
        patches.put(owner, name, type(name, (), {"__new__": refused, "__module__": module}))
    else:
        patches.call(owner, name, refused)


def _allow(patches: Patches, path: str, not_checked: NotChecked) -> None:
    why, result = _HARMLESS[path]

    def allowed(*args: Any, **kwargs: Any) -> Any:
        not_checked(f"torch.cuda.{path}", why)
        return result(*args, **kwargs)

    name = path.rpartition(".")[2]
    for owner in _OWNERS:
        if name in vars(owner):
            patches.call(owner, name, allowed)


def _profilers(patches: Patches, not_checked: NotChecked) -> None:
    """Let a profiler measure the CPU only."""
    start, older = torch.profiler.profile.__init__, torch.autograd.profiler.profile.__init__
    cuda, why = (
        torch.profiler.ProfilerActivity.CUDA,
        "CUDA's profiler sees nothing of a virtual GPU; only the CPU's side was recorded.",
    )

    def profile(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        wanted = None if activities is None else list(activities)
        if wanted is not None and cuda in wanted:
            not_checked("profiling CUDA", why)
            wanted = [item for item in wanted if item != cuda]
        start(self, *args, activities=wanted or [torch.profiler.ProfilerActivity.CPU], **kwargs)

    def profile_older(self: Any, *args: Any, use_cuda: bool = False, use_device: Any = None, **kwargs: Any) -> None:
        if use_cuda or use_device == "cuda":
            not_checked("profiling CUDA", why)
            use_device = None
        older(self, *args, use_device=use_device, **kwargs)

    patches.call(torch.profiler.profile, "__init__", profile)
    patches.call(torch.autograd.profiler.profile, "__init__", profile_older)


def _groups(patches: Patches, not_checked: NotChecked) -> None:
    if not torch.distributed.is_available():
        return
    original, meet = torch.distributed.init_process_group, torch.distributed.barrier

    def start(backend: Any = None, *args: Any, device_id: Any = None, **kwargs: Any) -> Any:
        if backend is None or "nccl" in str(backend).lower():
            not_checked("torch.distributed with NCCL", "NCCL connects real cards; ranks on virtual GPUs meet by gloo.")
            raise NotImplementedError('NCCL does not work on virtual GPUs; gloo does: init_process_group("gloo")')
        return original(backend, *args, **kwargs)  # `device_id` names the card on which a barrier has its tensor

    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **options: Any) -> Any:
        return meet(group, async_op, **options)

    for owner in (torch.distributed, torch.distributed.distributed_c10d):
        patches.call(owner, "init_process_group", start)
        patches.call(owner, "barrier", barrier)
    _random_shards(patches, not_checked)


def _random_shards(patches: Patches, not_checked: NotChecked) -> None:
    """DTensor would move on the state of CUDA's generator, which ours has not: each rank draws for itself, as on the
    CPU."""
    from torch.distributed.tensor import _dispatch, _random  # the first operation of a tensor imports them in any case

    original = _random.is_rng_supported_mesh

    def is_supported(mesh: Any) -> bool:
        if mesh.device_type not in ("cuda", KIND):  # by who asks
            return bool(original(mesh))
        not_checked(
            "random numbers of a DTensor",
            "Each rank draws its own part by itself; on cards the parts of all ranks are one draw.",
        )
        return False

    for owner in (_dispatch, _random):
        patches.call(owner, "is_rng_supported_mesh", is_supported)


def _extensions(patches: Patches, not_checked: NotChecked) -> None:
    module = sys.modules.get("torch.utils.cpp_extension")
    if module is None:
        return  # its own error says that there is no CUDA to build with

    def building(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(name: Any, sources: Any = (), *args: Any, **kwargs: Any) -> Any:
            files = [sources] if isinstance(sources, str) else sources or ()
            if (
                kwargs.get("cuda_sources")
                or kwargs.get("with_cuda")
                or any(str(file).endswith((".cu", ".cuh")) for file in files)
            ):
                not_checked("a CUDA extension", "Custom kernels need CUDA's compiler and a real card.")
                raise NotImplementedError("CUDA extensions do not work on virtual GPUs")
            return original(name, sources, *args, **kwargs)

        return build

    for name in ("load", "load_inline"):
        patches.call(module, name, building(getattr(module, name)))


def imitate_defaults(patches: Patches, cards: Cards) -> None:
    """Let `torch.get_default_device`, `set_default_tensor_type` and `get_device_module` speak of CUDA."""
    default, tensor_type, module = torch.get_default_device, torch.set_default_tensor_type, torch.get_device_module

    def get_default() -> torch.device:
        return cards.spoken(default())

    def set_type(kind: Any) -> None:
        dtype = dtype_of(kind)
        if dtype is None:
            tensor_type(kind)
        else:
            torch.set_default_dtype(dtype)
            torch.set_default_device("cuda")

    patches.call(torch, "get_default_device", get_default)
    patches.call(torch, "set_default_tensor_type", set_type)
    patches.call(torch, "get_device_module", lambda device=None: module("cuda" if device is None else device))


def imitate_generators(patches: Patches, cards: Cards) -> None:
    """Let a generator for CUDA be one of a virtual GPU."""
    original = torch.Generator

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original)

    def make(cls: type, device: Any = None) -> torch.Generator:
        if device is None:
            return original()
        return original(device=cards.virtual(device) if patches.on else device)

    patches.put(torch, "Generator", Kind("Generator", (), {"__new__": make, "__module__": "torch"}))


def leave_uncompiled(patches: Patches, not_checked: NotChecked) -> None:
    """Let `torch.compile` return what it is given: there is no compiler for virtual GPUs."""
    why = "There is no compiler for virtual GPUs; what it would have compiled ran as it is written."

    def compiled(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda given: compiled(given, **options)
        not_checked("torch.compile", why)
        return model

    patches.call(torch, "compile", compiled)
    patches.call(nn.Module, "compile", lambda module, *args, **options: not_checked("torch.compile", why))


def imitate_files(patches: Patches, cards: Cards, spoken: bool) -> None:
    """Let files be loaded to CUDA: `map_location="cuda:1"`, and what was saved from there. With `spoken`, what is saved
    from a card comes back to it, as from a real one; else it is the CPU's."""
    registry: Any = serialization._package_registry

    def restore(storage: Any, location: str) -> Any:
        if not patches.on or location.partition(":")[0] != "cuda":
            return None
        return serialization.default_restore_location(storage, str(cards.virtual(location)))

    def moved(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return storage.vgpu(cards.ordinal(device))

    def location(storage: Any) -> str | None:
        held = getattr(storage, "_vgpu", None)
        return f"cuda:{held.gpu.index}" if spoken and patches.on and held is not None else None

    before_all = (1, location, restore)
    patches.put(serialization, "_package_registry", [before_all, *registry])
    patches.call(torch.UntypedStorage, "cuda", moved)


def imitate_lazy(patches: Patches, cards: Cards, seen: Callable[[], None]) -> None:
    """Let lazy parameters wait on a virtual GPU; `seen` is called when code names a card for them."""
    default = torch.get_default_device
    for kind, waiting in ((UninitializedParameter, LazyVirtualParameter), (UninitializedBuffer, LazyVirtualBuffer)):
        patches.put(kind, "__new__", staticmethod(_maker(patches, cards, kind.__new__, waiting, default)))
    move, cuda = nn.Module.to, nn.Module.cuda

    def to(model: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type not in ("cuda", KIND) or not _waits(model):
            return move(model, *args, **kwargs)
        seen()
        return move_lazily(model, cards.virtual(device), dtype)

    def to_cuda(model: Any, device: Any = None) -> Any:
        if not _waits(model):
            return cuda(model, device)
        seen()
        return move_lazily(model, cards.virtual("cuda" if device is None else device))

    patches.call(nn.Module, "to", to)
    patches.call(nn.Module, "cuda", to_cuda)


def _waits(model: nn.Module) -> bool:
    return any(map(nn.parameter.is_lazy, chain(model.parameters(), model.buffers())))


def _maker(patches: Patches, cards: Cards, original: Any, waiting: Any, default: Callable[[], torch.device]) -> Any:
    def make(
        cls: type,
        requires_grad: bool = waiting is LazyVirtualParameter,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> Any:
        if patches.on and cls is not waiting:
            where = cards.virtual(default() if device is None else device)
            if torch.device(where).type == KIND:
                return waiting(requires_grad, where, dtype)
        return original(cls, requires_grad, device, dtype, **options)

    return make


def _virtual(device_type: Any) -> Any:
    return KIND if isinstance(device_type, str) and device_type.partition(":")[0] == "cuda" else device_type


def imitate_amp(patches: Patches) -> None:
    """Let mixed precision that is meant for CUDA work on virtual GPUs."""
    enter = autocast_mode.autocast.__init__
    scale = grad_scaler.GradScaler.__init__

    def autocast(self: Any, device_type: Any, *args: Any, **kwargs: Any) -> None:
        enter(self, _virtual(device_type), *args, **kwargs)

    def scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        scale(self, _virtual(device), *args, **kwargs)

    patches.call(autocast_mode.autocast, "__init__", autocast)
    patches.call(grad_scaler.GradScaler, "__init__", scaler)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        patches.call(torch, name, _named(getattr(torch, name)))
    patches.call(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype(KIND))
    patches.call(torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype(KIND, dtype))
    for owner in (torch.amp, autocast_mode):
        patches.call(owner, "is_autocast_available", _named(autocast_mode.is_autocast_available))
    cast = autocast_mode._cast
    patches.call(autocast_mode, "_cast", lambda value, device_type, dtype: cast(value, _virtual(device_type), dtype))


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if "device_type" in kwargs:
            kwargs["device_type"] = _virtual(kwargs["device_type"])
        elif args and isinstance(args[0], str):
            args = (_virtual(args[0]), *args[1:])
        else:
            args = (KIND, *args)  # without a device torch means CUDA
        return function(*args, **kwargs)

    return asked
