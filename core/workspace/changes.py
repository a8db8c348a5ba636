"""What carrying out a command returns, and what it changed in the workspace, kept so that Undo can revert it: names,
devices, and images of what an object was. Runs on the jobs thread.

A change holds names, paths and devices rather than tensors, except for what cannot be recovered: originals that a
cast would not give back, values that were overwritten, objects that were removed. Those count against the budget of
`core.workspace.history`.

Parameters are kept as objects, because they stay the same through every move; buffers by the module and name
that hold them, because a move replaces them. Values are copied to the host. Changes are undone in reverse order, so
everything is found on the device on which the command left it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor, object_name
from devexplorer.core.models import Extras, gradient_of, is_uninitialised, leaves_below, size_of, state_tensors
from devexplorer.core.records import Answer, Command, Event, Fact, MoveReport, ObjectSnapshot, Offer
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace.parts import renew_flat_weights
from devexplorer.core.workspace.plan import TensorOrigin

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did."""

    answer: Answer
    changed: tuple[ObjectSnapshot, ...] = ()
    """New and changed objects as they are now."""
    removed: tuple[str, ...] = ()
    report: MoveReport | None = None
    """Of a move, a copy or an undo."""
    side_effects: tuple[str, ...] = ()
    """What a replay of the command would not repeat, in short phrases."""
    events: tuple[Event, ...] = ()
    """Further events; they are sent before the answer, under the command's number."""
    devices_changed: bool = False
    """The list of devices is another one now."""
    undid: Command | None = None
    """The command that was undone."""
    redid: Command | None = None
    """The command that was carried out again."""


class Refused(BadInput):
    """A `BadInput` with facts and offers, which `core.commands.refusals` shows."""

    def __init__(self, *findings: str, facts: tuple[Fact, ...] = (), offers: tuple[Offer, ...] = ()) -> None:
        super().__init__(*findings)
        self.facts, self.offers = facts, offers


class StepFailed(DevExplorerError):
    """One of several `Steps` failed; what those before it did is taken back."""

    def __init__(self, error: DevExplorerError, command: Command, before: tuple[Command, ...]) -> None:
        super().__init__(str(error))
        self.error, self.command, self.before = error, command, before


Handler = Callable[["Workspace", Any, ProgressMonitor], CommandResult]
"""Carries out one command; raises `DevExplorerError` when nothing could be done. It reports its changes to
`Workspace.changed`."""


class Undone(NamedTuple):
    """What reverting a change did."""

    report: MoveReport | None = None
    """Of moving tensors back."""
    removed: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    """Objects that still exist and have changed."""
    back: Callable[[], object] | None = None
    """Reverts the undo itself, in case a later step of it fails."""


class WorkspaceChange:
    """One step of a command."""

    @property
    def names(self) -> tuple[str, ...]:
        """The objects that it concerns."""
        raise NotImplementedError

    @property
    def kept_bytes(self) -> int:
        """Memory that it keeps alive."""
        return 0

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Restore the previous state, or raise `DevExplorerError` and change nothing. Changes are reverted in reverse
        order, so each finds the state that it left behind."""
        raise NotImplementedError

    def without(self, name: str) -> WorkspaceChange | None:
        """The same after that object was deleted for good; None when nothing is left to revert."""
        return None if name in self.names else self

    def hosted(self, name: str) -> WorkspaceChange:
        """The same after that object was removed: what is kept of it has left its devices for the CPU."""
        return self


class MoveChange(WorkspaceChange):
    """Tensors that were moved or cast."""

    def __init__(self, origins: tuple[TensorOrigin, ...]) -> None:
        self._origins = origins

    @property
    def names(self) -> tuple[str, ...]:
        """One object for each tensor that was moved."""
        return tuple(dict.fromkeys(origin.keys[0][0] for origin in self._origins))

    @cached_property
    def kept_bytes(self) -> int:
        """Originals that moving back would not restore. Read after every command, and the move of a large model
        has 50,000 of them."""
        return sum(origin.kept_bytes for origin in self._origins)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Move everything back."""
        report, back = workspace.move_back(self.names, self._origins, progress)
        return Undone(report=report, touched=self.names, back=back)

    def without(self, name: str) -> MoveChange | None:
        """Without the tensors that only that object held."""
        origins = tuple(left for origin in self._origins if (left := origin.without(name)) is not None)
        return MoveChange(origins) if origins else None

    def hosted(self, name: str) -> MoveChange:
        """With the originals of that object on the CPU."""
        return MoveChange(
            tuple(origin.hosted() if {key[0] for key in origin.keys} == {name} else origin for origin in self._origins)
        )


