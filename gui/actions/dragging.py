"""What a drag of objects carries, what a move would take along, and what dropping it on a device would do. Main thread;
reads the state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QByteArray, QMimeData

from devexplorer.core.base import bytes_text
from devexplorer.core.records import Row
from devexplorer.core.session import Ints, RowTable, State

MIME = "application/x-devexplorer-objects"
"""UTF-8 JSON: a list of targets, each `name` or `name:path`."""


class Verdict(NamedTuple):
    """What a drop would do: whether it is allowed, and the words on the card."""

    allowed: bool
    words: str
    nothing_to_do: bool = False
    """Not allowed only because it would change nothing."""


class Held(NamedTuple):
    """Tensors of one object."""

    outline: RowTable
    places: Ints
    """Their rows, each tensor once."""


class Movable(NamedTuple):
    """What a move is asked for."""

    targets: tuple[str, ...]
    words: str
    """What the user should know about it; empty when the targets are what was chosen."""


def encode(targets: tuple[str, ...]) -> QMimeData:
    """Targets as a drag carries them; other programs get them as text."""
    data = QMimeData()
    data.setData(MIME, QByteArray(json.dumps(targets, ensure_ascii=False).encode()))
    data.setText(" ".join(targets))
    return data


def decode(data: QMimeData) -> tuple[str, ...]:
    """The targets of a drag; empty for anything that is not ours, however it is broken."""
    if not data.hasFormat(MIME):
        return ()
    try:
        result = json.loads(bytes(data.data(MIME).data()).decode())
    except ValueError:  # not UTF-8, or not JSON: another program used our name
        return ()
    if not isinstance(result, list) or not all(isinstance(target, str) for target in result):
        return ()
    return tuple(result)


def split(target: str) -> tuple[str, str]:
    """`name:path` -> (`name`, `path`); the path of a whole object is empty."""
    name, _, path = target.partition(":")
    return name, path


def places_of(state: State, targets: Sequence[str]) -> dict[str, tuple[RowTable, list[int]]]:
    """Per object its outline and the rows of the targets in it; those that are gone are left out."""
    result: dict[str, tuple[RowTable, list[int]]] = {}
    for target in targets:
        name, path = split(target)
        if name not in result:
            snapshot = state.objects.get(name)
            if snapshot is None or not snapshot.rows:
                continue
            result[name] = (state.row_tables.of(snapshot), [])
        outline, places = result[name]
        index = outline.place(path)
        if index is not None:
            places.append(index)
    return {name: held for name, held in result.items() if held[1]}


def row_of(state: State, target: str) -> Row | None:
    """The target's own row; None when it is gone."""
    name, path = split(target)
    snapshot = state.objects.get(name)
    if snapshot is None or not snapshot.rows:
        return None
    outline = state.row_tables.of(snapshot)
    index = outline.place(path)
    return None if index is None else outline.rows[index]


def tensors_of(state: State, targets: Sequence[str]) -> list[Held]:
    """Every tensor that a move of `targets` takes along, once: tied and doubly named ones are not repeated."""
    return [Held(outline, outline.tensors(places)) for outline, places in places_of(state, targets).values()]


def movable(state: State, targets: Sequence[str]) -> Movable:
    """What is moved when these are chosen: a tensor inside a module goes with the module that holds it, for that is
    what PyTorch moves."""
    chosen: list[str] = []
    inner: list[tuple[str, str]] = []
    for name, (outline, places) in places_of(state, targets).items():
        holders = [outline.holder(index) for index in places]
        paths = outline.shape.paths
        inner += (
            (paths[index], _in_words(name, paths[above]))
            for index, above in zip(places, holders, strict=True)
            if index != above
        )
        end = 0
        for index in sorted(set(holders)):
            if index >= end:  # else it is in one that moves anyway
                end = outline.shape.ends[index]
                chosen.append(f"{name}:{paths[index]}" if paths[index] else name)
    if not inner:
        return Movable(tuple(targets), "")
    if len(inner) == 1:
        ((path, holder),) = inner
        return Movable(tuple(chosen), f"{path} moves with what holds it: {holder}.")
    return Movable(tuple(chosen), f"{len(inner):,} of the chosen tensors move with the modules that hold them.")


def _in_words(name: str, path: str) -> str:
    return f"{path} of {name}" if path else name


def verdicts(state: State, targets: tuple[str, ...], devices: Iterable[str]) -> dict[str, Verdict]:
    """What dropping `targets` on each of these devices would do. Cached memory counts as free: the allocator uses it
    first."""
    held = tensors_of(state, movable(state, targets).targets)
    return {device: _verdict(state, held, device) for device in devices}


def _verdict(state: State, held: Sequence[Held], device_id: str) -> Verdict:
    device = state.devices.get(device_id)
    if device is None or not device.info.usable:
        return Verdict(False, "cannot hold tensors")
    if not any(len(part.places) for part in held):
        return Verdict(False, "nothing to move", nothing_to_do=True)
    tensors, size = _elsewhere(held, device_id)
    if not tensors:
        return Verdict(False, "already here", nothing_to_do=True)
    parts = device.parts
    if parts.free is None:
        return Verdict(True, "free memory is not known")
    left = parts.free + (parts.cached or 0) - size
    if left < 0:
        return Verdict(False, f"does not fit, needs {bytes_text(-left, 1)} more")
    return Verdict(True, f"fits, {bytes_text(left, 1)} left")


def _elsewhere(held: Sequence[Held], device: str) -> tuple[int, int]:
    """How many of these tensors are not on this device, and their bytes."""
    tensors = size = 0
    for outline, places in held:
        away = places[outline.column("devices").where(lambda devices: devices != (device,))[places]]
        tensors += len(away)
        size += int(outline.bytes[away].sum())
    return tensors, size
