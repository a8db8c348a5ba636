"""Code that asks for CUDA, in the planner's process: told that it has the cards it is planned for. The main thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from devexplorer.core.doctor.cuda.emulation import CudaEmulation
from devexplorer.core.doctor.cuda.on_cpu import OnCpu
from devexplorer.core.doctor.findings.collector import FindingCollector

SAID = "Its code asks for CUDA: it was told that the cards are there, as the doctor does."
_WORDS = ("CUDA", "NVIDIA driver", "on the same device")
"""Of errors of code that names a device."""


def asks_for_cuda(error: BaseException) -> bool:
    """Whether that is why code failed, or may be."""
    return any(word in str(error) for word in _WORDS)


@contextmanager
def made_without_cards() -> Iterator[None]:
    """Around the making of a model: cards are there, and what is put on them stays where it is."""
    with CudaEmulation(FindingCollector(), 1, virtual=True), OnCpu():
        yield


@contextmanager
def run_on_cards(count: int) -> Iterator[None]:
    """Around a run on measuring GPUs: `cuda:N` is the N-th of them."""
    with CudaEmulation(FindingCollector(), count, virtual=True):
        yield
