"""Writes the whole workspace to one file: every object, its tensors as they are, optimizers, devices. Jobs thread."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import CHUNK_BYTES, Ticker
from devexplorer.core.files.keys import Identity, identity
from devexplorer.core.files.kinds import WORKSPACE_CHECKSUM, WORKSPACE_MARK, WORKSPACE_START
from devexplorer.core.files.save import write_safetensors
from devexplorer.core.files.workspace_format import (
    DEEPEST,
    FORMAT,
    UNSET,
    Manifest,
    Option,
    SavedDevice,
    SavedGroup,
    SavedModel,
    SavedModule,
    SavedOptimizer,
    SavedSlot,
    SavedState,
    SavedTensor,
    StoredObject,
    is_raw,
)
from devexplorer.core.models import (
    Extras,
    ModelOrigin,
    RegisteredIds,
    StoredModule,
    device_id,
    dtype_name,
    every_slot,
    gradient_of,
    is_uninitialised,
    named_modules,
    refuse_not_dense,
    type_name,
    unregistered,
)
from devexplorer.core.records import SentFrom
from devexplorer.core.workspace import Workspace

OPTIMIZER_CLASSES = ("SGD", "Adam", "AdamW")


class Collected(NamedTuple):
    """What becomes the file."""

    manifest: Manifest
    values: Mapping[str, Tensor]
    lost: list[str]
    """What a file cannot hold, in phrases."""


def collect(
    workspace: Workspace, stamp: str, layout: str, copy_of: str = "", copy_of_far: SentFrom | None = None
) -> Collected:
    """Everything in the workspace, without copying a value."""
    tensors = _Tensors()
    objects: list[StoredObject] = []
    lost: list[str] = []
    for name in workspace.names:
        thing, extras = workspace.get(name), workspace.extras(name)
        attempt = tensors.copy()
        try:
            objects.append(_saved(attempt, name, thing, extras, lost))
        except BadInput as error:
            lost.append(f"{name} ({error})")
        else:
            tensors = attempt
    devices = []
    for info in workspace.registry.infos():
        if info.usable:
            devices.append(SavedDevice(id=info.id, name=info.name, simulated=info.simulated))
    manifest = Manifest(
        format=FORMAT,
        stamp=stamp,
        devices=tuple(devices),
        tensors=tuple(tensors.saved),
        objects=tuple(objects),
        layout=layout,
        copy_of=copy_of,
        copy_of_far=copy_of_far,
    )
    return Collected(manifest, tensors.values, lost)


def write(temporary: Path, collected: Collected, tick: Ticker) -> int:
    """Write the file, then the checksum into its header. Returns its bytes."""
    metadata = {
        WORKSPACE_CHECKSUM: UNSET,
        WORKSPACE_MARK: msgspec.json.encode(collected.manifest).decode(),
        "format": "pt",
    }
    size = write_safetensors(temporary, collected.values, metadata, tick)
    with temporary.open("rb+") as file:
        sum_now = 0
        while piece := file.read(CHUNK_BYTES):
            sum_now = zlib.crc32(piece, sum_now)
        file.seek(8 + len(WORKSPACE_START))
        file.write(f"{sum_now:08x}".encode())
    return size


@dataclass
class _Tensors:
    """The list of tensors, each object once."""

    saved: list[SavedTensor] = field(default_factory=list)
    values: dict[str, Tensor] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    keys: dict[Identity, str] = field(default_factory=dict)
    alive: list[Tensor] = field(default_factory=list)
    """So that no `id()` is given twice."""

    def copy(self) -> _Tensors:
        """One that can be given up."""
        return _Tensors(list(self.saved), {**self.values}, {**self.places}, {**self.keys}, list(self.alive))

    def place(self, key: str, tensor: Tensor) -> int:
        """The tensor's place in the list; `key` for its values where they are new."""
        if id(tensor) in self.places:
            return self.places[id(tensor)]
        place = self.places[id(tensor)] = len(self.saved)
        self.alive.append(tensor)
        saved = SavedTensor(
            device=device_id(tensor.device),
            dtype=dtype_name(tensor.dtype),
            parameter=isinstance(tensor, nn.Parameter),
            requires_grad=tensor.requires_grad,
            lazy=is_uninitialised(tensor),
        )
        self.saved.append(saved)
        if saved.lazy:
            return place
        refuse_not_dense(f"'{key}'", tensor, "saved")
        order = _order(tensor)
        gradient = gradient_of(tensor)
        self.saved[place] = msgspec.structs.replace(
            saved,
            shape=tuple(tensor.shape),
            order=order,
            key="" if tensor.is_meta else self._stored(key, tensor, order),
            gradient=None if gradient is None else self.place(f"{key}.grad", gradient),
        )
        return place

    def _stored(self, key: str, tensor: Tensor, order: tuple[int, ...]) -> str:
        known = (*identity(tensor), tensor.is_conj(), tensor.is_neg())
        if known not in self.keys:
            while key in self.values:
                key += "_"
            stored = tensor.detach()
            if order:
                stored = stored.permute(order)
            if is_raw(tensor.dtype):
                stored = stored.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            self.values[key] = stored
            self.keys[known] = key
        return self.keys[known]


