"""What a move will touch: the parts, their bytes, and what stays behind. Built before anything changes. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.errors import BadInput
from devexplorer.core.workspace.casts import cast_of, loses
from devexplorer.core.workspace.parts import BufferPart, LazyPart, NamePart, ParameterPart, Part, PlaceLazy, Wanted
from devexplorer.core.workspace.walk import device_id, gradient_of, is_uninitialised, registered_ids, unregistered


class Aim(NamedTuple):
    """What is to be moved: an object of the workspace, or the part of a model at `path`."""

    name: str
    path: str
    thing: nn.Module | Tensor

    @property
    def title(self) -> str:
        """`mlp`, or `mlp:0` for a part."""
        return f"{self.name}:{self.path}" if self.path else self.name


Key = tuple[str, str]
"""Name of the object and path of the tensor in it ("" for a tensor of the workspace)."""
Rule = Callable[[Key, Tensor], Wanted | None]
"""Where a tensor shall be; None: leave it alone."""


class Was(NamedTuple):
    """Where a tensor was before a move, so that the move can be undone without holding on to the tensor."""

    key: Key
    device: torch.device
    dtype: torch.dtype
    kept: Tensor | None = None
    """The original itself, where moving back would not restore it."""
    kept_gradient: Tensor | None = None
    version: int = 0
    """Version of the tensor after the move: when it has changed since, the kept original is out of date."""

    @property
    def kept_bytes(self) -> int:
        """What the kept originals occupy."""
        return sum(t.nbytes for t in (self.kept, self.kept_gradient) if t is not None)


def uniform(device: torch.device, dtype: torch.dtype | None) -> Rule:
    """Everything to one device; models cast as `Module.to` does, tensors as `Tensor.to` does."""

    def rule(key: Key, tensor: Tensor) -> Wanted:
        if dtype is not None and not key[1]:
            return Wanted(device, dtype)
        return Wanted(device, cast_of(tensor, dtype))

    return rule


def as_before(entries: Iterable[Was]) -> Rule:
    """Every tensor back to where it was."""
    known = {was.key: was for was in entries}

    def rule(key: Key, tensor: Tensor) -> Wanted | None:
        was = known.get(key)
        if was is None:
            return None
        if is_uninitialised(tensor) or version_of(tensor) != was.version:
            return Wanted(was.device, was.dtype)
        return Wanted(was.device, was.dtype, was.kept, was.kept_gradient)

    return rule


class Plan:
    """The parts of one move and the sums over them. A tensor that several aims reach is moved once."""

    def __init__(
        self,
        rule: Rule,
        place_lazy: PlaceLazy,
        *,
        bind: Callable[[str, Tensor], None] = lambda name, tensor: None,
        second: bool = False,
    ) -> None:
        self._rule, self._bind, self._place_lazy = rule, bind, place_lazy
        self.second = second
        """True: second objects are made, of everything, also of what is on the device already; gradients are left out."""
        self.parts: list[Part] = []
        self.keys: list[Key] = []
        """The key of each part."""
        self.parameters = self.buffers = self.gradients = self.tensors = self.uninitialised = 0
        self.bytes = 0
        self.sizes: dict[str, list[int]] = {}
        """Bytes of each new tensor, per destination."""
        self.sources: set[str] = set()
        self.lossy = False
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}
        self.left_behind: list[str] = []
        self.recurrent: list[nn.RNNBase] = []
        """LSTM, GRU and the like keep a second list of their parameters, which has to be renewed."""
        self._seen: set[int] = set()

    def add(self, aim: Aim) -> None:
        """Plan an object, or a part of one."""
        if isinstance(aim.thing, Tensor):
            self._tensor(aim.name, aim.thing)
        else:
            self._module(aim, aim.thing)

    def _tensor(self, name: str, tensor: Tensor) -> None:
        key = (name, "")
        wanted = self._wanted(key, tensor)
        if wanted is not None:
            self.tensors += 1
            self._append(key, NamePart(name, tensor, wanted, self._bind))

    def _module(self, aim: Aim, root: nn.Module) -> None:
        refuse_dispatched(aim.title, root)
        known = registered_ids(root)
        holders: dict[int, list[tuple[nn.Module, str]]] = {}
        for module in root.modules():
            for name, buffer in module._buffers.items():
                holders.setdefault(id(buffer), []).append((module, name))
        for path, module in root.named_modules(prefix=aim.path):
            prefix = f"{path}." if path else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self._parameter((aim.name, prefix + name), parameter)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._buffer((aim.name, prefix + name), buffer, holders[id(buffer)])
            if isinstance(module, nn.RNNBase):
                self.recurrent.append(module)
            for name, thing in unregistered(module, known):
                self._left_behind((aim.name, prefix + name), thing)

    def _parameter(self, key: Key, parameter: Tensor) -> None:
        wanted = self._wanted(key, parameter)
        if wanted is None:
            return
        if is_uninitialised(parameter):
            self.uninitialised += 1
            self._append(key, LazyPart(key[1], parameter, wanted, self._place_lazy))
            return
        self.parameters += 1
        self.gradients += parameter.grad is not None and not self.second
        self._append(key, ParameterPart(key[1], parameter, wanted, with_gradient=not self.second))

    def _buffer(self, key: Key, buffer: Tensor, holders: list[tuple[nn.Module, str]]) -> None:
        wanted = self._wanted(key, buffer)
        if wanted is None:
            return
        if is_uninitialised(buffer):
            self.uninitialised += 1
            self._append(key, LazyPart(key[1], buffer, wanted, self._place_lazy))
            return
        self.buffers += 1
        self._append(key, BufferPart(key[1], holders, wanted))

    def _wanted(self, key: Key, tensor: Tensor) -> Wanted | None:
        """Where the tensor shall go; None when there is nothing to do. Sums up on the way."""
        if id(tensor) in self._seen:
            return None
        self._seen.add(id(tensor))
        wanted = self._rule(key, tensor)
        lazy = is_uninitialised(tensor)
        device = device_id(tensor.device)
        gradient = None if lazy or not key[1] or self.second else gradient_of(tensor)
        old = [] if lazy else [t for t in (tensor, gradient) if t is not None]
        _count(self.before, device, sum(t.nbytes for t in old))
        there = wanted is None or (tensor.device == wanted.device and tensor.dtype == wanted.dtype)
        if wanted is None or (there and not self.second):
            _count(self.after, device, sum(t.nbytes for t in old))
            return None
        if tensor.is_complex() and not wanted.dtype.is_complex:
            raise BadInput(f"'{key[1] or key[0]}' is complex and cannot become real without losing its imaginary part")
        destination = device_id(wanted.device)
        self.sources.add(device)
        new = [t.numel() * wanted.dtype.itemsize for t in old]
        _count(self.after, destination, sum(new))
        if self.second:
            _count(self.after, device, sum(t.nbytes for t in old))
        ready = (wanted.ready, wanted.ready_gradient)
        copied = [size for size, kept in zip(new, ready, strict=False) if kept is None]
        self.sizes.setdefault(destination, []).extend(copied)
        self.bytes += sum(copied)
        self.lossy = self.lossy or (wanted.ready is None and not lazy and loses(tensor.dtype, wanted.dtype))
        return wanted

    def _append(self, key: Key, part: Part) -> None:
        self.parts.append(part)
        self.keys.append(key)

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

    def was(self) -> list[Was]:
        """Where everything was; call it after the parts are committed."""
        return [_was(key, part) for key, part in zip(self.keys, self.parts, strict=True)]


def _was(key: Key, part: Part) -> Was:
    """Originals are kept where moving back would not restore them: after a cast that loses, or when autograd holds them anyway."""
    wanted = part.wanted
    if isinstance(part, LazyPart):
        return Was(key, *part.origin)
    if isinstance(part, ParameterPart):
        version = version_of(part.tensor)
        if not loses(part.old.dtype, wanted.dtype):
            return Was(key, part.old.device, part.old.dtype, version=version)
        return Was(key, part.old.device, part.old.dtype, part.old, part.old_gradient, version)
    assert isinstance(part, (BufferPart, NamePart))
    original, new = part.tensor, part.new
    assert new is not None
    keep = loses(original.dtype, wanted.dtype) or new.requires_grad
    return Was(key, original.device, original.dtype, original if keep else None, None, version_of(new))


def version_of(tensor: Tensor) -> int:
    """How often the tensor was changed in place; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _count(totals: dict[str, int], device: str, size: int) -> None:
    totals[device] = totals.get(device, 0) + size


def refuse_dispatched(title: str, root: nn.Module) -> None:
    """A model that accelerate dispatched has hooks that move its inputs; moving its layers away from under them breaks it."""
    if hasattr(root, "hf_device_map"):
        why = "it has an hf_device_map"
    else:
        hooked = next((path or "the model itself" for path, m in root.named_modules() if hasattr(m, "_hf_hook")), None)
        if hooked is None:
            return
        why = f"{hooked} has a hook of accelerate"
    raise BadInput(
        f"'{title}' was dispatched by accelerate ({why}) and stays where its map says; "
        "remove the hooks first with accelerate.hooks.remove_hook_from_submodules(model)"
    )
