"""What an object was before a command changed it in place: which Parameter stands where, flags, gradients, values. Jobs thread.

Parameters are remembered as objects, because they stay the same ones through every move; buffers by the module and name that hold them,
because a move replaces them. Values are copied to the host. Changes are undone in reverse order, so everything is found on the device on
which the command left it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.workspace.changes import Undone
from devexplorer.core.workspace.extras import Extras
from devexplorer.core.workspace.moves import Watch
from devexplorer.core.workspace.walk import gradient_of, is_uninitialised

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class _Gradient(NamedTuple):
    tensor: Tensor
    gradient: Tensor | None
    values: Tensor | None
    """A copy, where the gradient may be added to."""


class Before:
    """An image of one object. Made before the command, given to `Workspace.changed` after it."""

    def __init__(self, name: str, thing: nn.Module | Tensor, extras: Extras, within: str = "") -> None:
        self.name, self._thing, self._extras = name, thing, extras
        self._old_extras = copy.copy(extras)
        modules = [] if isinstance(thing, Tensor) else list(thing.modules())
        part = thing.get_submodule(within) if isinstance(thing, nn.Module) and within else thing
        self._modules = [] if isinstance(part, Tensor) else list(part.modules())
        self._slots = [(module, key, parameter) for module in modules for key, parameter in module._parameters.items()]
        self._training = [(module, module.training) for module in modules]
        tensors: list[Tensor] = [thing] if isinstance(thing, Tensor) else [p for _, _, p in self._slots if p is not None]
        self._flags = [(tensor, tensor.requires_grad) for tensor in _each_once(tensors) if tensor.is_leaf]
        self._values: list[tuple[Tensor, Tensor]] = []
        self._buffers: list[tuple[nn.Module, str, Tensor]] = []
        self._gradients: list[_Gradient] = []
        self._state: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    # --- taking it

    def needed_bytes(self, values: bool, gradients: bool) -> int:
        """What `take` would keep."""
        tensors = list(self._own())
        needed = sum(tensor.nbytes for tensor in tensors) if values else 0
        if gradients:
            needed += sum(gradient.nbytes for tensor in tensors if (gradient := gradient_of(tensor)) is not None)
        return needed

    def take(self, *, values: bool, gradients: bool) -> None:
        """Copy values (of parameters and buffers) and gradients."""
        if values:
            self._values = [(tensor, _copied(tensor)) for tensor in self._own_parameters()]
            self.take_buffers()
        if gradients:
            for tensor in self._own_parameters():
                gradient = gradient_of(tensor)
                self._gradients.append(_Gradient(tensor, gradient, None if gradient is None else _copied(gradient)))

    def take_buffers(self) -> None:
        """Copy the values of buffers alone: what a forward may change."""
        self._buffers = [
            (module, key, _copied(buffer))
            for module in self._modules
            for key, buffer in module._buffers.items()
            if buffer is not None and not is_uninitialised(buffer)
        ]

    def take_optimizer(self) -> None:
        """Copy the optimizer's state."""
        if self._extras.optimizer is not None:
            self._state = copy.deepcopy(self._extras.optimizer.state_dict())

    def settle(self) -> None:
        """The command is over: let go of what it did not change."""
        self._slots = [(module, key, old) for module, key, old in self._slots if module._parameters.get(key) is not old]
        self._training = [(module, was) for module, was in self._training if module.training != was]
        self._flags = [(tensor, was) for tensor, was in self._flags if tensor.requires_grad != was]
        self._modules = []

    @property
    def kept_bytes(self) -> int:
        """Bytes of every copy, of Parameters that are no longer in the model, and of gradients that have been replaced."""
        copies = [*(values for _, values in self._values), *(values for _, _, values in self._buffers)]
        copies += [one.values for one in self._gradients if one.values is not None]
        replaced: list[Tensor] = [old for module, key, old in self._slots if old is not None and module._parameters.get(key) is not old]
        replaced += [one.gradient for one in self._gradients if one.gradient is not None and gradient_of(one.tensor) is not one.gradient]
        held = sum(tensor.nbytes for tensor in _each_once((*copies, *replaced)))
        return held + sum(tensor.nbytes for tensor in _tensors_in(self._state))

    # --- giving it back

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Make the object as it was."""
        for module, key, old in self._slots:
            module._parameters[key] = old
        for module, was in self._training:
            module.training = was
        for tensor, flag in self._flags:
            tensor.requires_grad_(flag)
        with torch.no_grad():
            for tensor, values in self._values:
                _write(tensor, values)
            for module, key, values in self._buffers:
                buffer = module._buffers.get(key)
                if buffer is not None:
                    _write(buffer, values)
            for one in self._gradients:
                if one.gradient is not None and one.values is not None:
                    _write(one.gradient, one.values)
                one.tensor.grad = one.gradient
        for field in Extras.__slots__:
            setattr(self._extras, field, getattr(self._old_extras, field))
        if self._state is not None and self._extras.optimizer is not None:
            self._extras.optimizer.load_state_dict(self._state)
        workspace.publish(self.name)
        return Undone(touched=(self.name,))

    def without(self, name: str) -> Before | None:
        """Nothing is left of it without its object."""
        return None if name == self.name else self

    # --- parts

    def _own_parameters(self) -> Iterator[Tensor]:
        if isinstance(self._thing, Tensor):
            yield self._thing
            return
        parameters = (parameter for module in self._modules for parameter in module._parameters.values())
        yield from _each_once(parameter for parameter in parameters if parameter is not None)

    def _own(self) -> Iterator[Tensor]:
        yield from self._own_parameters()
        for module in self._modules:
            yield from (buffer for buffer in module._buffers.values() if buffer is not None and not is_uninitialised(buffer))


class Element:
    """One element that was set."""

    kept_bytes = 0

    def __init__(self, target: str, index: tuple[int, ...], before: float) -> None:
        self._target, self._index, self._before = target, index, before

    @property
    def names(self) -> tuple[str, ...]:
        """The object that holds it."""
        return (self._target.partition(":")[0],)

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Set it to what it was."""
        tensor, _ = workspace.leaf(self._target)
        with torch.no_grad():
            tensor[self._index] = self._before
        return Undone(touched=self.names)

    def without(self, name: str) -> Element | None:
        """Nothing is left of it without its object."""
        return None if name in self.names else self


def _each_once(tensors: Any) -> Iterator[Tensor]:
    """Every tensor object once, those without values left out."""
    seen: set[int] = set()
    for tensor in tensors:
        if id(tensor) not in seen and not is_uninitialised(tensor):
            seen.add(id(tensor))
            yield tensor


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _write(tensor: Tensor, values: Tensor) -> None:
    """Bits as they were; a tensor that has another shape by now is left alone."""
    if tensor.shape == values.shape:
        tensor.detach().copy_(values)


def _tensors_in(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors_in(value)
