"""What the window itself knows about a selection, as facts: placement, sums, what is out of the ordinary. Main
thread."""

from __future__ import annotations

import os

import numpy as np

from devexplorer.core.base import bytes_text, count_text, shape_text
from devexplorer.core.records import Fact, ObjectSnapshot, Row
from devexplorer.core.session import RowTable, State
from devexplorer.gui.actions import Held, places_of
from devexplorer.gui.objects.totals import Totals


def selection_facts(state: State, targets: tuple[str, ...]) -> tuple[Fact, ...]:
    """Placement of the selected objects: of one tensor everything, of a model or several objects the sums."""
    chosen = places_of(state, targets)
    count = sum(len(places) for _, places in chosen.values())
    if count == 0:
        return ()
    if count == 1:
        ((name, (outline, (index,))),) = chosen.items()
        own = outline.rows[index]
        about = _origin(state.objects[name]) if index == 0 else []
        if own.kind != "module":
            return (*_tensor_facts(own), *about)
    else:
        about = [Fact("selected", count_text(count, "object"))]
    held = [Held(outline, outline.tensors(places)) for outline, places in chosen.values()]
    totals = Totals.of(held)
    facts = [*about, *_parameters(held)]
    for kind, word in (
        ("buffer", "buffers"),
        ("gradient", "gradients"),
        ("state", "optimizer state"),
        ("tensor", "tensors"),
    ):
        if kind in totals.kinds:
            facts.append(Fact(word, f"{totals.kinds[kind].tensors:,}, {bytes_text(totals.kinds[kind].bytes)}"))
    facts += _per_device(totals)
    for word, number in _out_of_the_ordinary(chosen).items():
        if number:
            facts.append(Fact(word, f"{number:,}"))
    if count == 1 and index == 0 and state.objects[name].training is not None:
        facts.append(Fact("mode", "training" if state.objects[name].training else "evaluation"))
    return tuple(facts)


def _origin(snapshot: ObjectSnapshot) -> list[Fact]:
    """What is known about an object besides its tensors."""
    return _known(
        {
            "made from": snapshot.source,
            "changed since": ", ".join(map(os.path.basename, snapshot.outdated)) or None,
            "optimizer": snapshot.optimizer,
            "hops": "its parts fetch what they are given to their own devices" if snapshot.hops else None,
            "dispatched": snapshot.dispatched,
        }
    )


def _known(texts: dict[str, str | None]) -> list[Fact]:
    return [Fact(label, text) for label, text in texts.items() if text is not None]


def _parameters(held: list[Held]) -> list[Fact]:
    tensors = elements = trainable = waiting = 0
    for outline, places in held:
        these = places[outline.kinds("parameter")[places]]
        traits = outline.column("traits")
        sizes = outline.elements[these]
        tensors += len(these)
        elements += int(sizes.sum())
        trainable += int(sizes[traits.where(lambda found: bool(found[0]))[these]].sum())
        waiting += int(traits.where(lambda found: not found[2])[these].sum())
    if not tensors:
        return []
    if waiting:  # a lazy model has no number of parameters before its first forward
        words = "none with a shape yet" if waiting == tensors else f"{waiting:,} without a shape yet"
        return [Fact("parameters", f"{count_text(tensors, 'tensor')}, {words}")]
    return [
        Fact("parameters", f"{elements:,} in {count_text(tensors, 'tensor')}"),
        Fact("trainable", "all" if trainable == elements else f"{trainable:,}"),
    ]


def _per_device(totals: Totals) -> list[Fact]:
    """Bytes and number of tensors on each device; "all" where there is only one."""
    if len(totals.devices) == 1:
        return [Fact(f"on {device}", f"{bytes_text(result.bytes)}, all") for device, result in totals.devices.items()]
    return [
        Fact(f"on {device}", f"{bytes_text(result.bytes)}, {count_text(result.tensors, 'tensor')}")
        for device, result in totals.devices.items()
    ]


def _out_of_the_ordinary(chosen: dict[str, tuple[RowTable, list[int]]]) -> dict[str, int]:
    """How many tensors are tied, not registered, uninitialised."""
    result = dict.fromkeys(("tied", "not registered", "uninitialised"), 0)
    for outline, places in chosen.values():
        inside, traits = outline.inside(places) & ~outline.kinds("module"), outline.column("traits")
        result["tied"] += int((inside & (outline.originals != np.arange(len(inside)))).sum())
        result["not registered"] += int((inside & traits.where(lambda row: not row[1])).sum())
        result["uninitialised"] += int((inside & traits.where(lambda row: not row[2])).sum())
    return result


def _tensor_facts(row: Row) -> list[Fact]:
    return _known(
        {
            "shape": shape_text(row.shape) if row.initialised else "not known before the first forward",
            "elements": f"{row.elements:,}",
            "dtype": row.dtype,
            "on": ", ".join(row.devices),
            "bytes": f"{bytes_text(row.bytes)} ({row.bytes:,})",
            "requires grad": {True: "yes", False: "no", None: None}[row.requires_grad],
            "leaf": {True: "yes", False: "no: it is the result of an operation", None: None}[row.is_leaf],
            "grad_fn": row.grad_fn,
            "tied to": row.tied_to,
            "registered": None if row.registered else "no: .to(), parameters() and state_dict() do not see it",
            "storage": None if row.storage is None else f"0x{row.storage:x}",
            "id()": None if row.identity is None else str(row.identity),
        }
    )
