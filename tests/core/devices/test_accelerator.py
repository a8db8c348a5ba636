"""Which errors of an accelerator mean what."""

from __future__ import annotations

import pytest
import torch
from fakes.cuda import AcceleratorError

from devexplorer.core.base import DevExplorerError
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.devices.accelerator import is_out_of_memory, is_sticky


def of_torch(text: str, code: int | None = None) -> RuntimeError:
    """As torch raises it: with the number since 2.8."""
    error = AcceleratorError(f"CUDA error: {text}\nCUDA kernel errors might be asynchronously reported")
    if code is not None:
        vars(error)["error_code"] = code
    return error


@pytest.mark.parametrize(
    ("code", "text", "sticky"),
    [
        (214, "uncorrectable ECC error encountered", True),
        (220, "uncorrectable NVLink error detected during the execution", True),
        (226, "Invalid access of peer GPU memory over nvlink or a hardware error", True),
        (700, "an illegal memory access was encountered", True),
        (702, "the launch timed out and was terminated", True),
        (710, "device-side assert triggered", True),
        (714, "hardware stack error", True),
        (715, "an illegal instruction was encountered", True),
        (716, "misaligned address", True),
        (717, "operation not supported on global/shared address space", True),
        (718, "invalid program counter", True),
        (719, "unspecified launch failure", True),
        (721, "tensor memory not completely freed", True),
        (2, "out of memory", False),
        (46, "CUDA-capable device(s) is/are busy or unavailable", False),
        (98, "invalid device function", False),
        (101, "invalid device ordinal", False),
        (209, "no kernel image is available for execution on the device", False),
        (217, "peer access is not supported between these two devices", False),
        (701, "too many resources requested for launch", False),
        (709, "context is destroyed", False),
        (720, "too many blocks in cooperative launch", False),
        (802, "system not yet initialized", False),
    ],
)
def test_errors_after_which_only_a_new_process_can_use_cuda(code: int, text: str, sticky: bool) -> None:
    assert is_sticky(of_torch(text)) is sticky, "by its words"
    assert is_sticky(of_torch("worded in another way", code)) is sticky, "by its number"
    wrapped = DevExplorerError("the model did not run")
    wrapped.__cause__ = of_torch(text)
    assert is_sticky(wrapped) is sticky, "where it is the cause of another"
    assert not is_sticky(ValueError(text)), "the same words in somebody's own error"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), True),
        (torch.OutOfMemoryError("vgpu out of memory. Tried to allocate 20.00 MiB."), True),
        (of_torch("out of memory"), True),
        (of_torch("worded in another way", 2), True),
        (AcceleratorError("HIP error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (MemoryError(), True),
        (of_torch("an illegal memory access was encountered", 700), False),
        (of_torch("worded in another way", 700), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (RuntimeError("the replay buffer is out of memory slots"), False),
        (ValueError("CUDA out of memory"), False),
    ],
)
def test_errors_of_which_the_cause_is_that_there_is_no_room(error: Exception, full: bool) -> None:
    assert is_out_of_memory(error) is full


def test_an_answer_has_the_first_line_of_a_card_s_error_and_not_its_advice_for_kernels() -> None:
    assert refusal(of_torch("out of memory")).words == "CUDA error: out of memory."
