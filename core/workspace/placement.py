"""Reads what is where, without changing anything: what a target means (an object, or a module, parameter or buffer of a
model), how it is written in Python, and a snapshot of a module or a tensor. Runs on the jobs thread.

Only attributes are read and no operation runs: nothing moves, nothing is materialised, no gradient flag, hook or random
state changes. One walk, about 2 µs a tensor: each attribute is read once, and a module's totals go to the module around
it when its walk is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, expression, python_names, quoted, variable
from devexplorer.core.models import (
    ORDINARY,
    Extras,
    RegisteredIds,
    StoredModule,
    dispatched,
    gradient_of,
    is_uninitialised,
    named_modules,
    no_collections,
    size_of,
    storage_address,
    type_name,
    unregistered,
)
from devexplorer.core.records import ObjectSnapshot, Row


class Target(NamedTuple):
    """What `name` or `name:path` means."""

    name: str
    path: str
    thing: nn.Module | Tensor
    also: tuple[str, ...] = ()
    """Other paths of the very same tensor."""

    @property
    def title(self) -> str:
        """`mlp`, or `mlp:0` for a part."""
        return f"{self.name}:{self.path}" if self.path else self.name

    @property
    def holder(self) -> str:
        """The path of the module that holds the tensor."""
        return self.path.rpartition(".")[0]

    @property
    def key(self) -> str:
        """The name of the tensor in its holder."""
        return self.path.rpartition(".")[2]

    @property
    def tensor(self) -> Tensor:
        """The tensor; `BadInput` for a module."""
        if isinstance(self.thing, Tensor):
            return self.thing
        kind = "module" if self.path else "model"
        raise BadInput(f"'{self.title}' is a {kind}; choose one of its parameters or buffers")

    @property
    def module(self) -> nn.Module:
        """The model, or the part of one; `BadInput` for a tensor."""
        if isinstance(self.thing, Tensor):
            raise BadInput(f"'{self.title}' is a tensor; choose a model")
        return self.thing

    @property
    def is_buffer(self) -> bool:
        """Whether it is a tensor inside a model that is no parameter."""
        return bool(self.path) and isinstance(self.thing, Tensor) and not isinstance(self.thing, nn.Parameter)

    @property
    def changed_too(self) -> str:
        """A sentence, with a space before it, about the other names of a tensor that was changed; empty without any."""
        if not self.also:
            return ""
        verb = "is" if len(self.also) == 1 else "are"
        return f" {' and '.join(self.also)} {verb} the very same Parameter and changed with it."

    def code(self) -> str:
        """The target as Python."""
        if isinstance(self.thing, nn.Module) or not self.path:
            return expression(self.title)
        return f"{variable(self.name)}.get_{'buffer' if self.is_buffer else 'parameter'}({quoted(self.path)})"

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter once, by its path in the whole object."""
        if isinstance(self.thing, Tensor):
            yield self.path, self.thing
        else:
            yield from self.thing.named_parameters(prefix=self.path)

    def refuse_waiting(self, what: str) -> None:
        """Raise `BadInput` when a parameter has no shape before the first forward."""
        waiting = next((path for path, parameter in self.parameters() if is_uninitialised(parameter)), None)
        if waiting is not None:
            raise BadInput(
                f"'{waiting or self.title}' has no shape before the first forward, so {what}; run the model once first"
            )


