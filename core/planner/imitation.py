"""Code that asks for CUDA, in the planner's process: it gets emulated cards. The main thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from devexplorer.core.base.errors import first_line
from devexplorer.core.doctor.cuda.emulation import CudaEmulation
from devexplorer.core.doctor.cuda.on_cpu import OnCpu
from devexplorer.core.doctor.findings.collector import FindingCollector

NOTE = "Its code asks for CUDA: it ran with emulated CUDA cards, as in the placement doctor."


def names_cuda(error: BaseException) -> bool:
    """Whether torch refused CUDA: code that asks for it failed."""
    text = _torch_text(error)
    return "CUDA" in text or "NVIDIA driver" in text


def mixes_devices(error: BaseException) -> bool:
    """Whether torch refused operands from several devices."""
    return "on the same device" in _torch_text(error)


def _torch_text(error: BaseException) -> str:
    """What the innermost exception says in its first line. torch has no exception classes for either; sentences of
    ours around it are not read."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextmanager
def made_without_cards() -> Iterator[None]:
    """Around the construction of a model: cards exist, and what is put on them stays where it is."""
    with CudaEmulation(FindingCollector(), 1, virtual=True), OnCpu():
        yield


@contextmanager
def run_on_cards(count: int) -> Iterator[None]:
    """Around a run on measuring GPUs: `cuda:N` is the N-th of them."""
    with CudaEmulation(FindingCollector(), count, virtual=True):
        yield
