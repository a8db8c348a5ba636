"""What virtual GPUs cannot do in CUDA's place: each use is noted as not checked. Any thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.nn.parallel import comm

from devexplorer.core.virtual.cuda.functions import NotChecked
from devexplorer.core.virtual.cuda.patches import Patches

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
    original = torch.distributed.init_process_group

    def start(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is None or "nccl" in str(backend).lower():
            not_checked("torch.distributed with NCCL", "NCCL connects real cards; virtual GPUs are in one process.")
            raise NotImplementedError("NCCL does not work on virtual GPUs")
        return original(backend, *args, **kwargs)

    for owner in (torch.distributed, torch.distributed.distributed_c10d):
        patches.call(owner, "init_process_group", start)


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
