"""The plan of a move: its parts, their bytes, and what stays behind; whether new tensors fit on a device. Made and
asked before anything changes. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import DoesNotFit, bytes_text
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import (
    ORDINARY,
    QUANTISED,
    RegisteredIds,
    cast_of,
    device_id,
    gradient_of,
    is_uninitialised,
    loses,
    named_modules,
    parameters_and_buffers,
    refuse_dispatched,
    refuse_special,
    unregistered,
)
from devexplorer.core.models.walk import computed_by_torch
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.virtual.device.memory import worst_case_bytes
from devexplorer.core.workspace.parts import (
    Bind,
    BufferPart,
    Holders,
    Key,
    LazyPart,
    NamePart,
    ParameterPart,
    Part,
    Slot,
    Wanted,
)
from devexplorer.core.workspace.placement import Target

Rule = Callable[[Key, Tensor], Wanted | None]
"""Where a tensor should be; None: do not move it."""


class TensorOrigin(NamedTuple):
    """Where a tensor was before a move, so that the move can be undone without keeping the tensor alive."""

    keys: tuple[Key, ...]
    """Every name of the tensor; the first is the one by which it was moved."""
    device: torch.device
    dtype: torch.dtype
    kept: Tensor | None = None
    """The original itself, where moving back would not restore it."""
    kept_gradient: Tensor | None = None

    def without(self, name: str) -> TensorOrigin | None:
        """The same, when that object is gone; None when no other holds the tensor."""
        keys = tuple(key for key in self.keys if key[0] != name)
        return self._replace(keys=keys) if keys else None

    def hosted(self) -> TensorOrigin:
        """The same, with the originals on the CPU; one that autograd holds stays where it is."""
        if self.kept is None or self.kept.requires_grad:
            return self
        return self._replace(
            kept=self.kept.to("cpu"), kept_gradient=None if self.kept_gradient is None else self.kept_gradient.to("cpu")
        )

    @property
    def kept_bytes(self) -> int:
        """What the kept originals occupy."""
        if self.kept is None:
            return 0
        return sum(t.nbytes for t in (self.kept, self.kept_gradient) if t is not None)


def uniform(device: torch.device | None, dtype: torch.dtype | None) -> Rule:
    """Everything to one device (None: where it is); models cast as `Module.to` does, tensors as `Tensor.to` does."""

    known: dict[tuple[torch.dtype, torch.device], Wanted] = {}
    """Dtype of a model's tensor and its goal -> where it should be: a large model has thousands of tensors and a
    handful of dtypes."""

    def rule(key: Key, tensor: Tensor) -> Wanted:
        goal = device or tensor.device
        if dtype is not None and not key[1]:
            return Wanted(goal, dtype)
        wanted = known.get((tensor.dtype, goal))
        if wanted is None:
            wanted = known[tensor.dtype, goal] = Wanted(goal, cast_of(tensor.dtype, dtype))
        return wanted

    return rule


def to_origins(origins: Iterable[TensorOrigin]) -> Rule:
    """Every tensor back to where it was."""
    known = {key: origin for origin in origins for key in origin.keys}

    def rule(key: Key, tensor: Tensor) -> Wanted | None:
        origin = known.get(key)
        if origin is None:
            return None
        return Wanted(origin.device, origin.dtype, origin.kept, origin.kept_gradient)

    return rule


Origin = tuple[torch.device, torch.dtype]
"""Where a tensor is, in which dtype."""


def bind_nothing(name: str, tensor: Tensor) -> None:
    """For models: they have no names to bind."""


@dataclass(slots=True, eq=False)
class _Flow:
    """What goes from one device and dtype to another, summed up: most models have a handful of these, and thousands of
    tensors."""

    origin: Origin
    new_dtype: torch.dtype
    source: str
    destination: str
    stays: bool
    sizes: list[int]
    """Bytes of each new tensor on the destination, together with those of other flows to it."""
    special: bool
    """Whether `refuse_special` has to look at each of its tensors."""
    wanted: Wanted | None = None
    """What the rule said last; the same object for all tensors of a uniform move."""
    before: int = 0
    after: int = 0
    moves: int = 0
    copies: int = 0


class Plan:
    """The parts of one move and the sums over them. A tensor that several targets reach is moved once.

    `around` are the whole objects that hold the targets, and others that share tensors with them: a tie to a tensor
    there stays a tie.
    """

    def __init__(
        self,
        rule: Rule,
        targets: Sequence[Target],
        *,
        around: Sequence[Target] = (),
        bind: Bind = bind_nothing,
        second: bool = False,
    ) -> None:
        self._rule, self._bind = rule, bind
        # A path into a model may be one of several to the same module, so the names of what is there have to be looked
        # up.
        self._holders = Holders(around or targets, _ids(targets) if any(target.path for target in targets) else None)
        self.second = second
        """True: second objects are made, of everything, also of what is on the device already; gradients are left
        out."""
        self.parts: list[Part] = []
        self.keys: list[tuple[Key, ...]] = []
        """The names of each part's tensor."""
        self.parameters = self.buffers = self.gradients = self.tensors = self.uninitialised = 0
        self.sizes: dict[str, list[int]] = {}
        """Bytes of each new tensor, per destination."""
        self.left_behind: list[str] = []
        self.recurrent: list[nn.RNNBase] = []
        """LSTM, GRU and the like keep a second list of their parameters, which has to be renewed."""
        self._seen: set[int] = set()
        self._flows: dict[tuple[Origin, Origin], _Flow] = {}
        """By origin and destination."""
        self._flow: _Flow | None = None
        """That of the latest tensor: the next one is usually of the same kind."""
        # Only attributes are read; without this each costs a virtual GPU's tensor 0.1 µs more.
        with torch._C.DisableTorchFunctionSubclass():
            for target in targets:
                if isinstance(target.thing, Tensor):
                    self._tensor(target.name, target.thing)
                else:
                    self._module(target, target.thing)

    def _tensor(self, name: str, tensor: Tensor) -> None:
        key = (name, "")
        found = self._wanted(key, tensor)
        if found is not None:
            self.tensors += 1
            self.keys.append((key,))
            self.parts.append(NamePart(name, tensor, found[0], self._bind))

    def _module(self, target: Target, root: nn.Module) -> None:
        modules = named_modules(root, target.path)
        refuse_dispatched(target.title, modules)
        known = RegisteredIds(modules)
        for path, module in modules:
            prefix = f"{path}." if path else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self._held((target.name, prefix + name), parameter, None)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._held((target.name, prefix + name), buffer, (module, name))
            if isinstance(module, nn.RNNBase):
                self.recurrent.append(module)
            computed = computed_by_torch(module)
            for name, thing in unregistered(module, known):
                if name not in computed:
                    self._left_behind((target.name, prefix + name), thing)

    def _held(self, key: Key, tensor: Tensor, slot: Slot | None) -> None:
        """A parameter, or the buffer in a slot."""
        found = self._wanted(key, tensor)
        if found is None:
            return
        wanted, gradient, origin = found
        part: Part
        if type(tensor) not in ORDINARY and is_uninitialised(tensor):
            self.uninitialised += 1
            part = LazyPart(key[1], tensor, wanted)
        elif slot is None:
            self.parameters += 1
            self.gradients += gradient is not None
            part = ParameterPart(key[1], tensor, wanted, gradient, origin)
        else:
            self.buffers += 1
            part = BufferPart(key[1], tensor, wanted, self._holders.slots(tensor, slot))
        self.parts.append(part)
        self.keys.append(self._holders.keys(tensor, key))

    def _wanted(self, key: Key, tensor: Tensor) -> tuple[Wanted, Tensor | None, Origin] | None:
        """Where the tensor should go, its gradient, and where both are; None when there is nothing to do. Adds to the
        sums."""
        identity = id(tensor)
        if identity in self._seen:
            return None
        self._seen.add(identity)
        wanted = self._rule(key, tensor)
        device, dtype = tensor.device, tensor.dtype
        flow = self._flow
        if flow is None or flow.wanted is not wanted or flow.origin[1] is not dtype or flow.origin[0] != device:
            flow = self._flow_of(device, dtype, wanted)
        plain = type(tensor) in ORDINARY
        lazy = not plain and is_uninitialised(tensor)
        gradient = None
        if not (lazy or self.second) and key[1]:
            gradient = tensor.grad if tensor.is_leaf else gradient_of(tensor)
        elements = 0 if lazy else tensor.numel()
        size = elements * dtype.itemsize
        if gradient is not None:
            size += gradient.numel() * gradient.element_size()  # sparse ones have no `nbytes`
        flow.before += size
        if wanted is None or (flow.stays and not self.second):
            flow.after += size
            return None
        if not lazy and (
            not plain or gradient is not None or flow.special or tensor.is_nested or tensor.layout is not torch.strided
        ):
            refuse_special(key[1] or key[0], tensor, gradient, wanted.device, wanted.dtype)
        flow.moves += 1
        new = elements * wanted.dtype.itemsize
        if wanted.kept is None and not lazy:
            flow.sizes.append(new)
            flow.copies += 1
        if gradient is not None:
            of_gradient = gradient.numel() * wanted.dtype.itemsize
            new += of_gradient
            if wanted.kept_gradient is None:
                flow.sizes.append(of_gradient)
        flow.after += new
        return wanted, gradient, flow.origin

    def _flow_of(self, device: torch.device, dtype: torch.dtype, wanted: Wanted | None) -> _Flow:
        origin = (device, dtype)
        goal = origin if wanted is None else (wanted.device, wanted.dtype)
        flow = self._flows.get((origin, goal))
        if flow is None:
            destination, stays = device_id(goal[0]), origin == goal
            sizes = [] if stays and not self.second else self.sizes.setdefault(destination, [])
            special = device.type == "meta" or dtype.is_complex or dtype in QUANTISED
            flow = _Flow(origin, goal[1], device_id(device), destination, stays, sizes, special)
            self._flows[origin, goal] = flow
        self._flow = flow
        flow.wanted = wanted
        return flow

    @property
    def sources(self) -> set[str]:
        """Devices from which something moves."""
        return {flow.source for flow in self._flows.values() if flow.moves}

    @property
    def lossy(self) -> bool:
        """Whether a cast can lose something."""
        return any(flow.copies and loses(flow.origin[1], flow.new_dtype) for flow in self._flows.values())

    @property
    def before(self) -> dict[str, int]:
        """Bytes per device as it is."""
        totals = Counter[str]()
        for flow in self._flows.values():
            totals[flow.source] += flow.before
        return totals

    @property
    def after(self) -> dict[str, int]:
        """Bytes per device as it will be."""
        totals = Counter[str]()
        for flow in self._flows.values():
            totals[flow.destination] += flow.after
            if self.second:
                totals[flow.source] += flow.before
        return totals

    def _left_behind(self, key: Key, thing: nn.Module | Tensor) -> None:
        name, path = key
        tensors = [("", thing)] if isinstance(thing, Tensor) else [(f".{p}", t) for p, t in thing.named_parameters()]
        for suffix, tensor in tensors:
            if id(tensor) in self._seen:
                continue
            self._seen.add(id(tensor))
            wanted = self._rule((name, path + suffix), tensor)
            if wanted is not None and tensor.device != wanted.device:
                self.left_behind.append(f"{name}:{path}{suffix}")

    @property
    def copied_bytes(self) -> int:
        """Bytes that were copied; call it after the parts were."""
        return sum(part.copied_bytes for part in self.parts)

    def origins(self) -> list[TensorOrigin]:
        """Where every tensor was; call it after the parts are committed."""
        return [_origin(keys, part) for keys, part in zip(self.keys, self.parts, strict=True)]


