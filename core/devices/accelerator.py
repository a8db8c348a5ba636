"""What torch can be asked about an accelerator that is neither CUDA nor ours, and by which of its interfaces. Any
thread.

Every backend has `torch.accelerator`'s functions, as far as its parts below serve them; a backend's own module may have
next to nothing, as that of PyTorch's reference backend, or more. So the generic function comes first, and the module's
where there is none, or where it is not implemented. `torch.accelerator` is about one kind of device, the current
accelerator: for any other only the module is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from devexplorer.core.base import Unavailable, first_line, out_of_host_memory

COMPLETE = ("cuda", "vgpu")
"""Kinds whose own module answers everything, so that nothing else is asked."""
OTHER_NAMES = {"get_memory_info": "mem_get_info"}
"""What the same is called in modules that follow `torch.cuda`."""

STICKY = {
    214: "uncorrectable ECC error encountered",
    220: "uncorrectable NVLink error detected during the execution",
    226: "Invalid access of peer GPU memory over nvlink or a hardware error",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
    721: "tensor memory not completely freed",
    810: "the MPS client has been terminated by the server",
    911: "an async error has occured in external entity outside of CUDA",
}
"""Errors after which CUDA is of no use to the process, by their number, as the runtime words them (`cudaGetErrorString`
of CUDA 13.0; the misspelling is NVIDIA's). Of all but 214 and 220 NVIDIA writes that "the process must be terminated
and relaunched" (CUDA Runtime API, cudaError_t); of those two only that they were met while a kernel ran, which has
damaged what was computed."""

MEMORY_ALLOCATION = 2
"""`cudaErrorMemoryAllocation`: a context, a stream or a library's handle found no room."""
_FULL = re.compile(r"\b(CUDA|HIP)\b.*out of memory|_STATUS_ALLOC_FAILED\b|^MPS backend out of memory")
"""The same in words, for what torch raises as a plain `RuntimeError`: cuBLAS, cuDNN and their kin, other allocators."""


def current(module: Any = torch) -> torch.device | None:
    """What `torch.accelerator` is about; None without an accelerator, and before torch 2.6, which brought it."""
    try:
        return module.accelerator.current_accelerator() if hasattr(module, "accelerator") else None
    except RuntimeError:  # torch 2.6 where there is none
        return None


def failed(error: BaseException) -> bool:
    """Whether the device itself failed, not what it was asked to do: an `AcceleratorError` since torch 2.8, before that
    a `RuntimeError` with CUDA's words."""
    kind = getattr(torch, "AcceleratorError", None)
    return str(error).startswith("CUDA error") if kind is None else isinstance(error, kind)


def is_sticky(error: BaseException) -> bool:
    """Whether CUDA fails for the rest of the process: this error, or one that it was raised from, is in `STICKY`.

    torch gives the number since 2.8 (`AcceleratorError.error_code`); other libraries and older versions only the words.
    """
    each: BaseException | None = error
    while each is not None:
        code, text = getattr(each, "error_code", None), str(each)
        if (
            code in STICKY
            if isinstance(code, int)
            else "CUDA" in text and any(sign in text for sign in STICKY.values())
        ):
            return True
        each = each.__cause__ or each.__context__
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device of any kind, or this machine, had no room for what was asked.

    Not every such error is torch's `OutOfMemoryError`: a card without room for a CUDA context gives an
    `AcceleratorError`, libraries and the CPU's allocator give `RuntimeError`.
    """
    if isinstance(error, torch.OutOfMemoryError) or out_of_host_memory(error):
        return True
    if getattr(error, "error_code", None) == MEMORY_ALLOCATION and failed(error):
        return True
    return isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None


def ask(kind: str, function: str, *arguments: Any, module: Any = torch) -> Any:
    """The answer for a kind of device; tests replace torch by `module`.

    Raises `Unavailable` with the reason where the question is not implemented, and whatever else the backend raises.
    """
    reasons = []
    for owner, name, call in _calls(kind, function, module):
        if call is None:
            reasons.append(f"{owner} has no {name}")
            continue
        try:
            return call(*arguments)
        except NotImplementedError as error:
            reasons.append(first_line(error) if str(error).strip() else f"{owner}.{name} is not implemented")
    raise Unavailable("; ".join(reasons) or f"torch has no {function} for {kind}")


def _calls(kind: str, function: str, module: Any) -> Iterator[tuple[str, str, Any]]:
    """Each module that could answer, the function's name there, and the function if it exists; the generic one
    first."""
    about = None if kind in COMPLETE else current(module)
    if about is not None and about.type == kind and hasattr(module.accelerator, function):
        yield "torch.accelerator", function, getattr(module.accelerator, function)
    own = module.get_device_module(kind)
    name = next((name for name in (function, OTHER_NAMES.get(function, function)) if hasattr(own, name)), function)
    yield f"torch.{kind}", name, getattr(own, name, None)