class CreateChange(WorkspaceChange):
    """New objects."""

    def __init__(self, *names: str) -> None:
        self._names = names

    @property
    def names(self) -> tuple[str, ...]:
        """The new objects."""
        return self._names

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Remove them for good: Redo creates them again."""
        return Undone(removed=self._names, back=workspace.drop(self._names))

    def without(self, name: str) -> CreateChange | None:
        """Without one of them."""
        left = [item for item in self._names if item != name]
        return type(self)(*left) if left else None


class ObjectChange(WorkspaceChange):
    """A change to a single object: what it was before can be exchanged for what it is."""

    def __init__(self, name: str, previous: Any) -> None:
        self.name, self._previous = name, previous

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Put the object into this state; returns the state that it was in."""
        raise NotImplementedError

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Put it into its previous state."""
        now = self.exchange(workspace, self._previous)
        return Undone(touched=self.names, back=lambda: self.exchange(workspace, now))


class ElementChange(ObjectChange):
    """One element that was set; the state is its value on the CPU, exact to the bit."""

    def __init__(self, target: str, index: tuple[int, ...], previous: Any) -> None:
        super().__init__(object_name(target), previous)
        self._target, self._index = target, index

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Set the element."""
        tensor = workspace.find(self._target).tensor
        with torch.no_grad():
            now = tensor[self._index].detach().to("cpu", copy=True)
            tensor[self._index] = state
        return now


