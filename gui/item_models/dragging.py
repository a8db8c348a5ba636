"""What a drag of objects carries, and what dropping them on a device would do. Main thread; only reads the state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from PySide6.QtCore import QByteArray, QMimeData

from devexplorer.core.formats import bytes_text
from devexplorer.core.records.objects import Row
from devexplorer.core.state import State

MIME = "application/x-devexplorer-objects"
"""UTF-8 JSON: a list of targets, each `name` or `name:path`."""


class Verdict(NamedTuple):
    """What a drop would do: whether it is allowed, and the words on the card."""

    allowed: bool
    words: str
    nothing_to_do: bool = False
    """Not allowed only because it would change nothing."""


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
        found = json.loads(bytes(data.data(MIME).data()).decode())
    except ValueError:  # not UTF-8, or not JSON: another program used our name
        return ()
    if not isinstance(found, list) or not all(isinstance(target, str) for target in found):
        return ()
    return tuple(found)


def split(target: str) -> tuple[str, str]:
    """`name:path` -> (`name`, `path`); the path of a whole object is empty."""
    name, _, path = target.partition(":")
    return name, path


def rows_of(state: State, target: str) -> tuple[Row, ...]:
    """The target's own row and everything below it; empty when it is gone."""
    name, path = split(target)
    snapshot = state.objects.get(name)
    if snapshot is None:
        return ()
    rows = snapshot.rows
    start = next((number for number, row in enumerate(rows) if row.path == path), None)
    if start is None:
        return ()
    end = start + 1
    while end < len(rows) and rows[end].depth > rows[start].depth:
        end += 1
    return rows[start:end]


def tensors_of(state: State, targets: tuple[str, ...]) -> Iterator[Row]:
    """Every tensor that a move of `targets` takes along, once: tied and doubly named ones are not repeated."""
    seen: set[tuple[str, str]] = set()
    for target in targets:
        name, _ = split(target)
        for row in rows_of(state, target):
            key = (name, row.tied_to or row.path)
            whole_tensor = state.objects[name].kind == "tensor"
            if row.kind == "module" or not (row.registered or whole_tensor) or key in seen:
                continue
            seen.add(key)
            yield row


def verdict(state: State, targets: tuple[str, ...], device_id: str) -> Verdict:
    """What dropping `targets` on `device_id` would do. Cached memory counts as free: the allocator uses it first."""
    device = state.devices.get(device_id)
    if device is None or not device.info.usable:
        return Verdict(False, "cannot hold tensors")
    tensors = list(tensors_of(state, targets))
    if not tensors:
        return Verdict(False, "nothing to move", nothing_to_do=True)
    elsewhere = [row for row in tensors if row.devices != (device_id,)]
    if not elsewhere:
        return Verdict(False, "already here", nothing_to_do=True)
    parts = device.parts
    if parts.free is None:
        return Verdict(True, "free memory is not known")
    left = parts.free + (parts.cached or 0) - sum(row.bytes for row in elsewhere)
    if left < 0:
        return Verdict(False, f"does not fit, needs {bytes_text(-left, 1)} more")
    return Verdict(True, f"fits, {bytes_text(left, 1)} left")
