"""What a move will touch: the parts, their bytes, and what stays behind. Built before anything changes. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.workspace.casts import cast_of, loses
from devexplorer.core.workspace.holders import Holders, Key
from devexplorer.core.workspace.parts import BufferPart, LazyPart, NamePart, ParameterPart, Part, PlaceLazy, Wanted
from devexplorer.core.workspace.unmovable import refuse_dispatched, refuse_special
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


Rule = Callable[[Key, Tensor], Wanted | None]
"""Where a tensor shall be; None: leave it alone."""


class Was(NamedTuple):
    """Where a tensor was before a move, so that the move can be undone without holding on to the tensor."""

    keys: tuple[Key, ...]
    """Every name of the tensor; the first is the one by which it was moved."""
    device: torch.device
    dtype: torch.dtype
    kept: Tensor | None = None
    """The original itself, where moving back would not restore it."""
    kept_gradient: Tensor | None = None

    def without(self, name: str) -> Was | None:
        """The same, when that object is gone; None when no other holds the tensor."""
        keys = tuple(key for key in self.keys if key[0] != name)
        return self._replace(keys=keys) if keys else None

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
    known = {key: was for was in entries for key in was.keys}

    def rule(key: Key, tensor: Tensor) -> Wanted | None:
        was = known.get(key)
        if was is None:
            return None
        return Wanted(was.device, was.dtype, was.kept, was.kept_gradient)

    return rule


class Plan:
    """The parts of one move and the sums over them. A tensor that several aims reach is moved once.

    `around` are the whole objects that hold the aims, and others that share tensors with them: a tie to a tensor there stays a tie.
    """

    def __init__(
        self,
        rule: Rule,
        place_lazy: PlaceLazy,
        aims: Sequence[Aim],
        *,
        around: Sequence[Aim] = (),
        bind: Callable[[str, Tensor], None] = lambda name, tensor: None,
        second: bool = False,
    ) -> None:
        self._rule, self._bind, self._place_lazy = rule, bind, place_lazy
        self._holders = Holders(around or aims)
        self.second = second
        """True: second objects are made, of everything, also of what is on the device already; gradients are left out."""
        self.parts: list[Part] = []
        self.keys: list[tuple[Key, ...]] = []
        """The names of each part's tensor."""
        self.parameters = self.buffers = self.gradients = self.tensors = self.uninitialised = 0
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
        for aim in aims:
            self._add(aim)

    def _add(self, aim: Aim) -> None:
        if isinstance(aim.thing, Tensor):
            self._tensor(aim.name, aim.thing)
        else:
            self._module(aim, aim.thing)

    def _tensor(self, name: str, tensor: Tensor) -> None:
        key = (name, "")
        wanted = self._wanted(key, tensor)
        if wanted is not None:
            self.tensors += 1
            self.keys.append((key,))
            self.parts.append(NamePart(name, tensor, wanted, self._bind))

    def _module(self, aim: Aim, root: nn.Module) -> None:
        refuse_dispatched(aim.title, root)
        known = registered_ids(root)
        for path, module in root.named_modules(prefix=aim.path):
            prefix = f"{path}." if path else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self._parameter((aim.name, prefix + name), parameter)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._buffer((aim.name, prefix + name), buffer)
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

    def _buffer(self, key: Key, buffer: Tensor) -> None:
        wanted = self._wanted(key, buffer)
        if wanted is None:
            return
        if is_uninitialised(buffer):
            self.uninitialised += 1
            self._append(key, LazyPart(key[1], buffer, wanted, self._place_lazy))
            return
        self.buffers += 1
        self._append(key, BufferPart(key[1], buffer, self._holders.slots(buffer), wanted))

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
        size = sum(map(_size, old))
        _count(self.before, device, size)
        there = wanted is None or (tensor.device == wanted.device and tensor.dtype == wanted.dtype)
        if wanted is None or (there and not self.second):
            _count(self.after, device, size)
            return None
        if not lazy:
            refuse_special(key[1] or key[0], tensor, gradient, wanted.device, wanted.dtype)
        destination = device_id(wanted.device)
        self.sources.add(device)
        new = [t.numel() * wanted.dtype.itemsize for t in old]
        _count(self.after, destination, sum(new))
        if self.second:
            _count(self.after, device, size)
        originals = (wanted.kept, wanted.kept_gradient)
        self.sizes.setdefault(destination, []).extend(size for size, kept in zip(new, originals, strict=False) if kept is None)
        self.lossy = self.lossy or (wanted.kept is None and not lazy and loses(tensor.dtype, wanted.dtype))
        return wanted

    def _append(self, key: Key, part: Part) -> None:
        self.parts.append(part)
        self.keys.append(tuple(dict.fromkeys((key, *self._holders.keys(part.tensor)))))

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

    def was(self) -> list[Was]:
        """Where everything was; call it after the parts are committed."""
        return [_was(keys, part) for keys, part in zip(self.keys, self.parts, strict=True)]


def _was(keys: tuple[Key, ...], part: Part) -> Was:
    """Originals are kept where moving back would not restore them: after a cast that loses, or when autograd holds them anyway."""
    wanted = part.wanted
    if isinstance(part, LazyPart):
        return Was(keys, *part.origin)
    original, gradient = (part.old, part.old_gradient) if isinstance(part, ParameterPart) else (part.tensor, None)
    needed = isinstance(part, NamePart) and part.new is not None and part.new.requires_grad
    if needed or loses(original.dtype, wanted.dtype):
        return Was(keys, original.device, original.dtype, original, gradient)
    return Was(keys, original.device, original.dtype)


def _size(tensor: Tensor) -> int:
    """Bytes as a dense tensor; sparse ones have no `nbytes`."""
    return tensor.numel() * tensor.element_size()


def _count(totals: dict[str, int], device: str, size: int) -> None:
    totals[device] = totals.get(device, 0) + size
