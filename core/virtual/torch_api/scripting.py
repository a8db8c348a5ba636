"""`torch.jit` modules on virtual GPUs: moved there and back, and not written from there. Any thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from devexplorer.core.virtual.device.accounting import is_virtual


def register() -> None:
    """Let scripted and traced modules move, and refuse in a line to write tensors that a file cannot hold."""
    base: Any = torch.jit.ScriptModule
    base._apply = _moving(base._apply)
    scripted: Any = getattr(torch.jit, "RecursiveScriptModule", None)
    if scripted is not None:
        scripted.save = _saving(scripted.save)
    torch.jit.save = _saving(torch.jit.save)


def _moving(original: Callable[..., Any]) -> Callable[..., Any]:
    def _apply(module: Any, function: Any, recurse: bool = True) -> Any:
        """`Module._apply`; C++ holds the tensors, so it has to be given those on the other device, where others
        exchange their contents."""
        held = {
            name: tensor
            for names in (module._parameters, module._buffers)
            for name, tensor in names.items()
            if tensor is not None
        }
        with torch.no_grad():
            moved = {name: function(tensor) for name, tensor in held.items()}
        if not any(map(is_virtual, (*held.values(), *moved.values()))):
            return original(module, function, recurse)
        for child in module.children() if recurse else ():
            child._apply(function)
        for name, tensor in held.items():
            value = moved[name]
            module._c.setattr(
                name, nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value
            )
        return module

    return _apply


def _saving(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(module: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_virtual, (*module.parameters(), *module.buffers()))):
            raise RuntimeError(
                "torch.jit.save cannot write tensors of a virtual GPU; move the module to the CPU first, with"
                " module.cpu()"
            )
        return original(module, *args, **kwargs)

    return save