def _origin(keys: tuple[Key, ...], part: Part) -> TensorOrigin:
    """Originals are kept where moving back would not restore them: after a cast that loses, or when autograd holds them
    anyway."""
    if isinstance(part, LazyPart):
        return TensorOrigin(keys, *part.origin)
    if isinstance(part, ParameterPart):
        lost = loses(part.origin[1], part.wanted.dtype)
        kept = (_detached(part.old), _detached(part.old_gradient)) if lost else ()
        return TensorOrigin(keys, *part.origin, *kept)
    tensor, new = part.tensor, part.new
    held = isinstance(part, NamePart) and new is not None and new.requires_grad
    kept_too = held or loses(tensor.dtype, part.wanted.dtype)
    return TensorOrigin(keys, tensor.device, tensor.dtype, tensor if kept_too else None)


def _detached(tensor: Tensor | None) -> Tensor | None:
    """For what a part has kept: what it has from `parameter.data` is detached, what was swapped is a parameter
    still."""
    return tensor if tensor is None or type(tensor) is Tensor else tensor.detach()


def _ids(targets: Sequence[Target]) -> set[int]:
    """`id()` of every registered tensor in parts of models."""
    ids: set[int] = set()
    for target in targets:
        for _, module in named_modules(target.thing) if isinstance(target.thing, nn.Module) else ():
            ids.update(map(id, module._parameters.values()))
            ids.update(map(id, module._buffers.values()))
    return ids


