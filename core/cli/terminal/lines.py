"""Lines of styled text for the terminal, and how many cells they take. Pure functions, any thread.

rich does all of that better and takes a third of the time in which `watch --count 1` is done: it is imported for
characters that are wider than one cell, and for a table that renews itself.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_NARROW = frozenset("█░—…✕°·")
"""Characters of our own that take one cell."""
PLAIN = ("dumb", "unknown")
"""Terminals that know no codes."""
_CODES = {"dim": "2", "red": "31", "yellow": "33"}


def cell_len(text: str) -> int:
    """Cells that a terminal needs for a text."""
    if text.isascii() or all(letter < "\u0300" or letter in _NARROW for letter in text):
        return len(text)
    from rich.cells import cell_len as counted

    return counted(text)


def set_cell_size(text: str, cells: int) -> str:
    """The text, cut or padded to so many cells."""
    if cell_len(text) == len(text):
        return text[:cells].ljust(cells)
    from rich.cells import set_cell_size as sized

    return sized(text, cells)


class Line:
    """Pieces of text, each with a style: `dim`, `red`, `yellow`, or none."""

    __slots__ = ("_parts",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self._parts = [(text, style)] if text else []

    @property
    def plain(self) -> str:
        """Without styles."""
        return "".join(text for text, _ in self._parts)

    def append(self, text: str, style: str = "") -> Line:
        """One piece more."""
        self._parts.append((text, style))
        return self

    def fitted(self, cells: int, end: str) -> Line:
        """Without blanks at the end, and cut to so many cells, `end` then being the last of them."""
        result = Line()
        left = cells
        long = cell_len(self.plain.rstrip()) > cells
        for index, (text, style) in enumerate(self._parts):
            if not long:
                rest = "".join(piece for piece, _ in self._parts[index + 1 :])
                text = text if rest.strip() else text.rstrip()
            else:
                room = max(left - len(end), 0)
                if cell_len(text) > room:
                    result.append((set_cell_size(text, room) + end)[: max(cells, 0)] if cells else "", style)
                    return result
                left -= cell_len(text)
            result.append(text, style)
        return result

    def ansi(self) -> str:
        """With the codes that terminals know."""
        return "".join(f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text for text, style in self._parts)

    def rich(self) -> Text:
        """For a console of rich."""
        from rich.text import Text

        return Text.assemble(*self._parts, no_wrap=True)


def is_styled() -> bool:
    """Whether standard output is a terminal that knows colours, and the user has nothing against them."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )
