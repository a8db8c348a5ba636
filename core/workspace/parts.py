"""One tensor of a move to another device or dtype: `copy`, then `commit`; `rollback` at any point. Runs on the jobs
thread.

Every part keeps its originals until it is dropped, so rolling back restores the very same tensors: identity, bits,
device, gradient, ties. `Holders` knows the names under which tensors are held, so that ties survive. Nothing here
decides what to move; `core.workspace.moves` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devexplorer.core.base import MoveFailed
from devexplorer.core.models import ORDINARY, named_modules
from devexplorer.core.virtual.operators.tensor import VirtualTensor
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace.placement import Target

HOST_PIECE_BYTES = 2 << 20
"""On the CPU: about what the second-level caches of two cores hold."""
DEVICE_PIECE_BYTES = 16 << 20
"""On accelerators: their caches hold tens of MiB, and each operation costs a launch."""


def piece_elements(tensor: Tensor) -> int:
    """Elements of a piece of this tensor, counted in the four bytes of float32 in which small dtypes are computed."""
    limit = HOST_PIECE_BYTES if tensor.device.type == "cpu" else DEVICE_PIECE_BYTES
    return limit // max(tensor.element_size(), 4)


def pieces(tensor: Tensor, limit: int) -> Iterator[Tensor]:
    """Every element once, in one-dimensional pieces of at most `limit` elements; views, except for tensors with
    gaps.

    The order of the elements is that of the memory where this is possible, else that of the dimensions.
    """
    for (piece,) in pieces_together((tensor,), limit):
        yield piece


def pieces_together(tensors: Sequence[Tensor], limit: int) -> Iterator[tuple[Tensor, ...]]:
    """The same of several tensors of one shape, on whatever devices: the same elements of each, in the order of the
    first one's memory."""
    first = tensors[0]
    strides = first.stride()
    order = sorted(
        range(first.dim()), key=lambda axis: (-strides[axis], axis)
    )  # a transposed tensor is contiguous again
    yield from _cut([tensor.permute(order) for tensor in tensors], limit)


