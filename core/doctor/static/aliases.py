"""Rules `stale-alias` and `tie-lost`: memory that two names share before a move and not after it. The main thread."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from devexplorer.core.doctor.static.attribute_refs import AttributeRef, holds
from devexplorer.core.doctor.static.hidden import Hidden
from devexplorer.core.doctor.static.model_context import ModelContext, bytes_of, listed
from devexplorer.core.doctor.static.registry import Registered, Registry
from devexplorer.core.isolation.source_location import SourceLocation


class Tie(NamedTuple):
    """Registered tensors over one memory, by path: nothing here keeps a tensor alive."""

    paths: tuple[str, ...]
    buffers: bool
    """Whether all are buffers."""
    mixed: bool
    """Whether some are buffers and others parameters, or parts of each other."""
    place: SourceLocation | None
    bytes: int


def ties(context: ModelContext, registry: Registry) -> list[Tie]:
    """What is tied by memory alone, before the move."""
    found = []
    for group in registry.groups():
        kinds = {item.is_buffer for item in group}
        parts = kinds == {True} and len({(item.tensor.shape, item.tensor.storage_offset()) for item in group}) > 1
        found.append(
            Tie(
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
    places = [place for item in group if (place := context.place(item.path)) is not None]
    if not places:
        return None
    same = [place for place in places if place.file == places[-1].file]
    return max(same, key=lambda place: place.line)


def still_tied(registry: Registry, tie: Tie) -> bool:
    """Whether the names share memory after the move as they did before it."""
    first = registry.by_path.get(tie.paths[0])
    return first is not None and {item.path for item in registry.sharing(first.tensor)}.issuperset(tie.paths)


def report_tie(context: ModelContext, tie: Tie, *, constant: bool = False) -> None:
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
        severity = "note" if constant else None
        message = f"{names} are buffers that share memory; a move gives each its own memory" + (
            ", which costs their bytes again: forward writes to none of them."
            if constant
            else ", and they are two from there on."
        )
        fix = f"Register one buffer in a module that holds it for all of them, and read {first} from there."
    else:
        count = "two" if len(tie.paths) == 2 else len(tie.paths)
        message = f"{names} are {count} Parameters over one memory: a move copies each, and they are no longer tied."
        fix = f"Give both names the very same Parameter: {_python(second)} = {_python(first)}."
    context.collector.add(rule, message, fix, path=second, place=tie.place, severity=severity, bytes=tie.bytes)


def _python(path: str) -> str:
    """`self.blocks[0].weight` of `blocks.0.weight`."""
    return "self" + "".join(f"[{name}]" if name.isdigit() else f".{name}" for name in path.split("."))


def report_alias(ref: AttributeRef, things: list[Hidden], owners: list[str]) -> None:
    """A finding about tensors outside the registers that share memory with registered ones."""
    holder = things[0].holder
    tensors = [item.thing for item in things if isinstance(item.thing, Tensor)]
    owner = listed(owners)
    if holder == "attribute":
        what = f"{ref.label} shares the memory of {owner}"
    else:
        count = "a tensor that shares" if len(tensors) == 1 else f"{len(tensors)} tensors that share"
        what = f"{ref.label} {holds(holder)} {count} the memory of {owner}"
    message = (
        f"{what}: after a move {'it is' if len(tensors) == 1 else 'they are'} still the old memory on the old device."
    )
    fix = f"Take it from {owner} whenever it is needed: a property, or a line in forward."
    ref.report("stale-alias", message, fix, bytes=bytes_of(tensors))