def found_in(name: str, thing: nn.Module | Tensor, path: str) -> Target:
    """What this path means in the object of that name: a module, a parameter or buffer; empty: the object itself.
    Raises `BadInput`."""
    if not path:
        return Target(name, "", thing)
    if isinstance(thing, Tensor):
        raise BadInput(f"'{name}' is a tensor and has no part '{path}'")
    modules = dict(thing.named_modules(remove_duplicate=False))
    if path in modules:
        return Target(name, path, modules[path])
    tensors = named_tensors(thing)
    if "[" in path and path not in tensors:
        raise BadInput(
            f"'{path}' is not registered in '{name}' and cannot be reached by PyTorch; hold it in an nn.ModuleList"
            " instead"
        )
    if path not in tensors:
        if path.rpartition(".")[2] == "grad":
            raise BadInput(f"'{path}' is a tensor inside '{name}'; choose the module that holds it")
        known = [part for part in (*modules, *tensors) if part]
        raise BadInput(f"'{name}' has no part '{path}'; {python_names.suggestion(path, known)}")
    tensor = tensors[path]
    also = tuple(other for other, item in tensors.items() if item is tensor and other != path)
    return Target(name, path, tensor, also)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, under each of their paths."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}


VALUES_LIMIT = 100
"""Tensors with more elements are described, not printed."""


@no_collections()
def snapshot(
    name: str, thing: nn.Module | Tensor, extras: Extras | None = None, *, gradients: bool = True
) -> ObjectSnapshot:
    """The rows of one named object and its totals per device. Without `gradients` none is read: while a step runs that
    would crash on another thread, as torch frees them without the GIL."""
    extras = extras or Extras()
    modules = named_modules(thing) if isinstance(thing, nn.Module) else []
    walk = _Walk(RegisteredIds(modules), extras.optimizer, gradients)
    foreign: str | None = None
    # Only attributes are read; without this each costs a virtual GPU's tensor 0.1 µs more.
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(thing, nn.Module):
            foreign = dispatched(modules) if extras.hops is None else None
            walk.module("", name, thing, 0, True)
            training: bool | None = thing.training
            kind = "model"
        else:
            walk.tensor("", name, "tensor", thing, 0, True)
            training, kind = None, "tensor"
    places = sorted(walk.places.values(), key=lambda place: place.device)
    return ObjectSnapshot(
        name=name,
        kind=kind,
        type=type_name(thing),
        rows=walk.finished_rows(),
        bytes_by_device={place.device: place.bytes for place in places if place.tensors},
        tensors_by_device={place.device: place.tensors for place in places if place.tensors},
        training=training,
        values=values_text(thing) if isinstance(thing, Tensor) else None,
        source=extras.source,
        folder=extras.folder if extras.own_code else "",
        outdated=extras.outdated,
        stored=(thing.origin.source or "", thing.origin.folder)
        if isinstance(thing, StoredModule) and thing.origin is not None
        else None,
        optimizer=extras.optimizer_text,
        hops=extras.hops is not None,
        dispatched=foreign,
    )


def values_text(tensor: Tensor) -> str | None:
    """The values as torch prints them; None for tensors that are large, uninitialised or on `meta`."""
    if is_uninitialised(tensor) or tensor.numel() > VALUES_LIMIT or tensor.is_meta:
        return None
    return str(tensor.detach())


class _Place:
    """A device and what was counted there."""

    __slots__ = ("bytes", "device", "devices", "tensors")

    def __init__(self, device: str) -> None:
        self.device = device
        self.devices = (device,)
        """The one tuple that the rows of all its tensors share."""
        self.bytes = self.tensors = 0


@dataclass(slots=True, eq=False)
class _Branch:
    """A module whose totals are still growing."""

    path: str
    name: str
    module: nn.Module
    depth: int
    registered: bool
    tied_to: str | None
    around: _Branch | None
    devices: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    bytes: int = 0
    elements: int = 0

    def chain(self) -> Iterator[_Branch]:
        """This module and those around it, outwards."""
        branch: _Branch | None = self
        while branch is not None:
            yield branch
            branch = branch.around

    def close(self) -> None:
        """Everything below it was visited: add it to the enclosing module."""
        around = self.around
        if around is not None:
            around.bytes += self.bytes
            around.elements += self.elements
            around.devices |= self.devices
            around.dtypes |= self.dtypes