def _cut(tensors: list[Tensor], limit: int) -> Iterator[tuple[Tensor, ...]]:
    first = tensors[0]
    if first.numel() == 0:
        return
    if all(tensor.is_contiguous() for tensor in tensors):
        yield from zip(*(tensor.view(-1).split(limit) for tensor in tensors), strict=True)
    elif first.numel() <= limit:
        yield tuple(tensor.reshape(-1) for tensor in tensors)
    else:
        axis = max(range(first.dim()), key=lambda item: first.shape[item])
        rows = max(1, limit // (first.numel() // first.shape[axis]))
        for parts in zip(*(tensor.split(rows, axis) for tensor in tensors), strict=True):
            yield from _cut(list(parts), limit)


Key = tuple[str, str]
"""Name of the object and path of the tensor in it ("" for a tensor of the workspace)."""
Slot = tuple[nn.Module, str]
"""A module and the name under which it holds a buffer."""
_Modules = Sequence[tuple[str, nn.Module]]
"""Every module of an object with its path."""


class Holders:
    """Every location of registered tensors in some targets; tensors of the workspace are left out.

    `asked` are the ids to find. None: all tensors with more than one location. Most models have none, so
    this is quick.
    """

    def __init__(self, targets: Iterable[Target], asked: Collection[int] | None = None) -> None:
        self._keys: dict[int, tuple[Key, ...]] = {}
        self._slots: dict[int, tuple[Slot, ...]] = {}
        walked = [
            (target.name, named_modules(target.thing, target.path))
            for target in targets
            if isinstance(target.thing, nn.Module)
        ]
        if asked is None:
            asked = _held_twice(modules for _, modules in walked)
        if asked:
            for name, modules in walked:
                self._add(name, modules, asked)

    def _add(self, name: str, modules: _Modules, asked: Collection[int]) -> None:
        keys, slots = self._keys, self._slots
        for place, module in modules:
            prefix = f"{place}." if place else ""
            for register in (module._parameters, module._buffers):
                for key, tensor in register.items():
                    identity = id(tensor)
                    if tensor is None or identity not in asked:
                        continue
                    keys[identity] = (*keys.get(identity, ()), (name, prefix + key))
                    if register is module._buffers:
                        slots[identity] = (*slots.get(identity, ()), (module, key))

    def keys(self, tensor: Tensor, key: Key) -> tuple[Key, ...]:
        """Every name of the tensor that is held under this one, which comes first."""
        keys = self._keys.get(id(tensor))
        return (key,) if keys is None else tuple(dict.fromkeys((key, *keys)))

    def slots(self, buffer: Tensor, slot: Slot) -> tuple[Slot, ...]:
        """Every module that holds this buffer."""
        return self._slots.get(id(buffer)) or (slot,)


def _held_twice(objects: Iterable[_Modules]) -> set[int]:
    """`id()` of every tensor with more than one place."""
    places = Counter(
        id(tensor)
        for modules in objects
        for _, module in modules
        for register in (module._parameters, module._buffers)
        for tensor in register.values()
        if tensor is not None
    )
    return {identity for identity, count in places.items() if count > 1}


OWN = ("_inner", "_gpu")
"""What a tensor on a virtual GPU has in `vars()`."""
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Where torch keeps what `register_hook` and `register_post_accumulate_grad_hook` were given; outside `vars()`."""
Copy = Callable[[Tensor, torch.device, torch.dtype], Tensor]
"""How one tensor is copied; tests replace it with one that fails."""
Bind = Callable[[str, Tensor], None]
"""Binds a name of the workspace to a tensor."""


def plain_copy(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """What `tensor.to(device, dtype)` does; the same tensor when it is there already."""
    return tensor.to(device=device, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The device and dtype that a tensor should have."""

    device: torch.device
    dtype: torch.dtype
    kept: Tensor | None = None
    """The original, where one was kept for undo; it has this dtype, and this device unless its object was removed
    meanwhile."""
    kept_gradient: Tensor | None = None

    def contents(self, tensor: Tensor, copy: Copy) -> Tensor:
        """The tensor as it should be."""
        return copy(tensor, self.device, self.dtype) if self.kept is None else self._back(self.kept, tensor, copy)

    def gradient_contents(self, gradient: Tensor, copy: Copy) -> Tensor:
        """Its gradient as it should be."""
        if self.kept_gradient is None:
            return copy(gradient, self.device, self.dtype)
        return self._back(self.kept_gradient, gradient, copy)

    def copied_bytes(self, new: Tensor | None, new_gradient: Tensor | None = None) -> int:
        """Bytes of what was made, kept originals left out."""
        made = 0 if new is None or new is self.kept else new.nbytes
        return made if new_gradient is None or new_gradient is self.kept_gradient else made + new_gradient.nbytes

    def _back(self, kept: Tensor, now: Tensor, copy: Copy) -> Tensor:
        original = restored(kept, now, copy)
        return original if original.device == self.device else copy(original, self.device, self.dtype)


def restored(kept: Tensor, now: Tensor, copy: Copy) -> Tensor:
    """The original from before a cast; elements that have changed since are taken from `now`, the present tensor.

    Changed is what the same cast of the original would not give. Counting changes instead (`_version`) does not work:
    batch norm updates its statistics uncounted, and the count restarts with every swap and every new buffer.
    """
    if kept.shape != now.shape:
        return copy(now, kept.device, kept.dtype)
    here = copy(now, kept.device, now.dtype)
    unchanged = _same_bits(kept.detach().to(now.dtype), here.detach())
    return kept if bool(unchanged.all()) else torch.where(unchanged, kept, here.to(kept.dtype))


_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Element by element; NaN is the same as NaN. complex128 is too wide for a whole number and is compared by
    value."""
    whole = _WHOLE.get(a.element_size())
    return a == b if whole is None else a.resolve_conj().view(whole) == b.resolve_conj().view(whole)


class Part:
    """One step of a move: a tensor that is replaced by a new one. `copy` allocates, `commit` only rebinds; `rollback`
    may be called at any time, also twice."""

    __slots__ = ("new", "path", "tensor", "wanted")

    def __init__(self, path: str, tensor: Tensor, wanted: Wanted) -> None:
        self.path, self.tensor, self.wanted = path, tensor, wanted
        self.new: Tensor | None = None

    def copy(self, copy: Copy) -> None:
        """Make the new contents; nothing changes yet."""
        self.new = self.wanted.contents(self.tensor.detach(), copy)

    @property
    def copied_bytes(self) -> int:
        """Bytes that `copy` made."""
        return self.wanted.copied_bytes(self.new)

    def commit(self) -> None:
        """Replace the old contents with the new ones."""
        assert self.new is not None
        self._put(self.new)

    def rollback(self) -> None:
        """Restore the original state, at whatever stage."""
        self._put(self.tensor)

    def _put(self, tensor: Tensor) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Release the new contents."""
        self.new = None


class BufferPart(Part):
    """A buffer, under each name that it has: replaced by a new tensor, as `Module.to` does."""

    __slots__ = ("slots",)

    def __init__(self, path: str, buffer: Tensor, wanted: Wanted, slots: Sequence[Slot]) -> None:
        super().__init__(path, buffer, wanted)
        self.slots = slots

    def _put(self, tensor: Tensor) -> None:
        for module, key in self.slots:
            module._buffers[key] = tensor


class NamePart(Part):
    """A tensor of the workspace: its name is bound to the result, as `x = x.to(device)` does."""

    __slots__ = ("_bind",)

    def __init__(self, path: str, tensor: Tensor, wanted: Wanted, bind: Bind) -> None:
        super().__init__(path, tensor, wanted)
        self._bind = bind

    def copy(self, copy: Copy) -> None:
        """Make the result; it stays connected to a tensor that requires grad."""
        with torch.enable_grad():
            self.new = self.wanted.contents(self.tensor, copy)

    def _put(self, tensor: Tensor) -> None:
        self._bind(self.path, tensor)


class LazyPart(Part):
    """A parameter or buffer without a shape yet: nothing to copy; it will be created on the new device at the first
    forward."""

    __slots__ = ("origin",)

    def __init__(self, path: str, tensor: Tensor, wanted: Wanted) -> None:
        super().__init__(path, tensor, wanted)
        self.origin = (tensor.device, tensor.dtype)

    def copy(self, copy: Copy) -> None:
        """Nothing to copy."""

    def commit(self) -> None:
        """Note the new device."""
        move_uninitialised(self.tensor, self.wanted.device, self.wanted.dtype)

    def rollback(self) -> None:
        """Note the old one again."""
        if (self.tensor.device, self.tensor.dtype) != self.origin:
            move_uninitialised(self.tensor, *self.origin)


class ParameterPart(Part):
    """A parameter and its gradient. The Parameter object stays the same one, with new contents.

    `parameter.data = new` does that, as in `Module.to`. To a virtual GPU and back the Python class changes too: there
    the two objects swap contents (`torch.utils.swap_tensors`), as PyTorch itself does for such classes.
    """

    __slots__ = ("_partner", "gradient", "new_gradient", "old", "old_gradient", "origin")

    def __init__(
        self,
        path: str,
        parameter: Tensor,
        wanted: Wanted,
        gradient: Tensor | None,
        origin: tuple[torch.device, torch.dtype],
    ) -> None:
        """`gradient`: None also where it is not to be touched; `origin`: device and dtype of the parameter."""
        super().__init__(path, parameter, wanted)
        self.gradient, self.origin = gradient, origin
        self.old: Tensor | None = None
        """The contents as they were; since the commit."""
        self.old_gradient: Tensor | None = None
        self.new_gradient: Tensor | None = None
        self._partner: Tensor | None = None
        """What holds the original contents while the two are swapped."""

    def copy(self, copy: Copy) -> None:
        """Make the new contents, and the new gradient."""
        tensor, wanted = self.tensor, self.wanted
        if wanted.kept is None and type(tensor) in ORDINARY:
            self.new = copy(tensor, wanted.device, wanted.dtype)
        else:
            super().copy(copy)
        if self.gradient is not None:
            self.new_gradient = self.wanted.gradient_contents(self.gradient.detach(), copy)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the new contents and the new gradient."""
        return self.wanted.copied_bytes(self.new, self.new_gradient)

    def commit(self) -> None:
        """Put the new contents into the Parameter object."""
        new = self.new
        assert new is not None
        if is_swapped(self.tensor, new):
            self._swap(new)
            return
        self.old = self.tensor.data
        self.tensor.data = new
        if self.gradient is not None and self.new_gradient is not None:
            self.old_gradient = self.gradient.data
            self.gradient.data = self.new_gradient

    def _swap(self, new: Tensor) -> None:
        if self.tensor._use_count() > 1:  # type: ignore[attr-defined]  # a swap must be the only user of the tensor
            raise MoveFailed(
                f"'{self.path}' is still part of a result that awaits its backward; remove that result first"
            )
        partner = self._as_parameter(new)
        if self.new_gradient is not None:
            partner.grad = self.new_gradient
        if self.tensor.__dict__:
            belongs_to_class = OWN if type(self.tensor) in (nn.Parameter, VirtualTensor) else vars(self.tensor.detach())
            for key, value in self.tensor.__dict__.items():  # attributes that the user added go along
                if key not in belongs_to_class and key != "_is_param":
                    setattr(partner, key, value)
        for key in HOOKS:
            hooks = getattr(self.tensor, key)
            if hooks is not None:
                setattr(partner, key, hooks)
        torch.utils.swap_tensors(self.tensor, partner)
        self.old = self._partner = partner
        self.old_gradient = partner.grad

    def _as_parameter(self, new: Tensor) -> Tensor:
        if type(new) is VirtualTensor and new is not self.wanted.kept:
            # What nn.Parameter(new) does, without the second tensor object: there is no other reference to this one.
            partner = new.requires_grad_(self.tensor.requires_grad)
            partner._is_param = True
            return partner
        return nn.Parameter(new, requires_grad=self.tensor.requires_grad)

    def rollback(self) -> None:
        """Put the originals back and let go of the new ones."""
        if self._partner is not None:
            torch.utils.swap_tensors(self.tensor, self._partner)
            self._partner = None
        elif self.old is not None:
            self.tensor.data = self.old
            if self.gradient is not None and self.old_gradient is not None:
                self.gradient.data = self.old_gradient
        self.old = self.old_gradient = None

    def forget(self) -> None:
        """Release the new contents."""
        self.new = self.new_gradient = None


def is_swapped(old: Tensor, new: Tensor) -> bool:
    """Whether a parameter has to swap contents, because `parameter.data = new` cannot change its Python class."""
    kind, wanted = type(old), type(new)
    if wanted is Tensor and kind in (nn.Parameter, Tensor):
        return not torch._has_compatible_shallow_copy_type(old, new)
    if isinstance(old, VirtualTensor) and isinstance(new, VirtualTensor):
        return False
    if isinstance(old, VirtualTensor) or isinstance(new, VirtualTensor):
        return True
    wrapped = any(is_traceable_wrapper_subclass(tensor) for tensor in (old, new))
    return wrapped or not torch._has_compatible_shallow_copy_type(old, new)


def renew_flat_weights(modules: Iterable[nn.Module]) -> None:
    """Let every recurrent layer look its parameters up again: LSTM, GRU and the like keep a second list of them."""
    for module in set(modules):
        if isinstance(module, nn.RNNBase):
            module._init_flat_weights()
