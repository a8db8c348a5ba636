"""Counts calls of modules: what eager PyTorch spends in Python for each is a part of a small step's time. On the thread
that runs the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook


@contextmanager
def module_calls(on_call: Callable[[], None]) -> Iterator[None]:
    """While this lasts, `on_call` is called before each forward of a module on the calling thread."""
    here = threading.get_ident()

    def called(module: Any, inputs: Any) -> None:
        if threading.get_ident() == here:
            on_call()

    handle = register_module_forward_pre_hook(called)
    try:
        yield
    finally:
        handle.remove()