class _Walk:
    """One walk over an object. Ties are found by identity, so a tensor's first path is the one it is counted under."""

    def __init__(
        self, known: RegisteredIds, optimizer: torch.optim.Optimizer | None = None, gradients: bool = True
    ) -> None:
        self._gradients = gradients
        self.places: dict[torch.device, _Place] = {}
        self._states: dict[int, Mapping[Any, Any]] = (
            {} if optimizer is None else {id(p): s for p, s in optimizer.state.items()}
        )
        self._known = known
        self._rows: list[Row | _Branch] = []
        self._branch: _Branch | None = None
        self._open: set[int] = set()
        self._first: dict[int, int] = {}
        """`id()` of a module or tensor -> its first row."""
        self._counted_again: dict[int, list[_Branch]] = {}
        """Tied tensor -> the modules that counted it under further names."""
        self._dtypes: dict[torch.dtype, tuple[str, int]] = {}
        """Dtype -> its name, bytes of an element."""
        self._shapes: dict[torch.Size, tuple[tuple[int, ...], int]] = {}
        """Shape -> the same as a tuple, number of elements."""
        self._shown: set[int] = set()

    def module(self, path: str, name: str, module: nn.Module, depth: int, registered: bool) -> None:
        """A module and everything below it."""
        identity = id(module)
        if identity in self._open:  # a module that holds itself: state_dict would never end either
            return
        rows, outer, index = self._rows, self._branch, len(self._rows)
        first = self._first.setdefault(identity, index)
        around = outer if outer is not None and (registered or not outer.registered) else None
        branch = _Branch(path, name, module, depth, registered, None if first == index else rows[first].path, around)
        rows.append(branch)
        self._branch = branch
        self._open.add(identity)
        prefix = f"{path}." if path else ""
        below = depth + 1
        for key, parameter in module._parameters.items():
            if parameter is not None:
                self.tensor(prefix + key, key, "parameter", parameter, below, registered)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                self.tensor(prefix + key, key, "buffer", buffer, below, registered)
        for key, child in module._modules.items():
            if child is not None:
                self.module(prefix + key, key, child, below, registered)
        for key, thing in unregistered(module, self._known):
            if id(thing) in self._shown:
                continue
            self._shown.add(id(thing))
            if isinstance(thing, Tensor):
                self.tensor(prefix + key, key, "tensor", thing, below, False)
            else:
                self.module(prefix + key, key, thing, below, False)
        self._open.discard(identity)
        branch.close()
        self._branch = outer

    def tensor(
        self, path: str, name: str, kind: str, tensor: Tensor, depth: int, registered: bool, *, counts: bool = True
    ) -> None:
        """A tensor, below it its gradient and what the optimizer keeps for it. `counts`: in the modules around it."""
        if counts and not registered:
            kind = "tensor"
        type_of = type(tensor)
        lazy = type_of not in ORDINARY and is_uninitialised(tensor)
        place = self.places.get(tensor.device) or self._new_place(tensor.device)
        dtype, itemsize = self._dtypes.get(tensor.dtype) or self._new_dtype(tensor.dtype)
        if lazy:  # it has a place, and no shape yet
            shape, elements, nbytes, leaf, storage = None, 0, 0, True, None
        else:
            try:
                shape, elements = self._shapes.get(tensor.shape) or self._new_shape(tensor.shape)
            except (RuntimeError, TypeError):  # a nested tensor has no shape that could be written down
                shape, elements = None, tensor.numel()
            leaf = tensor.is_leaf
            storage = storage_address(tensor)
            nbytes = elements * itemsize
            if storage is None or type_of not in ORDINARY:  # sparse, or spread over several processes
                nbytes = size_of(tensor)
        rows, identity = self._rows, id(tensor)
        index = len(rows)
        first = self._first.setdefault(identity, index)
        branch = self._branch
        counted = branch is not None and counts and branch.registered == registered
        if first == index:
            tied_to = None
            if registered:
                place.bytes += nbytes
                place.tensors += 1
        else:
            tied_to = rows[first].path
            if counted and branch is not None:
                counted = self._counts_again(rows[first], first, branch, identity, nbytes, elements)
        if counted and branch is not None:
            branch.bytes += nbytes
            branch.elements += elements
            branch.devices.add(place.device)
            branch.dtypes.add(dtype)
        rows.append(
            Row(
                path,
                name,
                kind,
                "Parameter" if type_of is nn.Parameter else type_name(tensor),
                depth,
                shape,
                dtype,
                place.devices,
                nbytes,
                elements,
                tensor.requires_grad,
                tied_to,
                registered,
                not lazy,
                leaf,
                None if leaf else _name_of(tensor.grad_fn),
                storage,
                identity,
            )
        )
        if counts and not lazy:
            gradient = None
            if self._gradients:
                gradient = tensor.grad if leaf else gradient_of(tensor)
            if gradient is not None:
                self.tensor(
                    f"{path}.grad" if path else "grad",
                    "grad",
                    "gradient",
                    gradient,
                    depth + 1,
                    registered,
                    counts=False,
                )
            if identity in self._states:
                self._state(path, self._states[identity], depth + 1, registered)

    def _state(self, path: str, state: Mapping[Any, Any], depth: int, registered: bool) -> None:
        for key, value in state.items():
            if isinstance(value, Tensor):
                self.tensor(
                    f"{path}.{key}" if path else str(key), str(key), "state", value, depth, registered, counts=False
                )

    def _counts_again(
        self, first: Row | _Branch, index: int, branch: _Branch, identity: int, nbytes: int, elements: int
    ) -> bool:
        """Whether a tensor that has a row already is new to this module; sees to it that it counts once in the modules
        around both."""
        counted_in = [*self._innermost(first, index), *self._counted_again.get(identity, ())]
        already = {id(item) for start in counted_in for item in start.chain()}
        if id(branch) in already:
            return False
        self._counted_again.setdefault(identity, []).append(branch)
        common = next((item for item in branch.chain() if id(item) in already), None)
        if common is not None:  # it will arrive there from below a second time
            common.bytes -= nbytes
            common.elements -= elements
        return True

    def _innermost(self, row: Row | _Branch, index: int) -> list[_Branch]:
        """The module that holds the tensor of an earlier row, where it counts in that."""
        while index > 0:
            index -= 1
            before = self._rows[index]
            if isinstance(before, _Branch) and before.depth < row.depth:
                return [before] if before.registered == row.registered else []
        return []

    def _new_place(self, device: torch.device) -> _Place:
        place = self.places[device] = _Place(str(device))
        return place

    def _new_shape(self, size: torch.Size) -> tuple[tuple[int, ...], int]:
        if any(type(length) is not int for length in size):
            raise TypeError("a length of the shape is not a number")
        shape = self._shapes[size] = tuple(size), size.numel()
        return shape

    def _new_dtype(self, dtype: torch.dtype) -> tuple[str, int]:
        known = self._dtypes[dtype] = str(dtype).removeprefix("torch."), dtype.itemsize
        return known

    def finished_rows(self) -> tuple[Row, ...]:
        """Every row, modules with their totals."""
        return tuple([_module_row(row) if isinstance(row, _Branch) else row for row in self._rows])


def _name_of(function: Any) -> str | None:
    return None if function is None else str(function.name())


def _module_row(branch: _Branch) -> Row:
    # A counter in int64 (batch norm has one) does not make a float32 model mixed.
    dtypes = {dtype for dtype in branch.dtypes if "float" in dtype} or branch.dtypes
    return Row(
        path=branch.path,
        name=branch.name,
        kind="module",
        type=type(branch.module).__name__,
        depth=branch.depth,
        dtype=next(iter(dtypes)) if len(dtypes) == 1 else None,
        devices=tuple(sorted(branch.devices)),
        bytes=branch.bytes,
        elements=branch.elements,
        tied_to=branch.tied_to,
        registered=branch.registered,
        identity=id(branch.module),
    )
