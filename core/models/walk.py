"""What an object holds: registered tensors, gradients, what hooks of torch's compute, what PyTorch does not see; and
the memory below tensors: which storage, how many bytes, on which device, shared by whom. Reads only. Runs on the jobs
thread.

Models can have tens of thousands of modules and tensors: what runs for each of them asks for as little as it can, and
Python's cyclic garbage collector is kept out of it (`no_collections`). A snapshot or a move makes some objects per
tensor which all live on. Of their mere number the collector would conclude that there is something to find, and each of
its full passes looks at everything that torch has imported: 0.2 s.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import nlargest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.base import shape_text
from devexplorer.core.records import ObjectUse
from devexplorer.core.virtual.device.accounting import block_address
from devexplorer.core.virtual.operators.tensor import VirtualTensor

CONTAINER_DEPTH = 4
"""How deep plain lists, tuples and dicts are searched for tensors and modules."""
CONTAINER_ITEMS = 10_000
"""How many items of one plain container are looked at."""
ORDINARY = (nn.Parameter, Tensor, VirtualTensor)
"""Asked first: `isinstance` of a Parameter is slow."""


def named_modules(root: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """What `root.named_modules(prefix=prefix)` gives, in the same order, without a generator inside a generator per
    level."""
    found: list[tuple[str, nn.Module]] = []
    seen: set[int] = set()
    waiting = [(prefix, root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append((path, module))
        if module._modules:
            dotted = f"{path}." if path else ""
            waiting += [
                (dotted + name, child) for name, child in reversed(module._modules.items()) if child is not None
            ]
    return found


def endless(root: nn.Module) -> tuple[nn.Module, str] | None:
    """A module and the name of a child of it that is the module itself, or holds it: `.to()` of such modules never
    ends. None where there is none."""
    within: dict[int, bool] = {}
    waiting: list[tuple[nn.Module, Iterator[tuple[str, nn.Module | None]]]] = [(root, iter(root._modules.items()))]
    within[id(root)] = True
    while waiting:
        owner, children = waiting[-1]
        name, child = next(children, ("", None))
        if child is not None and within.get(id(child)):
            return owner, name
        if child is not None and id(child) not in within:
            within[id(child)] = True
            waiting.append((child, iter(child._modules.items())))
        elif child is None and not name:
            within[id(owner)] = False
            waiting.pop()
    return None


class RegisteredIds:
    """`id()` of every module, parameter and buffer that PyTorch knows below a module, itself included.

    They are collected at the first question: in most models nothing hides, so none comes. With `buffers` False, those
    are left out.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], *, buffers: bool = True) -> None:
        self._modules, self._buffers = modules, buffers
        self._ids: set[int] | None = None

    def __contains__(self, identity: object) -> bool:
        if self._ids is None:
            self._ids = set()
            for _, part in self._modules:
                self._ids.add(id(part))
                self._ids.update(map(id, part._parameters.values()))
                if self._buffers:
                    self._ids.update(map(id, part._buffers.values()))
        return identity in self._ids


def is_uninitialised(tensor: Tensor) -> bool:
    """Whether this is a lazy parameter or buffer before its first forward: it has a device and a dtype, but no
    shape."""
    return type(tensor) not in ORDINARY and isinstance(tensor, (UninitializedBuffer, UninitializedParameter))


def is_lazy(model: nn.Module) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return any(map(is_uninitialised, parameters_and_buffers(model)))


def is_irregular(tensor: Tensor) -> bool:
    """Whether this is a sparse or nested tensor, which no virtual GPU can hold."""
    return tensor.layout is not torch.strided or tensor.is_nested