class ExchangeChange(ObjectChange):
    """Another object under the same name, with the same tensors but for `kept_bytes`; the state is object and
    extras."""

    def __init__(self, name: str, previous: Any, kept_bytes: int = 0) -> None:
        super().__init__(name, previous)
        self._kept_bytes = kept_bytes

    @property
    def kept_bytes(self) -> int:
        """What only the former object has."""
        return self._kept_bytes

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Let the name mean the other one."""
        return workspace.exchange(self.name, *state)


class _Gradient(NamedTuple):
    tensor: Tensor
    gradient: Tensor | None
    values: Tensor | None
    """A copy, because the gradient may be added to."""


class ObjectMemento(ObjectChange):
    """An image of one object. Made before the command, given to `Workspace.changed` after it."""

    def __init__(
        self, name: str, thing: nn.Module | Tensor, extras: Extras, within: str = "", *, named: bool = True
    ) -> None:
        """`within`: the part of a model that `take` is limited to; `named`: it is the object of that name itself."""
        self.name, self._thing, self._extras, self._named = name, thing, extras, named
        modules = [] if isinstance(thing, Tensor) else list(thing.modules())
        self._modules = [] if isinstance(thing, Tensor) else list(thing.get_submodule(within).modules())
        self._slots = [(module, key, parameter) for module in modules for key, parameter in module._parameters.items()]
        tensors = [thing] if isinstance(thing, Tensor) else [item for _, _, item in self._slots if item is not None]
        leaves = [tensor for tensor in {id(tensor): tensor for tensor in tensors}.values() if tensor.is_leaf]
        self._attributes: list[tuple[Any, str, Any]] = [
            *((module, "training", module.training) for module in modules),
            *((tensor, "requires_grad", tensor.requires_grad) for tensor in leaves),
            *((extras, name, getattr(extras, name)) for name in Extras.__slots__),
        ]
        """What is given back by setting it: owner, name, previous value."""
        self._values: list[tuple[Tensor, Tensor]] = []
        self._buffers: list[tuple[nn.Module, str, Tensor]] = []
        self._gradients: list[_Gradient] = []
        self._waiting = [LazyModuleMemento(module) for module in self._modules if isinstance(module, LazyModuleMixin)]
        self._state: Any = None

    # --- taking it

    def needed_bytes(self, *, values: bool = False, gradients: bool = False, buffers: bool = False) -> int:
        """What `take` would keep."""
        parameters = list(self._own_parameters())
        needed = sum(map(size_of, parameters)) if values else 0
        if values or buffers:
            needed += sum(size_of(buffer) for _, _, buffer in self._own_buffers())
        if gradients:
            needed += sum(size_of(gradient) for tensor in parameters if (gradient := gradient_of(tensor)) is not None)
        return needed

    def take(self, *, values: bool = False, gradients: bool = False, buffers: bool = False) -> None:
        """Copy values (of parameters and buffers), those of buffers alone, gradients."""
        if values:
            self._values = [(tensor, _copied(tensor)) for tensor in self._own_parameters()]
        if values or buffers:
            self._buffers = [(module, key, _copied(buffer)) for module, key, buffer in self._own_buffers()]
        if gradients:
            self._gradients = [_gradient(tensor) for tensor in self._own_parameters()]
            self._gradients += [
                _Gradient(tensor, None, None) for waiting in self._waiting for tensor in waiting.tensors
            ]

    @property
    def values(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Every parameter whose values were copied, with the copy."""
        return tuple(self._values)

    def take_optimizer(self) -> None:
        """Copy the optimizer's state to the host."""
        if self._extras.optimizer is not None:
            self._state = _on_host(self._extras.optimizer.state_dict())

    def settle(self) -> None:
        """The command is over: release what it did not change."""
        self._slots = [(module, key, old) for module, key, old in self._slots if module._parameters.get(key) is not old]
        self._attributes = [item for item in self._attributes if getattr(item[0], item[1]) is not item[2]]
        self._waiting = [waiting for waiting in self._waiting if waiting.is_over]
        self._gradients = [  # one that was given up is not kept alive on its device; its copy is in the host's memory
            item if gradient_of(item.tensor) is item.gradient else item._replace(gradient=None)
            for item in self._gradients
        ]
        self._modules = []

    @property
    def kept_bytes(self) -> int:
        """Bytes of every copy, of Parameters that are no longer in the model, and of the state of an optimizer that it
        no longer has."""
        copies = [*(values for _, values in self._values), *(values for _, _, values in self._buffers)]
        copies += [item.values for item in self._gradients if item.values is not None]
        replaced: list[Tensor] = [
            old for module, key, old in self._slots if old is not None and module._parameters.get(key) is not old
        ]
        held = sum(map(size_of, _each_once((*copies, *replaced))))
        replaced_states = (
            value
            for owner, name, previous in self._attributes
            if name == "optimizer" and previous is not None and previous is not owner.optimizer
            for _, _, value in state_tensors(previous)
        )
        return held + sum(map(size_of, (*_tensors_in(self._state), *replaced_states)))

    # --- giving it back

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Make the object as it was."""
        self._find(workspace)
        now = self._now()
        try:
            self._give_back()
        except BaseException:
            now._give_back()
            raise
        finally:
            workspace.publish(self.name)

        def back() -> None:
            now._give_back()
            workspace.publish(self.name)

        return Undone(touched=self.names, back=back)

    def _find(self, workspace: Workspace) -> None:
        """Undoing a move binds the name of a tensor to another one: from now on it is that one's image."""
        if self._named and isinstance(self._thing, Tensor):
            tensor = workspace.tensor_named(self.name)
            self._attributes = [
                (tensor if owner is self._thing else owner, name, previous)
                for owner, name, previous in self._attributes
            ]
            self._values = [(tensor, values) for _, values in self._values]
            self._gradients = [item._replace(tensor=tensor) for item in self._gradients]
            self._thing = tensor

    def _now(self) -> ObjectMemento:
        """An image of the same things as they are now."""
        now = copy.copy(self)
        now._slots = [(module, key, module._parameters.get(key)) for module, key, _ in self._slots]
        now._attributes = [(owner, name, getattr(owner, name)) for owner, name, _ in self._attributes]
        now._values = [(tensor, _copied(tensor)) for tensor, _ in self._values]
        now._buffers = [
            (module, key, _copied(buffer))
            for module, key, _ in self._buffers
            if (buffer := module._buffers.get(key)) is not None
        ]
        now._gradients = [_gradient(item.tensor) for item in self._gradients]
        if self._state is not None:
            now.take_optimizer()
        return now

    def _give_back(self) -> None:
        for module, key, old in self._slots:
            module._parameters[key] = old
        renew_flat_weights(module for module, _, _ in self._slots)
        for owner, name, previous in self._attributes:
            setattr(owner, name, previous)  # a lazy parameter has no requires_grad_()
        with torch.no_grad():
            for tensor, values in self._values:
                _write(tensor, values)
            for module, key, values in self._buffers:
                buffer = module._buffers.get(key)
                if buffer is not None:
                    _write(buffer, values)
            for item in self._gradients:
                gradient = item.gradient
                if gradient is not None and item.values is not None:
                    _write(gradient, item.values)
                elif item.values is not None:
                    gradient = item.values.to(item.tensor.device, copy=True)
                item.tensor.grad = gradient
            for waiting in self._waiting:
                waiting.turn()
        if self._state is not None and self._extras.optimizer is not None:
            self._extras.optimizer.load_state_dict(_on_host(self._state))  # a copy: it may take what it is given

    # --- parts

    def _own_parameters(self) -> Iterator[Tensor]:
        if isinstance(self._thing, Tensor):
            yield self._thing
            return
        parameters = (parameter for module in self._modules for parameter in module._parameters.values())
        yield from _each_once(parameter for parameter in parameters if parameter is not None)

    def _own_buffers(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        for module in self._modules:
            for key, buffer in module._buffers.items():
                if buffer is not None and not is_uninitialised(buffer):
                    yield module, key, buffer


def before_leaves(objects: Mapping[str, nn.Module | Tensor], given: Mapping[str, Tensor]) -> list[ObjectMemento]:
    """Images, with gradients, of the leaves that the named inputs of a model are or derive from: a backward adds
    gradients there as well."""
    names = {id(thing): name for name, thing in objects.items()}
    below = {id(leaf): (name, leaf) for name, tensor in given.items() for leaf in leaves_below(tensor)}
    images = [
        ObjectMemento(names.get(identity, name), leaf, Extras(), named=identity in names)
        for identity, (name, leaf) in below.items()
    ]
    for image in images:
        image.take(gradients=True)
    return images


_REGISTERS = ("_parameters", "_buffers", "_modules")
"""The same dictionaries throughout: their tensors change in place."""


class LazyModuleMemento:
    """A lazy module before its first forward. `turn` exchanges what it has become for what it was, and back.

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
        """Restore what it was, on its present devices; the second time, what it had become."""
        if not self._others and not self.is_over:
            return
        others = self._others or [_shapeless(tensor) for tensor in self.tensors]
        for tensor, other in zip(self.tensors, others, strict=True):
            torch.utils.swap_tensors(tensor, other)
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
    return {
        key: _Hooks(value) if key.endswith("_hooks") and isinstance(value, dict) else value
        for key, value in vars(module).items()
        if key not in _REGISTERS
    }


def _shapeless(tensor: Tensor) -> Tensor:
    """A tensor without a shape, where this one is."""
    kind: Any = UninitializedParameter if isinstance(tensor, nn.Parameter) else UninitializedBuffer
    made: Tensor = kind(tensor.requires_grad, dtype=tensor.dtype)
    move_uninitialised(made, torch.device(tensor.device), tensor.dtype)
    return made


def _each_once(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Every tensor object once, those without values left out."""
    seen: set[int] = set()
    for tensor in tensors:
        if id(tensor) not in seen and not is_uninitialised(tensor):
            seen.add(id(tensor))
            yield tensor


def _gradient(tensor: Tensor) -> _Gradient:
    gradient = gradient_of(tensor)
    return _Gradient(tensor, gradient, None if gradient is None else _copied(gradient))


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _write(tensor: Tensor, values: Tensor) -> None:
    """Bits as they were; a tensor that has another shape by now is left alone."""
    if tensor.shape == values.shape:
        # detach() of a sparse tensor has contents of its own
        (tensor.detach() if tensor.layout is torch.strided else tensor).copy_(values)


def _on_host(state: Any) -> Any:
    """A copy of an optimizer's state with every tensor in the host's memory."""
    if isinstance(state, Tensor):
        return _copied(state)
    if isinstance(state, dict):
        return {key: _on_host(value) for key, value in state.items()}
    return copy.deepcopy(state)


def _tensors_in(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors_in(value)
