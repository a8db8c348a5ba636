"""Reads a workspace file: its tensors onto their devices, its models as `StoredModule`s. Jobs thread.

A file may come from anybody. Whatever it says is checked before a value is read, and nothing in it is run: a model
here is modules without code.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.base import BadInput, ProgressMonitor, checked_name, variable
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.files.entries import CHUNK_BYTES, Ticker, device_said, shown, wrong_shape
from devexplorer.core.files.kinds import WORKSPACE_CHECKSUM, WORKSPACE_MARK, WORKSPACE_START
from devexplorer.core.files.opening import opened
from devexplorer.core.files.safe_file import SafeFile
from devexplorer.core.files.workspace_format import (
    DEEPEST,
    LAYOUT_LIMIT,
    MOST_OBJECTS,
    UNSET,
    Manifest,
    SavedModel,
    SavedOptimizer,
    SavedTensor,
    decoded,
    dtype_named,
    is_raw,
)
from devexplorer.core.files.workspace_writing import OPTIMIZER_CLASSES
from devexplorer.core.models import Extras, StoredModule
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace import check_sizes


class Read(NamedTuple):
    """An object of the file."""

    thing: nn.Module | Tensor
    extras: Extras


@contextmanager
def opened_workspace(path: str, copy: str = "") -> Iterator[OpenedWorkspaceFile]:
    """The file, its manifest checked; closed at the end. `BadInput` for whatever is no workspace. `copy`: what is read,
    where `path` is only what people know it as."""
    with opened(path, copy) as file:
        if not isinstance(file, SafeFile) or WORKSPACE_MARK not in file.metadata:
            raise BadInput(f"'{path}' is not a workspace; Open loads tensors and models from other files")
        try:
            manifest = decoded(file.metadata[WORKSPACE_MARK])
        except BadInput as error:
            file.refuse(str(error))
        yield OpenedWorkspaceFile(file, manifest)


class OpenedWorkspaceFile:
    """An open workspace file."""

    def __init__(self, file: SafeFile, manifest: Manifest) -> None:
        self._file, self.manifest = file, manifest
        try:
            self._check()
        except BadInput as error:
            file.refuse(f"its manifest is invalid: {error}")

    # --- what can be wrong, before any value is read

    def _check(self) -> None:
        manifest = self.manifest
        if len(manifest.objects) > MOST_OBJECTS:
            raise BadInput(f"{len(manifest.objects):,} objects; {MOST_OBJECTS:,} is the most")
        if len(manifest.layout) > LAYOUT_LIMIT:
            raise BadInput("its layout is too long")
        for tensor in manifest.tensors:
            self._check_tensor(tensor)
        names: set[str] = set()
        for saved in manifest.objects:
            name = checked_name(saved.name, ())
            if variable(name) in names:
                raise BadInput(f"there is an object named '{shown(name)}' already")
            names.add(variable(name))
            if name != saved.name or (saved.model is None) == (saved.tensor is None):
                raise BadInput(f"'{shown(saved.name)}' is no object")
            if saved.tensor is not None:
                self._tensor(saved.tensor)
            if saved.model is not None:
                self._check_model(name, saved.model)

    def _check_tensor(self, tensor: SavedTensor) -> None:
        title = shown(tensor.key) or "a tensor"
        dtype = dtype_named(tensor.dtype)
        if device_said(tensor.device) is None:
            raise BadInput(f"'{shown(tensor.device)}' is no device")
        if wrong := wrong_shape(tensor.shape):
            raise BadInput(f"'{title}' has {wrong}")
        if tensor.order and sorted(tensor.order) != list(range(len(tensor.shape))):
            raise BadInput(f"the dimensions of '{title}' are in no order")
        if tensor.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
            raise BadInput(f"'{title}' is {tensor.dtype} and requires a gradient")
        if bool(tensor.key) == (tensor.lazy or tensor.device == "meta"):
            raise BadInput("a tensor has no values")
        if tensor.gradient is not None:
            gradient = self._tensor(tensor.gradient)
            same = (tensor.shape, tensor.device, tensor.dtype) == (gradient.shape, gradient.device, gradient.dtype)
            if not same or gradient.gradient is not None or tensor.lazy or gradient.lazy:
                raise BadInput(f"the gradient of '{title}' does not fit it")
        if tensor.key:
            entry = self._file.entries.get(tensor.key)
            if entry is None:
                raise BadInput(f"there are no values '{title}'")
            wanted = (dtype, _stored_shape(tensor))
            if is_raw(dtype):
                wanted = (torch.uint8, (torch.Size(tensor.shape).numel() * dtype.itemsize,))
            if (entry.dtype, entry.shape) != wanted:
                raise BadInput(f"the values '{title}' have another shape or dtype")

    def _tensor(self, place: int) -> SavedTensor:
        if not 0 <= place < len(self.manifest.tensors):
            raise BadInput("it names a tensor that is not there")
        return self.manifest.tensors[place]

    def _check_model(self, name: str, model: SavedModel) -> None:
        listed = [module.path for module in model.modules]
        if any(path.count(".") >= DEEPEST for path in listed) or not 0 <= model.origin.seed < 1 << 63:
            raise BadInput(f"'{name}' is no model")
        try:
            walk = _tree(model)[""].named_modules(remove_duplicate=False)
            is_tree = [path for path, _ in islice(walk, len(listed) + 1)] == listed
        except (KeyError, RecursionError):  # a module inside itself would never end
            is_tree = False
        if not is_tree:
            raise BadInput(f"the modules of '{name}' make no tree")
        taken = set(listed)
        for slot in model.slots:
            around, _, last = slot.path.rpartition(".")
            if around not in listed or not last or slot.path in taken:
                raise BadInput(f"'{shown(slot.path)}' of '{name}' belongs to no module")
            if self._tensor(slot.tensor).parameter == slot.buffer:
                raise BadInput(f"'{shown(slot.path)}' of '{name}' is a parameter and a buffer")
            taken.add(slot.path)
        if model.optimizer is not None:
            self._check_optimizer(name, model.optimizer)

    def _check_optimizer(self, name: str, saved: SavedOptimizer) -> None:
        if saved.class_name not in OPTIMIZER_CLASSES or not saved.groups:
            raise BadInput(f"'{name}' has no such optimizer")
        optimized: list[int] = []
        for group in saved.groups:
            optimized += group.parameters
        if not optimized or len(set(optimized)) != len(optimized):
            raise BadInput(f"the optimizer of '{name}' has a parameter twice, or none")
        for place in optimized:
            tensor = self._tensor(place)
            if tensor.lazy or not tensor.parameter:
                raise BadInput(f"the optimizer of '{name}' is for something else than a parameter")
        for state in saved.state:
            if state.parameter not in optimized:
                raise BadInput(f"the optimizer of '{name}' has a state without its parameter")
            for key, place in state.tensors.items():
                shape = self._tensor(place).shape
                if shape not in ((), self._tensor(state.parameter).shape):  # a fused step would not look
                    raise BadInput(f"the state '{shown(key)}' of '{name}' has another shape than its parameter")

    def check_sum(self, tick: Ticker) -> None:
        """Raise `BadInput` when any byte is not as it was written."""
        hidden = slice(8 + len(WORKSPACE_START), 8 + len(WORKSPACE_START) + len(UNSET))
        total, first = 0, True
        with self._file.where.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                tick(0)
                if first:
                    piece, first = piece[: hidden.start] + UNSET.encode() + piece[hidden.stop :], False
                total = zlib.crc32(piece, total)
        if f"{total:08x}" != self._file.metadata.get(WORKSPACE_CHECKSUM):
            self._file.refuse("it is damaged: its checksum does not match its contents")

    def check_room(
        self, registry: DeviceRegistry, devices: Mapping[str, str], freed: Mapping[str, int] | None = None
    ) -> int:
        """Raise `DoesNotFit` where its values would not fit. `freed`: bytes by device that will be free before they are
        read. Returns how many bytes there are in all."""
        sizes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for tensor in self.manifest.tensors:
            if tensor.key:
                sizes[devices[tensor.device]][tensor.key] = self._file.entries[tensor.key].nbytes
        for device, needed in sizes.items():
            spare = (freed or {}).get(device, 0)
            check_sizes(list(needed.values()), device, registry, "this workspace", freed_bytes=spare)
        return sum(sum(needed.values()) for needed in sizes.values())

    # --- reading

    def read(self, registry: DeviceRegistry, devices: Mapping[str, str], progress: ProgressMonitor) -> dict[str, Read]:
        """Every object, each tensor on the device that `devices` has for the one that the file names; `meta` stays."""
        tensors = self.manifest.tensors
        total = self.check_room(registry, devices)
        tick = Ticker(progress, total, f"reading {self._file.where.name}", "nothing was opened")
        self.check_sum(tick)
        made: list[Tensor] = []
        known: dict[tuple[object, ...], Tensor] = {}
        for tensor in tensors:
            same = (tensor.key, devices.get(tensor.device), tensor.shape, tensor.order, tensor.dtype)
            if tensor.key and same not in known:
                known[same] = self._values(tensor, devices[tensor.device], tick)
            made.append(_object(tensor, known.get(same), devices))
        for tensor, here in zip(tensors, made, strict=True):
            if tensor.gradient is not None:
                here.grad = made[tensor.gradient]
        objects = {}
        for saved in self.manifest.objects:
            if saved.model is not None:
                objects[saved.name] = _model(saved.model, made)
            elif saved.tensor is not None:
                objects[saved.name] = Read(made[saved.tensor], Extras())
        return objects

    def _values(self, saved: SavedTensor, device: str, tick: Ticker) -> Tensor:
        entry, dtype = self._file.entries[saved.key], dtype_named(saved.dtype)
        stored = _stored_shape(saved)
        if is_raw(dtype):
            raw = torch.empty(entry.shape, dtype=torch.uint8)
            self._file.fill(entry, raw, tick)
            values = raw.view(dtype).view(stored).to(device)
        else:
            values = torch.empty(stored, dtype=dtype, device=device)
            self._file.fill(entry, values, tick)
        if saved.order:
            values = values.permute(list(map(saved.order.index, range(len(stored)))))
        return values


def _stored_shape(saved: SavedTensor) -> tuple[int, ...]:
    """That of the values in the file."""
    return tuple(saved.shape[axis] for axis in saved.order) or saved.shape


def _object(saved: SavedTensor, values: Tensor | None, devices: Mapping[str, str]) -> Tensor:
    """A new tensor object with these values, which other objects may share."""
    dtype = dtype_named(saved.dtype)
    if saved.lazy:
        make: Any = UninitializedParameter if saved.parameter else UninitializedBuffer
        lazy: Tensor = make(requires_grad=saved.requires_grad, dtype=dtype)
        move_uninitialised(lazy, devices[saved.device])
        return lazy
    if values is None:
        values = torch.empty(saved.shape, dtype=dtype, device="meta")
    if saved.parameter:
        return nn.Parameter(values.detach(), saved.requires_grad)
    return values.detach().requires_grad_(saved.requires_grad)


def _model(saved: SavedModel, tensors: Sequence[Tensor]) -> Read:
    parts = _tree(saved)
    for slot in saved.slots:
        around, _, name = slot.path.rpartition(".")
        part, tensor = parts[around], tensors[slot.tensor]
        if not slot.buffer:
            assert isinstance(tensor, nn.Parameter)
            part._parameters[name] = tensor
            continue
        part._buffers[name] = tensor
        if not slot.persistent:
            part._non_persistent_buffers_set.add(name)
    root = parts[""]
    root.origin = saved.origin
    extras = Extras()
    if saved.optimizer is not None:
        extras.optimizer, extras.optimizer_text = _optimizer(saved.optimizer, tensors), saved.optimizer.text[:200]
    return Read(root, extras)


def _tree(saved: SavedModel) -> dict[str, StoredModule]:
    """The modules by path, the very same one under several where it was; `KeyError` where one has no parent."""
    parts: dict[str, StoredModule] = {}
    for module in saved.modules:
        part = parts[module.path] = StoredModule() if module.same_as is None else parts[module.same_as]
        part.training = module.training
        if module.path:
            around, _, name = module.path.rpartition(".")
            parts[around]._modules[name] = part  # not add_module, which refuses names that a class of its own may have
    return parts


def _optimizer(saved: SavedOptimizer, tensors: Sequence[Tensor]) -> torch.optim.Optimizer:
    groups = [{"params": [tensors[place] for place in group.parameters]} for group in saved.groups]
    made: torch.optim.Optimizer = getattr(torch.optim, saved.class_name)(groups, lr=1e-3)
    for group, kept in zip(made.param_groups, saved.groups, strict=True):
        group.update({key: value for key, value in kept.options.items() if key in made.defaults and key != "fused"})
    for state in saved.state:
        own: dict[str, Any] = dict(state.numbers)
        for key, place in state.tensors.items():
            own[key] = tensors[place]
        made.state[tensors[state.parameter]] = own
    return made