def gradient_of(tensor: Tensor) -> Tensor | None:
    """The gradient, if there is one; asking a non-leaf that keeps none would make PyTorch warn."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def unregistered(module: nn.Module, known: RegisteredIds) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """Modules and tensors that this module holds in attributes, lists, tuples and dicts, but has not registered.

    Yields `(path, thing)` with paths as Python would write them after the module: `heads[0]`, `cache['key']`.
    """
    for key, value in module.__dict__.items():
        if key not in _OWN and type(value) not in _PLAIN and isinstance(value, _WORTH_A_LOOK):
            yield from _search(key, value, known, 0)


def _search(path: str, value: Any, known: RegisteredIds, depth: int) -> Iterator[tuple[str, nn.Module | Tensor]]:
    if isinstance(value, (Tensor, nn.Module)):
        if id(value) not in known:
            yield path, value
    elif depth < CONTAINER_DEPTH and isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:CONTAINER_ITEMS]):
            yield from _search(f"{path}[{index}]", item, known, depth + 1)
    elif depth < CONTAINER_DEPTH and isinstance(value, dict):
        for key, item in list(value.items())[:CONTAINER_ITEMS]:
            yield from _search(f"{path}[{key!r}]", item, known, depth + 1)


_OWN = frozenset(vars(nn.Module()))
"""The attributes that every module has: its registers, its hooks."""
_WORTH_A_LOOK = (Tensor, nn.Module, list, tuple, dict)
_PLAIN = frozenset({int, float, bool, str, type(None)})
"""Most attributes are settings."""


def parameters_and_buffers(model: nn.Module) -> tuple[Tensor, ...]:
    """The registered tensors, lazy ones included; a tied one once."""
    return *model.parameters(), *model.buffers()


def split_by_hand(model: nn.Module) -> bool:
    """Whether parts of it are on several accelerators: whoever made it wants them there."""
    return len({item.device for item in parameters_and_buffers(model) if item.device.type not in ("cpu", "meta")}) > 1


def every_tensor(thing: nn.Module | Tensor) -> Iterator[Tensor]:
    """Every tensor that the object keeps alive: parameters, buffers, gradients, unregistered ones. May repeat; lazy
    ones left out."""
    if isinstance(thing, Tensor):
        yield from _with_gradient(thing)
        return
    first = named_modules(thing)
    known = RegisteredIds(first)
    waiting = [first]
    seen: set[int] = set()
    while waiting:
        for _, module in waiting.pop():
            if id(module) in seen:
                continue
            seen.add(id(module))
            for register in (module._parameters, module._buffers):
                for tensor in register.values():
                    if tensor is not None:
                        if type(tensor) in ORDINARY and tensor.is_leaf and tensor.grad is None:
                            yield tensor
                        else:
                            yield from _with_gradient(tensor)
            for _, hidden in unregistered(module, known):
                if isinstance(hidden, nn.Module):
                    waiting.append(named_modules(hidden))
                else:
                    yield from _with_gradient(hidden)


def _with_gradient(tensor: Tensor) -> Iterator[Tensor]:
    if not is_uninitialised(tensor):
        yield tensor
        gradient = gradient_of(tensor)
        if gradient is not None:
            yield gradient


def local_part(tensor: Tensor) -> Tensor:
    """What this process has of a DTensor; another tensor itself."""
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def size_of(tensor: Tensor) -> int:
    """Bytes of the tensor's values, and of the indices of a sparse one (which has no `nbytes`); of a DTensor those of
    the part in this process."""
    tensor = local_part(tensor)
    if tensor.layout in (torch.strided, torch.jagged):
        return tensor.nbytes
    if tensor.layout is torch.sparse_coo:
        return tensor._indices().nbytes + tensor._values().nbytes
    by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    indices = (
        (tensor.crow_indices(), tensor.col_indices()) if by_rows else (tensor.ccol_indices(), tensor.row_indices())
    )
    return tensor.values().nbytes + sum(item.nbytes for item in indices)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the values of all of them; lazy ones have none yet."""
    return sum(size_of(tensor) for tensor in tensors if not is_uninitialised(tensor))


def type_name(thing: nn.Module | Tensor) -> str:
    """The class name; a virtual tensor is called what a real one on a GPU would be called."""
    kind = type(thing)
    if isinstance(thing, VirtualTensor):
        return "Parameter" if getattr(thing, "_is_param", False) else "Tensor"
    if kind in ORDINARY:
        return kind.__name__
    if isinstance(thing, Tensor) and is_uninitialised(thing):
        return "UninitializedParameter" if isinstance(thing, nn.Parameter) else "UninitializedBuffer"
    if isinstance(thing, Tensor):
        part = local_part(thing)
        if part is not thing:
            return f"{kind.__name__}, {shape_text(tuple(part.shape))} here"
    return kind.__name__


def device_id(device: torch.device) -> str:
    """The id as DevExplorer writes it: `cuda:0`, but `cpu` and `mps`, of which there is one."""
    return (
        device.type
        if device.type in ("cpu", "mps", "meta") or device.index is None
        else f"{device.type}:{device.index}"
    )


def leaves_below(tensor: Tensor) -> list[Tensor]:
    """Leaves, itself included, to which a backward of this tensor would bring gradients."""
    found: dict[int, Tensor] = {}
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions]
    if tensor.is_leaf and tensor.requires_grad:
        found[id(tensor)] = tensor
    return list(found.values())


@contextmanager
def no_collections() -> Iterator[None]:
    """Let the collector rest, for a block or (as a decorator) for a function; where it was stopped before, it
    stays stopped."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def computed_by_torch(module: nn.Module) -> set[str]:
    """Names of the attributes of a module that are such weights."""
    held = object.__getattribute__(module, "__dict__")
    names: set[str] = set()
    for hook in dict.values(held.get("_forward_pre_hooks") or {}):
        if type(hook).__module__.startswith("torch.nn.utils"):
            kept = vars(hook)
            names.update(name for name in (kept.get("name"), kept.get("_tensor_name")) if isinstance(name, str))
    return names


def computed(model: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """All of a model: the module, the attribute, and what the latest call computed."""
    held = [
        (module, name, vars(module).get(name))
        for _, module in named_modules(model)
        for name in computed_by_torch(module)
    ]
    return [(module, name, value) for module, name, value in held if isinstance(value, Tensor)]


def cut_computed(model: nn.Module) -> None:
    """Take their history: a Parameter in one cannot be swapped. The next call computes them again."""
    for module, name, value in computed(model):
        vars(module)[name] = value.detach()


Storage = tuple[str, int]
"""Device and address."""

MOST_OBJECTS = 30
"""Objects whose share is listed one by one."""


def storage_address(tensor: Tensor) -> int | None:
    """Where the tensor's storage begins; two tensors with the same address share memory. None when it has no memory."""
    if isinstance(tensor, VirtualTensor):
        return block_address(tensor._inner.untyped_storage())
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # tensors without memory of their own: fake, functional and sparse ones
        return None


