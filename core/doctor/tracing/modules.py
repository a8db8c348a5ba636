"""Which module is at work: hooks on all modules of the process while a forward is watched. The thread that is watched.

Global hooks see modules that PyTorch does not know to be parts of the model, too: those in plain lists, those that
forward makes.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from devexplorer.core.doctor.tracing.call import WatchedRun, tensors
from devexplorer.core.doctor.tracing.sources import Origin, former_parameters
from devexplorer.core.isolation.source_location import SourceLocation, place_of
from devexplorer.core.models import expressions_at, last_name, named_modules, tree_of
from devexplorer.core.models.class_source import changed_in, reads


class Modules:
    """The stack of those at work; `collector.path` is the path of the innermost one."""

    def __init__(self, run: WatchedRun, returned: Callable[[Any], object] = lambda output: None) -> None:
        """`returned` gets what the model itself returns."""
        self._run, self._returned = run, returned
        self._stack: list[tuple[int, str]] = []
        self._thread = threading.get_ident()
        self._outside: tuple[torch.device, nn.Module | None] = run.device, None
        """Where the model is, and the replica that is at work."""
        self._before: list[tuple[str, nn.Module, dict[str, Any]]] = []
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
        named_parameters = nn.Module.named_parameters

        def asked(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._run.in_replica and next(former_parameters(module), None) is not None:
                self._note_empty(place_of(sys._getframe(1), self._run.until))
            return named_parameters(module, *args, **kwargs)

        try:
            with patch.object(nn.Module, "named_parameters", asked):
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
        if not run.in_replica and vars(module).get("_is_replica"):
            self._enter_replica(module, args)
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

    def _enter_replica(self, module: nn.Module, args: Any) -> None:
        """A copy that DataParallel made for one card: its parts have the paths of what was copied, and belong there."""
        run = self._run
        path = f"{run.collector.path}.module" if run.collector.path else "module"
        run.sources.add_replica(module, path)
        self._outside = run.device, module
        self._before = [(below, part, dict(vars(part))) for below, part in named_modules(module, path)]
        for number, tensor in enumerate(tensors(args)):
            run.sources.note(tensor, Origin("input", path=str(number)))
        first = next(iter((*former_parameters(module), *tensors(args))), None)
        if first is not None:
            run.device = first.device
        run.in_replica = True

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if self._run.in_replica and self._outside[1] is module:
            self._run.in_replica, self._run.device = False, self._outside[0]
            self._outside = self._run.device, None
            for below, part, before in self._before:
                self._note_lost(below, part, before)
            self._before.clear()
        path = self._pop(module)
        if path is None:
            return
        if not self._stack and path == "":
            self._returned(output)
        sources = self._run.sources
        # the model's own output is no operand; what forward made goes by its parent's name
        if path in ("", self._run.collector.path):
            return
        # The outputs of transformers are dicts of a special class.
        for tensor in tensors(dict(output) if isinstance(output, dict) else output):
            known = sources.known(tensor)
            if known is None or (known.kind in ("result", "output") and not known.cast):
                sources.note(tensor, Origin("output", path=path))

    def _note_lost(self, path: str, part: nn.Module, before: dict[str, Any]) -> None:
        """What forward keeps in a replica is gone with it: it matters where forward reads it as well."""
        for name, value in vars(part).items():
            if name in before and before[name] is value:
                continue
            read, place = reads(type(part), name), changed_in(type(part), name)
            if place is None or place.library:
                continue
            self._run.collector.add(
                "differs-on-device",
                f"self.{name} is set in forward of a replica. nn.DataParallel makes new replicas for each call, so"
                " that the value is lost when the call ends.",
                "Return it, and keep it outside of the replica; or use DistributedDataParallel, which has no replicas.",
                path=path,
                place=place,
                severity="warning" if read else "note",
            )

    def _note_empty(self, place: SourceLocation | None) -> None:
        """A replica is asked for its parameters, and has none: without a word, except where the first one is asked for
        (`next`), which raises, or says itself what it takes instead."""
        tree = None if place is None else tree_of(place.file)
        if place is None or tree is None:
            return
        calls = [node for node in expressions_at(tree, place.line) if isinstance(node, ast.Call)]
        if any(last_name(call.func) == "next" for call in calls):
            return
        self._run.collector.add(
            "differs-on-device",
            "The parameters of a replica of nn.DataParallel are plain tensors, and parameters() is empty there: what is"
            " computed from it leaves all of them out.",
            "Take each by its name (self.fc.weight), or compute it outside of forward, from the module that was"
            " wrapped; DistributedDataParallel has no replicas.",
            place=place,
            severity="note" if place.library else None,
        )

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
