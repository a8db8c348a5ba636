"""Puts the random generators of accelerators back after an examination; those of the CPU are `kept`'s business. The
calling thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def generators_kept(kind: str) -> Iterator[None]:
    """Of every device of a kind (`cuda`, `vgpu`), where its module can read and set them."""
    module: Any = None if kind == "cpu" else torch.get_device_module(kind)
    read, put = getattr(module, "get_rng_state", None), getattr(module, "set_rng_state", None)
    if read is None or put is None:
        yield
        return
    if kind == "mps":  # its one device takes no index
        before = read()
        try:
            yield
        finally:
            put(before)
        return
    states = [read(index) for index in range(module.device_count())]
    try:
        yield
    finally:
        for index, state in enumerate(states):
            put(state, index)