def storages_of(thing: nn.Module | Tensor) -> dict[Storage, int]:
    """Bytes of every storage that the object keeps alive."""
    return _storages(every_tensor(thing))


def _storages(tensors: Iterable[Tensor]) -> dict[Storage, int]:
    found: dict[Storage, int] = {}
    ids: dict[torch.device, str] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            where = block_address(storage) if isinstance(tensor, VirtualTensor) else storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # without memory of its own
            continue
        if where:
            device = tensor.device
            name = ids.get(device)
            if name is None:
                name = ids[device] = device_id(device)
            found[name, where] = storage.nbytes()
    return found


class Holdings(NamedTuple):
    """What named objects hold, by device, at one moment; never changed after it was handed out."""

    totals: Mapping[str, int]
    """Bytes, a shared storage once."""
    objects: Mapping[str, tuple[ObjectUse, ...]]
    """The same by object, largest first, at most `MOST_OBJECTS`; a shared storage counts for the object that had it
    first."""


class Held:
    """Bytes that named objects hold on each device, a shared storage once. Only objects that are named are looked at
    again."""

    def __init__(self, beside: Callable[[str], Iterable[Tensor]] = lambda name: ()) -> None:
        """`beside`: tensors that belong to an object without being in it."""
        self.now = Holdings({}, {})
        self._beside = beside
        self._storages: dict[str, dict[Storage, int]] = {}
        self._names: dict[Storage, tuple[str, ...]] = {}
        """Storage -> who holds it, in the order in which they came."""
        self._shared: set[Storage] = set()
        """Those that several hold."""
        self._allocated: dict[Storage, int] = {}
        self._owned: dict[str, dict[str, int]] = {}
        """Object -> device -> bytes that count for it."""

    def sharing(self, names: Collection[str]) -> tuple[str, ...]:
        """Other objects that shared memory with these when they were last looked at."""
        known = set(names)
        holders = {self._names[storage] for storage in self._shared}
        return tuple(sorted({other for names in holders if not known.isdisjoint(names) for other in names} - known))

    @no_collections()
    def renew(self, names: Collection[str], objects: Mapping[str, nn.Module | Tensor]) -> None:
        """Look again at what was made, changed or removed, and at what shared memory with it.

        Only storages that came or went cost more than a look: after the move of one layer those are few.
        """
        totals = dict(self.now.totals)
        touched = {*names, *self.sharing(names)}
        there = [name for name in objects if name in touched]
        found = {name: storages_of(objects[name]) for name in there}
        for name in there:
            found[name].update(_storages(self._beside(name)))
        for name in touched:
            new: Mapping[Storage, int] = found.get(name, {})
            for storage, size in self._storages.pop(name, {}).items():
                if new.get(storage) != size:  # of another size: another storage at the same address
                    self._let_go(name, storage, totals)
        for name in there:
            self._storages[name] = found[name]
            for storage, size in found[name].items():
                holders = self._names.get(storage)
                if holders is None:
                    self._names[storage] = (name,)
                    self._allocated[storage] = size
                    totals[storage[0]] = totals.get(storage[0], 0) + size
                elif name not in holders:
                    self._names[storage] = (*holders, name)
                    self._shared.add(storage)
        for name in touched:
            self._owned.pop(name, None)
        for name in there:
            self._owned[name] = self._shares(name)
        self.now = Holdings({device: size for device, size in totals.items() if size}, self._by_object())

    def _let_go(self, name: str, storage: Storage, totals: dict[str, int]) -> None:
        left = tuple(other for other in self._names[storage] if other != name)
        if left:
            self._names[storage] = left
            if len(left) == 1:
                self._shared.discard(storage)
        else:
            del self._names[storage]
            totals[storage[0]] -= self._allocated.pop(storage)

    def _shares(self, name: str) -> dict[str, int]:
        shares: dict[str, int] = {}
        for storage in self._storages[name]:
            if self._names[storage][0] == name:
                shares[storage[0]] = shares.get(storage[0], 0) + self._allocated[storage]
        return shares

    def _by_object(self) -> dict[str, tuple[ObjectUse, ...]]:
        uses: dict[str, list[ObjectUse]] = {}
        for name, shares in self._owned.items():
            for device, size in shares.items():
                if size:
                    uses.setdefault(device, []).append(ObjectUse(name, size))
        return {
            device: tuple(nlargest(MOST_OBJECTS, found, key=lambda use: use.bytes)) for device, found in uses.items()
        }
