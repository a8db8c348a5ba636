"""How commands print: JSON documents with `"schema": 1`, rich tables, and nothing that user code prints on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

SCHEMA = 1


def document(**content: Any) -> str:
    """One JSON document; records become objects, `NaN` and infinities become null."""
    return msgspec.json.encode({"schema": SCHEMA, **content}).decode()


def console() -> Console:
    """The terminal; plain text when it is none."""
    return Console(highlight=False, soft_wrap=True)


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the style of all commands; a column whose name starts with `>` is right-aligned."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        result.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return result


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send everything that is written to descriptor 1 meanwhile to standard error: user code may print, documents stay clean."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
