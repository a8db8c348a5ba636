"""Which rows of an object are shown: what the filter, the groups and the kinds leave of it. Main thread; no Qt.

Everything here works on whole columns, and words are looked up among the few different values of a column: 60,000 rows
take a few milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from devexplorer.core.records import Diagnosis, ObjectSnapshot
from devexplorer.core.session import Mask, RowTable
from devexplorer.gui.objects.findings import Findings, findings_of

HINT: Final = (
    "Words that name, type, dtype or device must hold, for instance: conv bfloat16 cuda:1\n"
    "One field only: name:… type:… dtype:… device:… kind:… (parameter, buffer, gradient, state, module)\n"
    "With a dot it is looked for in the whole path: encoder.layer.0\n"
    "Keywords: frozen, trainable, tied, mixed, uninitialised"
)

_FIELDS: Final = ("type", "dtype", "devices")
"""Columns that a word without a field is looked for in, besides the name."""
_FIELD_OF: Final = {"type": "type", "dtype": "dtype", "device": "devices", "kind": "kind"}


class Query(NamedTuple):
    """What is looked for: every word has to be found."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Query:
        """The words of a typed text, in lower case."""
        return cls(
            tuple(
                word for word in text.lower().split() if not word.endswith(":") or word[:-1] not in {*_FIELD_OF, "name"}
            )
        )

    def matches(self, outline: RowTable, name: str) -> Mask:
        """The rows of the object `name` that hold every word."""
        result = np.ones(len(outline.rows), np.bool_)
        for word in self.words:
            result &= _holding(outline, name, word)
        return result


def _holding(outline: RowTable, name: str, word: str) -> Mask:
    field, colon, rest = word.partition(":")
    if colon and field == "name":
        return _named(outline, name, rest)
    if colon and field in _FIELD_OF:
        return outline.column(_FIELD_OF[field]).where(_holds(rest))
    result = _named(outline, name, word)
    for column in _FIELDS:
        result |= outline.column(column).where(_holds(word))
    if word in _TRAITS:
        result |= _TRAITS[word](outline)
    return result


def _named(outline: RowTable, name: str, word: str) -> Mask:
    """Rows whose name holds the word; the object itself has its own. A word with a dot is looked for in the path."""
    if "." in word:
        result = np.fromiter((word in path.lower() for path in outline.shape.paths), np.bool_, len(outline.rows))
    else:
        result = outline.column("name").where(_holds(word))
    result[0] = word in name.lower()
    return result


def _holds(word: str) -> Callable[[Any], bool]:
    def holds(value: str | tuple[str, ...] | None) -> bool:
        text = value or "" if not isinstance(value, tuple) else " ".join(value)
        return word in text.lower()

    return holds


def _parameters(outline: RowTable, *, trainable: bool) -> Mask:
    return outline.kinds("parameter") & outline.column("traits").where(lambda traits: traits[0] is trainable)


_TRAITS: Final[dict[str, Callable[[RowTable], Mask]]] = {
    "frozen": lambda outline: _parameters(outline, trainable=False),
    "trainable": lambda outline: _parameters(outline, trainable=True),
    "tied": lambda outline: outline.originals != np.arange(len(outline.rows)),
    "mixed": lambda outline: (
        outline.kinds("module") & outline.column("devices").where(lambda devices: len(devices) > 1)
    ),
    "uninitialised": lambda outline: outline.column("traits").where(lambda traits: not traits[2]),
}


NOWHERE: Final = ""
"""The group of objects that hold no tensor."""


class Options(NamedTuple):
    """How the objects are arranged."""

    query: Query = Query()
    sorted_by: str | None = None
    """`name` (in natural order) or `bytes`; None: as they come."""
    descending: bool = False
    grouped: bool = False
    """Below the devices that hold them."""
    training_parts: bool = True
    """Show gradients and what optimizers keep."""


class Known(NamedTuple):
    """One object as the tree knows it."""

    snapshot: ObjectSnapshot
    outline: RowTable
    """With a row for each finding, where there are some."""
    diagnosis: Diagnosis | None = None
    findings: Findings | None = None
    """What the doctor found in it."""


def known_as(
    snapshot: ObjectSnapshot, outline: RowTable, diagnosis: Diagnosis | None, before: Known | None = None
) -> Known:
    """The object with this outline, and with what the doctor found in it. `before`: what was known, which may still be
    right."""
    if diagnosis is None or not findings_of(diagnosis):
        return Known(snapshot, outline, diagnosis)
    if (
        before is not None
        and before.diagnosis is diagnosis
        and before.findings is not None
        and before.findings.follow(outline)
    ):
        findings = before.findings
    else:
        findings = Findings(outline, diagnosis)
    return Known(snapshot, findings.outline, diagnosis, findings)


class Visible(NamedTuple):
    """Which rows of an object are shown; None: all, or none of them."""

    shown: Mask | None
    opened: Mask | None = None
    """Those that a query wants open."""
    on_the_way: Mask | None = None
    """Those that are shown only because a match is in them."""

    @property
    def is_empty(self) -> bool:
        """Nothing is shown."""
        return self.shown is not None and not self.shown.any()


def visible(known: Known, options: Options, group: str | None) -> Visible:
    """Which rows of an object, or of the part of it that is on the device `group`, are shown.

    A row is shown when it matches, when a match is in it, or when it is in a match; everything above a shown row is
    shown.
    """
    outline, shape = known.outline, known.outline.shape
    shown: Mask | None = None
    if not options.training_parts:
        shown = ~outline.parts_of_training
    if group is not None:
        part = _part(outline, group)
        shown = part if shown is None else shown & part
        shown |= shape.around(shown)
        if known.findings is not None:  # they are where the row is that they are about
            for index in known.findings.findings:
                shown[index] = shown[shape.parents[index]]
    if not options.query.words:
        return Visible(shown)
    matches = options.query.matches(outline, known.snapshot.name)
    if shown is not None:
        matches &= shown
    opened = shape.around(matches)
    inside = shape.below(matches)
    if shown is not None:
        inside &= shown
    return Visible(opened | inside, opened, opened & ~inside)


def devices_of(outline: RowTable) -> list[str]:
    """Every device that holds a tensor of the object."""
    column = outline.column("devices")
    present = np.bincount(column.numbers, minlength=len(column.codes)) > 0
    return sorted(
        {device for devices, there in zip(column.codes, present, strict=True) if there for device in _names(devices)}
    )


def _names(devices: object) -> Sequence[str]:
    assert isinstance(devices, tuple)
    return devices


def on_device(outline: RowTable, device: str | None) -> Mask:
    """Tensors on this device."""
    return outline.column("devices").where(lambda devices: devices == (device,)) & ~outline.kinds("module")


def _part(outline: RowTable, device: str) -> Mask:
    """Tensors on this device, what they are in, and modules without tensors that are in a module that is all there."""
    alone = (device,) if device != NOWHERE else ()
    modules = outline.kinds("module")
    whole = modules & outline.column("devices").where(lambda devices: devices == alone)
    empty = modules & outline.column("devices").where(lambda devices: not devices)
    here = on_device(outline, device)
    return here | outline.shape.around(here) | (empty & outline.shape.below(whole))


def natural(name: str) -> list[str | int]:
    """A key that puts `layer 10` behind `layer 9`."""
    if name.isdecimal():  # most names of the layers of a large model
        return ["", int(name), ""]
    return [int(part) if index % 2 else part.lower() for index, part in enumerate(re.split(r"(\d+)", name))]
