"""Tensors on a virtual GPU say to the examined code that they are on CUDA, and to everybody else where they are. Any
thread."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from devexplorer.core.doctor.cuda.cards import Cards
from devexplorer.core.doctor.cuda.patches import Patches
from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.operators.tensor import VirtualTensor
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter

_where: Any = torch.Tensor.device


def speak_of_cuda(patches: Patches, cards: Cards) -> None:
    """Let `tensor.device` and `tensor.is_cuda` answer by who asks.

    torch's own code and DevExplorer's go on reading `vgpu`: below Python that is what the tensors are on.
    """

    def device(tensor: torch.Tensor) -> torch.device:
        where: torch.device = _where.__get__(tensor)
        return cards.cuda(where.index) if _examined(sys._getframe(1).f_code.co_filename) else where

    def is_cuda(tensor: torch.Tensor) -> bool:
        return _examined(sys._getframe(1).f_code.co_filename)

    for kind in (VirtualTensor, LazyVirtualParameter, LazyVirtualBuffer):
        patches.put(kind, "device", property(device))
        patches.put(kind, "is_cuda", property(is_cuda))
    patches.put(PackedSequence, "is_cuda", property(lambda packed: packed.data.device.type in ("cuda", KIND)))
    patches.put(VirtualTensor, "record_stream", lambda tensor, stream: None)  # memory is never given back too early


def _examined(file: str) -> bool:
    """Whether a file is code of the model or of a library in it; so is what is made as text."""
    return kind_of(file) != "skipped" or file.startswith("<")
