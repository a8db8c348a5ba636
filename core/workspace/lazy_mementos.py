"""What a lazy module was before its first forward, so that Undo can let it wait for its shape again. Runs on the jobs
thread."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace.parts import swap

_REGISTERS = ("_parameters", "_buffers", "_modules")
"""The same dictionaries throughout: their tensors change in place."""


class Waiting:
    """One lazy module, made while it waits. `turn` exchanges what it is for what it was, and back.

    torch turns it into an ordinary module in place: another class, attributes with sizes, two hooks less, and the same
    Parameter objects with contents.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._class: type[nn.Module] = type(module)
        self._state = _state(module)
        own = (*module._parameters.values(), *module._buffers.values())
        self.tensors = [tensor for tensor in own if tensor is not None and is_uninitialised(tensor)]
        """Its parameters and buffers without a shape."""
        self._others: list[Tensor] = []

    @property
    def is_over(self) -> bool:
        """Whether it has become an ordinary module."""
        return any(not is_uninitialised(tensor) for tensor in self.tensors)

    def turn(self) -> None:
        """Let it be what it was, on the devices where it is now; the second time, what it had become."""
        if not self._others and not self.is_over:
            return
        others = self._others or [_shapeless(tensor) for tensor in self.tensors]
        for tensor, other in zip(self.tensors, others, strict=True):
            swap(tensor, other)
        self._others = others
        module = self._module
        now, module_class = _state(module), type(module)
        module.__class__ = self._class
        for key in set(vars(module)) - set(self._state) - set(_REGISTERS):
            del vars(module)[key]
        for key, value in self._state.items():
            if isinstance(value, _Hooks):
                hooks = vars(module).setdefault(key, value.of)
                hooks.clear()  # the same dictionary: the handles of the hooks know it
                hooks.update(value.hooks)
            else:
                vars(module)[key] = value
        self._state, self._class = now, module_class


class _Hooks:
    """The contents of a dictionary of hooks."""

    def __init__(self, of: dict[Any, Any]) -> None:
        self.of, self.hooks = of, dict(of)


def _state(module: nn.Module) -> dict[str, Any]:
    found = {key: value for key, value in vars(module).items() if key not in _REGISTERS}
    return {
        key: _Hooks(value) if key.endswith("_hooks") and isinstance(value, dict) else value
        for key, value in found.items()
    }


def _shapeless(tensor: Tensor) -> Tensor:
    """A tensor without a shape, where this one is."""
    kind: Any = UninitializedParameter if isinstance(tensor, nn.Parameter) else UninitializedBuffer
    made: Tensor = kind(tensor.requires_grad, dtype=tensor.dtype)
    move_uninitialised(made, torch.device(tensor.device), tensor.dtype)
    return made
