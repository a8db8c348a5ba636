"""How commands print: JSON documents with `"schema": 1`, tables, styled lines without rich, the progress of work in
another process, and what another machine prints; nothing that user code prints gets on standard output. Main thread.

Styled lines: rich does all of that better and takes a third of the time in which `watch --count 1` is done: it is
imported for characters that are wider than one cell, and for a table that renews itself.

Another machine is not trusted. Colours of text pass; the cursor goes up no further than to where the output began, so
that what was on the terminal before stays as it is; the screen is cleared only after its size has changed, when `watch`
does that. All else is shown as signs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import msgspec

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, printable
from devexplorer.core.cli.startup import Raising

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


SCHEMA = 1
PIPE_COLUMNS = 1000
"""In a pipe or a file nothing is cut off or folded."""


def print_document(**content: Any) -> None:
    """Print one JSON document on a line of its own; records become objects, `NaN` and infinities become null.

    In UTF-8 whatever the terminal speaks, as JSON asks.
    """
    if sys.stdout is not None:  # None: the shell closed it (`>&-`)
        sys.stdout.flush()
        sys.stdout.buffer.write(msgspec.json.encode({"schema": SCHEMA, **content}) + b"\n")


def console() -> Console:
    """The terminal; plain text without any width when it is none.

    Names of devices, files, hosts and processes come from elsewhere: brackets in them are no markup, `:cat:` is no
    emoji, and what would move the cursor is replaced. What is styled is given as a `Text` or with `style`.
    """
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **styles: Any) -> Text:
            return super().render_str("\n".join(map(printable, text.split("\n"))), **styles)

        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError  # one place deals with it: run()

    width = None if sys.stdout is not None and sys.stdout.isatty() else PIPE_COLUMNS
    return Terminal(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the style of all commands; a column whose name starts with `>` holds numbers: right-aligned, never
    cut."""
    from rich.table import Table

    result = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        number = column.startswith(">")
        result.add_column(
            column.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return result


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send everything that is written to `sys.stdout` or descriptor 1 meanwhile to standard error: user code may
    print."""
    if sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


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


_PARTS = re.compile(r"(\x1b\[\??[0-9;]{0,30}[A-Za-z]|[\n\r\t])")
_BEGUN = re.compile(r"\x1b(\[\??[0-9;]{0,30})?\Z")
"""The beginning of a code whose rest has not come."""
_CODE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")
_STYLE = r"(?:[0-4]|2[2-4]|3[0-79]|9[0-7]|38;5;\d{1,3}|38;2;\d{1,3};\d{1,3};\d{1,3})"
_STYLES = re.compile(rf"(?:{_STYLE}(?:;{_STYLE})*)?")
"""No background, nothing that blinks or hides."""
_PLAIN, _SHOW, _HIDE = "\x1b[0m", "\x1b[?25h", "\x1b[?25l"


class OwnCodes:
    """`shown` for each piece of the output in turn, `end` at the end."""

    def __init__(self) -> None:
        self._begun = ""
        self._lines = 0
        """Between the first line of the output and the cursor."""
        self._may_clear = self._may_go_home = False
        self._is_styled = self._is_hidden = False

    def resized(self) -> None:
        """The terminal has another size: its lines were folded, and the screen may be cleared once."""
        self._may_clear = self._may_go_home = True

    def shown(self, text: str) -> str:
        """What the terminal gets."""
        text = self._begun + text
        begun = _BEGUN.search(text)
        self._begun = "" if begun is None else begun[0]
        parts = _PARTS.split(text[: len(text) - len(self._begun)])
        return "".join(self._code(part) if number % 2 else printable(part) for number, part in enumerate(parts))

    def end(self) -> str:
        """What the terminal gets at last, however the output ended: the cursor is seen, and text is plain."""
        begun, self._begun = printable(self._begun), ""
        return f"{begun}{_PLAIN if self._is_styled else ''}{_SHOW if self._is_hidden else ''}"

    def _code(self, code: str) -> str:
        if code == "\n":
            self._lines += 1
        if code in "\n\r\t":
            return code
        values, kind = _CODE.findall(code)[0]
        if kind == "m" and _STYLES.fullmatch(values):
            self._is_styled = values not in ("", "0")
            return code
        if code in (_SHOW, _HIDE):
            self._is_hidden = code == _HIDE
            return code
        if kind == "K" and values in ("", "0", "2"):
            return code
        if kind == "A" and values.isdecimal():
            return self._up(int(values))
        if kind == "J" and values == "2":
            permitted, self._may_clear = self._may_clear, False
            return code if permitted else printable(code)
        if kind == "H" and not values:
            permitted, self._may_go_home = self._may_go_home, False
            self._lines = 0 if permitted else self._lines
            return code if permitted else printable(code)
        return printable(code)

    def _up(self, lines: int) -> str:
        lines = min(lines, self._lines)
        self._lines -= lines
        return f"\x1b[{lines}A" if lines else ""


_CLEAR = "\r\x1b[K"
_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""


@contextmanager
def waiting(*, ends: bool = True) -> Iterator[ProgressMonitor]:
    """A monitor that writes the line on a terminal and does nothing elsewhere. Afterwards the line is gone. `ends`:
    Ctrl-C also ends the process."""
    stream = sys.stderr
    with Raising() if ends else nullcontext():
        if stream is None or not stream.isatty():
            yield NO_PROGRESS
        else:
            yield from _told(stream)


def _told(stream: TextIO) -> Iterator[ProgressMonitor]:

    def say(done: float, text: str, part: str = "", /) -> None:
        stream.write(f"{_CLEAR}{f'{100 * done:3.0f} %  {printable(text)}'[: _cells(stream)]}")
        stream.flush()

    try:
        yield ProgressMonitor(report=say)
    finally:
        stream.write(_CLEAR)
        stream.flush()


def _cells(stream: TextIO) -> int:
    """Of a line that the terminal does not fold: a folded one could not be written over."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return (columns or _COLUMNS) - 1
