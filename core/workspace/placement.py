"""Reads what is where: a snapshot of a module or a tensor, without changing anything in it. Runs on the jobs thread.

Only attributes are read, no operation runs: nothing moves, nothing is materialised, no gradient flag, hook or random state changes.
One walk, about 5 µs a tensor; rows are made when the walk is over, because a module's totals are known only then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.core.workspace.extras import Extras
from devexplorer.core.workspace.storages import storage_address
from devexplorer.core.workspace.walk import gradient_of, is_uninitialised, registered_ids, type_name, unregistered

VALUES_LIMIT = 100
"""Tensors with more elements are described, not printed."""


def snapshot(name: str, thing: nn.Module | Tensor, extras: Extras | None = None) -> ObjectSnapshot:
    """The rows of one named object and its totals per device."""
    extras = extras or Extras()
    walk = _Walk()
    if isinstance(thing, nn.Module):
        walk.known = registered_ids(thing)
        walk.module("", name, thing, 0, True)
        training: bool | None = thing.training
        kind = "model"
    else:
        walk.tensor("", name, "tensor", thing, 0, True)
        training, kind = None, "tensor"
    rows = walk.finished_rows()
    return ObjectSnapshot(
        name=name,
        kind=kind,
        type=type_name(thing),
        rows=rows,
        bytes_by_device=dict(sorted(walk.bytes_by_device.items())),
        tensors_by_device=dict(sorted(walk.tensors_by_device.items())),
        training=training,
        values=values_text(thing) if isinstance(thing, Tensor) else None,
        source=extras.source,
        optimizer=extras.optimizer_text,
        hops=extras.hops is not None,
    )


def values_text(tensor: Tensor) -> str | None:
    """The values as torch prints them; None for tensors that are large, uninitialised or without values."""
    if is_uninitialised(tensor) or tensor.numel() > VALUES_LIMIT or tensor.is_meta:
        return None
    return str(tensor.detach())


@dataclass(slots=True)
class _Branch:
    """A module whose totals are still growing."""

    row: int
    path: str
    name: str
    type: str
    depth: int
    registered: bool
    identity: int
    tied_to: str | None
    devices: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    bytes: int = 0
    elements: int = 0


class _Walk:
    """One walk over an object. Ties are found by identity, so a tensor's first path is the one it is counted under."""

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.bytes_by_device: dict[str, int] = {}
        self.tensors_by_device: dict[str, int] = {}
        self._rows: list[Row | _Branch] = []
        self._branches: tuple[_Branch, ...] = ()
        self._open: set[int] = set()
        self._first_path: dict[int, str] = {}
        self._counted_in: dict[int, tuple[_Branch, ...]] = {}
        self._devices: dict[torch.device, str] = {}
        self._dtypes: dict[torch.dtype, str] = {}
        self._shown: set[int] = set()

    def module(self, path: str, name: str, module: nn.Module, depth: int, registered: bool) -> None:
        """A module and everything below it."""
        if id(module) in self._open:  # a module that holds itself: state_dict would never end either
            return
        tied_to = self._first_path.get(id(module))
        self._first_path.setdefault(id(module), path)
        branch = _Branch(len(self._rows), path, name, type_name(module), depth, registered, id(module), tied_to)
        self._rows.append(branch)
        outer = self._branches
        self._branches = (*outer, branch) if registered or not outer or not outer[-1].registered else (branch,)
        self._open.add(id(module))
        prefix = f"{path}." if path else ""
        for key, parameter in module._parameters.items():
            if parameter is not None:
                self.tensor(prefix + key, key, "parameter", parameter, depth + 1, registered)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                self.tensor(prefix + key, key, "buffer", buffer, depth + 1, registered)
        for key, child in module._modules.items():
            if child is not None:
                self.module(prefix + key, key, child, depth + 1, registered)
        for key, thing in unregistered(module, self.known):
            if id(thing) in self._shown:
                continue
            self._shown.add(id(thing))
            if isinstance(thing, Tensor):
                self.tensor(prefix + key, key, "tensor", thing, depth + 1, False)
            else:
                self.module(prefix + key, key, thing, depth + 1, False)
        self._open.discard(id(module))
        self._branches = outer

    def tensor(self, path: str, name: str, kind: str, tensor: Tensor, depth: int, registered: bool) -> None:
        """A tensor, and its gradient below it."""
        gradient = self._leaf(path, name, kind if registered else "tensor", tensor, depth, registered)
        if gradient is not None:
            prefix = f"{path}." if path else ""
            self._leaf(f"{prefix}grad", "grad", "gradient", gradient, depth + 1, registered)

    def _leaf(self, path: str, name: str, kind: str, tensor: Tensor, depth: int, registered: bool) -> Tensor | None:
        identity = id(tensor)
        device, dtype = self._device(tensor.device), self._dtype(tensor.dtype)
        tied_to = self._first_path.setdefault(identity, path)
        lazy = is_uninitialised(tensor)
        elements = 0 if lazy else tensor.numel()
        size = 0 if lazy else elements * tensor.element_size()
        inside = self._branches and self._branches[-1].registered == registered
        if kind != "gradient" and inside:
            self._add(identity, device, dtype, size, elements)
        if registered and tied_to == path:
            self.bytes_by_device[device] = self.bytes_by_device.get(device, 0) + size
            self.tensors_by_device[device] = self.tensors_by_device.get(device, 0) + 1
        leaf = lazy or tensor.is_leaf
        grad_fn = None if leaf else tensor.grad_fn
        self._rows.append(
            Row(
                path=path,
                name=name,
                kind=kind,
                type=type_name(tensor),
                depth=depth,
                shape=None if lazy else tuple(tensor.shape),
                dtype=dtype,
                devices=(device,),
                bytes=size,
                elements=elements,
                requires_grad=tensor.requires_grad,
                tied_to=None if tied_to == path else tied_to,
                registered=registered,
                initialised=not lazy,
                is_leaf=leaf,
                grad_fn=None if grad_fn is None else grad_fn.name(),
                storage=None if lazy else storage_address(tensor),
                identity=identity,
            )
        )
        return None if lazy or kind == "gradient" else gradient_of(tensor)

    def _add(self, identity: int, device: str, dtype: str, size: int, elements: int) -> None:
        """Count a tensor in every module around it that has not counted it under another name."""
        already = self._counted_in.get(identity)
        around = self._branches
        if already is None:
            self._counted_in[identity] = around
        else:
            around = tuple(branch for branch in around if not any(branch is other for other in already))
            self._counted_in[identity] = already + around
        for branch in around:
            branch.bytes += size
            branch.elements += elements
            branch.devices.add(device)
            branch.dtypes.add(dtype)

    def _device(self, device: torch.device) -> str:
        if device not in self._devices:
            self._devices[device] = str(device)
        return self._devices[device]

    def _dtype(self, dtype: torch.dtype) -> str:
        if dtype not in self._dtypes:
            self._dtypes[dtype] = str(dtype).removeprefix("torch.")
        return self._dtypes[dtype]

    def finished_rows(self) -> tuple[Row, ...]:
        """Every row, modules with their totals."""
        return tuple(_module_row(row) if isinstance(row, _Branch) else row for row in self._rows)


def _module_row(branch: _Branch) -> Row:
    # A counter in int64 (batch norm has one) does not make a float32 model mixed.
    dtypes = {dtype for dtype in branch.dtypes if "float" in dtype} or branch.dtypes
    return Row(
        path=branch.path,
        name=branch.name,
        kind="module",
        type=branch.type,
        depth=branch.depth,
        dtype=next(iter(dtypes)) if len(dtypes) == 1 else None,
        devices=tuple(sorted(branch.devices)),
        bytes=branch.bytes,
        elements=branch.elements,
        tied_to=branch.tied_to,
        registered=branch.registered,
        identity=branch.identity,
    )