def _order(tensor: Tensor) -> tuple[int, ...]:
    """The dimensions as they are in memory, where they fill it in another order than their own (channels_last)."""
    if tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    return order if tensor.permute(order).is_contiguous() else ()


def _saved(tensors: _Tensors, name: str, thing: nn.Module | Tensor, extras: Extras, lost: list[str]) -> StoredObject:
    if isinstance(thing, Tensor):
        if not thing.is_leaf:
            lost.append(f"the graph that computed {name}")
        return StoredObject(name=name, tensor=tensors.place(name, thing))
    first: dict[int, str] = {}
    modules = []
    for path, part in thing.named_modules(remove_duplicate=False):
        if path.count(".") >= DEEPEST:
            raise BadInput(f"its modules are nested deeper than {DEEPEST} levels")
        same = first.setdefault(id(part), path)
        modules.append(SavedModule(path=path, training=part.training, same_as=None if same == path else same))
    slots = []
    for path, part, key, tensor in every_slot(thing):
        buffer = key in part._buffers
        slots.append(
            SavedSlot(
                path=path,
                tensor=tensors.place(f"{name}/{path}", tensor),
                buffer=buffer,
                persistent=not (buffer and key in part._non_persistent_buffers_set),
            )
        )
    known = named_modules(thing)
    ids = RegisteredIds(known)
    hidden = []
    for path, part in known:
        hidden += [f"{path}.{found}".lstrip(".") for found, _ in unregistered(part, ids)]
    if hidden:
        lost.append(f"tensors of {name} that are not registered, such as {hidden[0]}")
    if any(type(part).get_extra_state is not nn.Module.get_extra_state for _, part in known):
        lost.append(f"extra state of the code of {name}")
    optimizer = None
    if extras.optimizer is not None:
        optimizer = _optimizer(tensors, name, extras.optimizer, extras.optimizer_text or "", lost)
    return StoredObject(
        name=name,
        model=SavedModel(
            origin=_origin(thing, extras), modules=tuple(modules), slots=tuple(slots), optimizer=optimizer
        ),
    )


def _origin(thing: nn.Module, extras: Extras) -> ModelOrigin:
    if isinstance(thing, StoredModule) and thing.origin is not None:
        return thing.origin
    return ModelOrigin(
        type=type_name(thing),
        recipe=extras.recipe,
        source=extras.source,
        folder=extras.folder,
        seed=extras.seed,
        inputs=extras.inputs,
        guessed=extras.guessed,
        hops=extras.hops is not None,
    )


def _optimizer(
    tensors: _Tensors, name: str, optimizer: torch.optim.Optimizer, text: str, lost: list[str]
) -> SavedOptimizer | None:
    class_name = type(optimizer).__name__
    if type(optimizer) is not getattr(torch.optim, class_name, None) or class_name not in OPTIMIZER_CLASSES:
        lost.append(f"the optimizer of {name} ({class_name})")
        return None
    stems: dict[int, str] = {}
    groups = []
    for group in optimizer.param_groups:
        places = []
        for parameter in group["params"]:
            stem = stems.setdefault(id(parameter), f"{name}.optimizer/{len(stems)}")
            places.append(tensors.place(stem, parameter))
        options = {key: _option(value) for key, value in group.items() if key != "params"}
        groups.append(SavedGroup(parameters=tuple(places), options=options))
    state = []
    for parameter, values in optimizer.state.items():
        stem = stems.setdefault(id(parameter), f"{name}.optimizer/{len(stems)}")
        number = tensors.place(stem, parameter)
        own: dict[str, int] = {}
        settings: dict[str, Option] = {}
        for key, value in values.items():
            if isinstance(value, Tensor):
                own[key] = tensors.place(f"{stem}.{key}", value)
            else:
                settings[key] = _option(value)
        state.append(SavedState(parameter=number, tensors=own, numbers=settings))
    return SavedOptimizer(class_name=class_name, text=text, groups=tuple(groups), state=tuple(state))


def _option(value: Any) -> Option:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list) and all(isinstance(item, int | float) for item in value):
        return tuple(map(float, value))
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    raise BadInput(f"its optimizer has a setting of the type {type(value).__name__}")
