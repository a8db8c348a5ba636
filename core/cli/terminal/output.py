"""How commands print: JSON documents with `"schema": 1`, rich tables, and nothing that user code prints on standard
output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from devexplorer.core.base import printable

if TYPE_CHECKING:  # imported where something is drawn: documents and the readings of `watch` are printed without it
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
