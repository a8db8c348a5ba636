"""Which module is at work: hooks on all modules of the process while a forward is watched. The thread that is watched.

Global hooks see modules that PyTorch does not know to be parts of the model, too: those in plain lists, those that
forward makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from devexplorer.core.doctor.tracing.call import Run, tensors
from devexplorer.core.doctor.tracing.sources import Origin


class Modules:
    """The stack of those at work; `collector.path` is the path of the innermost one."""

    def __init__(self, run: Run, returned: Callable[[Any], object] = lambda output: None) -> None:
        """`returned` gets what the model itself returns."""
        self._run, self._returned = run, returned
        self._stack: list[tuple[int, str]] = []
        self._thread = threading.get_ident()
        self.running = 0
        """How many are at work: forward is under way where there is any."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Hooked within."""
        self._thread = threading.get_ident()
        handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._stack.clear()
            self.running = 0

    def _enter(self, module: nn.Module, args: Any) -> None:
        run = self._run
        if threading.get_ident() != self._thread:
            run.collector.not_checked(
                "what other threads run",
                "The model runs modules on its own threads; only the calling thread was observed.",
            )
            return
        path = run.sources.paths.get(id(module))
        self._stack.append((id(module), run.collector.path if path is None else path))
        self.running = len(self._stack)
        run.collector.path = self._stack[-1][1]
        if type(module).__module__.startswith("torch.jit") and hasattr(
            module, "_c"
        ):  # a question to a user's model runs its `__getattr__`
            run.collector.not_checked(
                path or type(module).__name__,
                "It was compiled by TorchScript, which runs without Python, so its operations cannot be traced.",
            )

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        path = self._pop(module)
        if path is None:
            return
        if not self._stack and path == "":
            self._returned(output)
        sources = self._run.sources
        if path in (
            "",
            self._run.collector.path,
        ):  # the model's own output is no operand; what forward made goes by its parent's name
            return
        # The outputs of transformers are dicts of a special class.
        for tensor in tensors(dict(output) if isinstance(output, dict) else output):
            known = sources.known(tensor)
            if known is None or (known.kind in ("result", "output") and not known.cast):
                sources.note(tensor, Origin("output", path=path))

    def _pop(self, module: nn.Module) -> str | None:
        if not any(identity == id(module) for identity, _ in self._stack):
            return None
        while True:  # a module whose error its caller swallowed may not have been left by this door
            identity, path = self._stack.pop()
            if identity == id(module):
                break
        self.running = len(self._stack)
        self._run.collector.path = self._stack[-1][1] if self._stack else ""
        return path
