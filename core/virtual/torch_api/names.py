"""`torch.Generator`, `torch.Stream` and `torch.Event`, which are C++ types: asked for a virtual GPU they give ours. Any
thread.

The C++ behind them asks the device's hooks, and those of a Python device cannot answer. So the names in `torch` become
classes that dispatch on the device; for other devices they return torch's objects, and `isinstance` works as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.device.streams import PRIVATE_USE, Event, Stream, gpu_named

_CGenerator: Any = torch.Generator


class VirtualGenerator(_CGenerator):  # type: ignore[misc]  # torch's type is final only to mypy
    """A generator of the CPU: a seed gives the same numbers on every device."""

    _index: int

    def __new__(cls, device: Any = KIND) -> VirtualGenerator:
        """Of the device that is named."""
        gpu = gpu_named(device)
        made = super().__new__(cls)
        made._index = gpu.index
        return cast(VirtualGenerator, made)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Everything is done in `__new__`."""

    @property
    def device(self) -> torch.device:
        """The virtual GPU."""
        return torch.device(KIND, self._index)

    def clone_state(self) -> VirtualGenerator:
        """Another generator that goes on from the same state."""
        return _restored(self._index, self.get_state())

    graphsafe_get_state = clone_state

    def __reduce__(self) -> Any:
        return _restored, (self._index, self.get_state())


def _restored(index: int, state: torch.Tensor) -> VirtualGenerator:
    made = VirtualGenerator(torch.device(KIND, index))
    made.set_state(state)
    return made


def register() -> None:
    """Replace torch's classes."""
    for name, virtual, accelerator_by_default in _TYPES:
        setattr(torch, name, _either(name, getattr(torch, name), virtual, accelerator_by_default))


_TYPES: tuple[tuple[str, Callable[..., Any], bool], ...] = (
    ("Generator", VirtualGenerator, False),
    ("Stream", Stream, True),
    ("Event", lambda device=None, **options: Event(**options, device=device), True),
)
"""Name, what makes ours, and whether no device means the accelerator (else the CPU)."""


def _either(name: str, original: Any, virtual: Callable[..., Any], accelerator_by_default: bool) -> Any:
    class Kind(type(original)):  # type: ignore[misc]  # whatever metaclass torch gave it
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original) if cls is either else super().__instancecheck__(value)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original) if cls is either else super().__subclasscheck__(other)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not either:  # a user-defined subclass
                return super().__call__(*args, **kwargs)
            device = args[0] if args else kwargs.get("device")
            return (virtual if _is_virtual(device, kwargs, accelerator_by_default) else original)(*args, **kwargs)

    either = Kind(name, (original,), {"__doc__": original.__doc__, "__module__": "torch", "__slots__": ()})
    return either


def _is_virtual(device: Any, named: dict[str, Any], accelerator_by_default: bool) -> bool:
    if "device_type" in named:
        return bool(named["device_type"] == PRIVATE_USE)
    if device is None:
        accelerator = torch._C._accelerator_getAccelerator() if accelerator_by_default else None
        return accelerator is not None and accelerator.type == KIND
    return torch.device(device).type == KIND
