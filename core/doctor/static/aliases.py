"""Rules `stale-alias` and `tie-lost`: memory that two names share before a move and not after it; and what is
registered at one moment, with the memory that it reaches. The main thread.

A `Registry` is made once for all rules of a step: a model can have ten thousand modules, each with something to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import count_text
from devexplorer.core.doctor.static.model_context import (
    AttributeRef,
    Hidden,
    ModelContext,
    bytes_of,
    holds,
    joined,
    listed,
    tensors_of,
)
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import is_uninitialised, named_modules, storage_address


class Registered(NamedTuple):
    """A parameter or buffer under one of its names."""

    path: str
    tensor: Tensor
    is_buffer: bool


class ReachedMemory(NamedTuple):
    """The bytes of one storage that a tensor reaches."""

    device: str
    storage: int
    first: int
    last: int

    def shares(self, other: ReachedMemory) -> bool:
        """Whether both reach a byte together, as far as first and last say."""
        return self[:2] == other[:2] and self.first <= other.last and other.first <= self.last


def memory_of(tensor: Tensor) -> ReachedMemory | None:
    """Which bytes a tensor reaches; None where it has none, or none of its own."""
    if is_uninitialised(tensor) or tensor.layout is not torch.strided or tensor.is_nested or tensor.numel() == 0:
        return None
    address = storage_address(tensor)
    if not address:
        return None
    first = int(tensor.storage_offset()) * tensor.element_size()
    reach = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return ReachedMemory(str(tensor.device), address, first, first + (int(reach) + 1) * tensor.element_size() - 1)


class Registry:
    """Holds the modules and tensors for as long as it lives, which is one step of the checks."""

    def __init__(self, model: nn.Module) -> None:
        modules = named_modules(model)
        self.tensors = [
            Registered(joined(path, name), tensor, register is module._buffers)
            for path, module in modules
            for register in (module._parameters, module._buffers)
            for name, tensor in register.items()
            if tensor is not None
        ]
        """Every parameter and buffer under each of its names."""
        self.by_path = {item.path: item for item in self.tensors}
        self.module_ids = {id(module) for _, module in modules}
        self.tensor_ids = {id(item.tensor) for item in self.tensors}
        self.memory = {item.path: memory_of(item.tensor) for item in self.tensors}
        """Path -> what it reaches; None: nothing."""
        self._by_storage: dict[tuple[str, int], list[tuple[ReachedMemory, Registered]]] = {}
        for item in self.tensors:
            memory = self.memory[item.path]
            if memory is not None:
                self._by_storage.setdefault(memory[:2], []).append((memory, item))

    def sharing(self, tensor: Tensor) -> list[Registered]:
        """Registered tensors that share bytes with this one."""
        memory = memory_of(tensor)
        if memory is None:
            return []
        return [item for other, item in self._by_storage.get(memory[:2], ()) if memory.shares(other)]

    def groups(self) -> Iterator[list[Registered]]:
        """Registered tensors that share memory under several names, one Parameter under several names left out."""
        for entries in self._by_storage.values():
            group: list[Registered] = []
            end = -1
            for memory, item in sorted(entries, key=lambda entry: entry[0].first):
                if memory.first > end:
                    if len(group) > 1:
                        yield self._in_order(group)
                    group = []
                end = max(end, memory.last)
                if item.is_buffer or all(item.tensor is not other.tensor for other in group):
                    group.append(item)
            if len(group) > 1:
                yield self._in_order(group)

    def _in_order(self, group: list[Registered]) -> list[Registered]:
        """As they were registered."""
        paths = {item.path for item in group}
        return [item for item in self.tensors if item.path in paths]


class TiedTensors(NamedTuple):
    """Registered tensors over one memory, by path: nothing here keeps a tensor alive."""

    paths: tuple[str, ...]
    buffers: bool
    """Whether all are buffers."""
    mixed: bool
    """Whether some are buffers and others parameters, or parts of each other."""
    place: SourceLocation | None
    bytes: int


def ties(context: ModelContext, registry: Registry) -> list[TiedTensors]:
    """What is tied by memory alone, before the move."""
    found = []
    for group in registry.groups():
        kinds = {item.is_buffer for item in group}
        parts = kinds == {True} and len({(item.tensor.shape, item.tensor.storage_offset()) for item in group}) > 1
        found.append(
            TiedTensors(
                paths=tuple(item.path for item in group),
                buffers=kinds == {True},
                mixed=len(kinds) > 1 or parts,
                place=_made_at(context, group),
                bytes=bytes_of([item.tensor for item in group[1:]]),
            )
        )
    return found


def _made_at(context: ModelContext, group: list[Registered]) -> SourceLocation | None:
    """The line that made the second name: where a tensor was given the memory of another, or else the later one of
    those that set them."""
    for item in reversed(group):
        place = context.origins.data_set(item.tensor)
        if place is not None:
            return place
    latest: SourceLocation | None = None
    for item in reversed(group):
        place = context.place(item.path)
        if latest is None or (place is not None and place.file == latest.file and place.line > latest.line):
            latest = place
    return latest


def still_tied(registry: Registry, tie: TiedTensors) -> bool:
    """Whether the names share memory after the move as they did before it."""
    first = registry.by_path.get(tie.paths[0])
    return first is not None and {item.path for item in registry.sharing(first.tensor)}.issuperset(tie.paths)


def report_tie(context: ModelContext, tie: TiedTensors, *, constant: bool = False) -> None:
    """A finding about registered tensors that a move takes apart; `constant`: buffers that forward leaves as they
    are."""
    names = listed(tie.paths)
    first, second = tie.paths[0], tie.paths[-1]
    rule, severity = "tie-lost", None
    if tie.mixed:
        rule = "stale-alias"
        message = (
            f"{second} shares its memory with {first}; a move gives each its own copy, and writes to one no longer"
            " reach the other."
        )
        fix = f"Compute it in forward from {first} instead of registering a second view of the same memory."
    elif tie.buffers:
        message = f"{names} are buffers that share memory; a move gives each its own memory"
        if constant:
            severity, message = "note", f"{message}, which costs their bytes again: forward writes to none of them."
        else:
            message += ", and from there on they differ."
        fix = f"Register one buffer in a module that holds it for all of them, and read {first} from there."
    else:
        message = f"{names} are Parameters over one memory: a move copies each, and they are no longer tied."
        fix = f"Give both names the very same Parameter: {_python(second)} = {_python(first)}."
    context.collector.add(rule, message, fix, path=second, place=tie.place, severity=severity, bytes=tie.bytes)


def _python(path: str) -> str:
    """`self.blocks[0].weight` of `blocks.0.weight`."""
    return "self" + "".join(f"[{name}]" if name.isdigit() else f".{name}" for name in path.split("."))


def report_alias(ref: AttributeRef, things: list[Hidden], owners: list[str]) -> None:
    """A finding about tensors outside the registers that share memory with registered ones."""
    holder, tensors, owner = things[0].holder, tensors_of(things), listed(owners)
    what = f"{holds(holder)} {count_text(len(tensors), 'tensor')} over"
    if holder == "attribute":
        what = "shares"
    message = f"{ref.label} {what} the memory of {owner}: a move leaves the old memory there, on the old device."
    fix = f"Take it from {owner} whenever it is needed: a property, or a line in forward."
    ref.report("stale-alias", message, fix, bytes=bytes_of(tensors))
