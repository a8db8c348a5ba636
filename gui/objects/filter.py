"""The filter of the object tree: what its words mean, and which rows match. Main thread.

Words are looked up among the few different values of a column, not in every row, so that 60,000 rows take a few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from devexplorer.core.session import Mask, RowTable

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