def check_sizes(
    sizes: Sequence[int], device: str, registry: DeviceRegistry, what: str, *, freed_bytes: int = 0
) -> None:
    """Raise `DoesNotFit`, with the bytes, when new tensors of these sizes would not fit; `what` begins the message.
    `freed_bytes` will be free there before they are made.

    What a virtual GPU holds is in this machine's memory as well. Where that is what runs short, the error says so, and
    names `cpu`.
    """
    backend = registry.backend(device)
    free = backend.free_bytes(device)
    free = None if free is None else free + freed_bytes
    impossible = sum(sizes) >= 2**63  # PyTorch itself counts bytes in 64 bits
    if free is not None and worst_case_bytes(sizes) <= free:
        return
    needed = sum(sizes) if impossible else backend.footprint_bytes(device, sizes)
    if not impossible and (free is None or needed <= free):
        return
    room = "" if free is None else f"{bytes_text(free)} are free on {device}"
    short = device
    if isinstance(backend, VirtualMachine):
        room = backend.shortage(device, needed) or room
        short = "cpu" if needed <= backend.device_free_bytes(device) else device
    message = f"{what} needs {bytes_text(needed)}{'; ' if room else ''}{room}"
    raise DoesNotFit(message, device=short, needed_bytes=needed, free_bytes=free or 0)


Sizes = Sequence[tuple[torch.dtype, int]]
"""Dtype and number of elements of each tensor."""


def model_sizes(model: nn.Module) -> Sizes:
    """Those of a model's tensors."""
    tensors = [tensor for tensor in parameters_and_buffers(model) if not is_uninitialised(tensor)]
    return [(tensor.dtype, tensor.numel()) for tensor in tensors]


def check_new_model(sizes: Sizes, device: str, dtype: torch.dtype | None, registry: DeviceRegistry) -> None:
    """Raise `DoesNotFit` when a new model would not fit: on the CPU, where it is built, or on its device in `dtype`."""
    for where, cast in {("cpu", None), (device, dtype)}:
        check_sizes([count * cast_of(own, cast).itemsize for own, count in sizes], where, registry, "this model")
