"""Runs the functions of a file as a changed text of it says, without importing anything again: their code is exchanged
while a block lasts. The thread that examines.

Nothing at the top of a file or of a class is run again, so a change there has no effect; whoever tries one sees that.
"""

from __future__ import annotations

import gc
import linecache
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import NamedTuple


class Change(NamedTuple):
    """A file before and after."""

    before: str
    after: str


@contextmanager
def exchanged(changes: Mapping[str, Change]) -> Iterator[None]:
    """Within, these files (absolute names) are as their changes say, for who runs and for who reads them.

    Raises `SyntaxError` or `ValueError` where a text cannot take the place of the other.
    """
    undo: list[tuple[FunctionType, CodeType]] = []
    read: dict[str, tuple[int, None, list[str], str]] = {}
    try:
        for file, change in changes.items():
            codes = dict(_pairs(_compiled(file, change.before), _compiled(file, change.after)))
            for function in _functions(file):
                code = function.__code__
                if codes.get(code, code) is not code:
                    function.__code__ = codes[code]
                    undo.append((function, code))
            read[file] = len(change.after), None, change.after.splitlines(keepends=True), file
        linecache.cache.update(read)  # without a time of change it is not looked for on the disk
        yield
    finally:
        for function, code in undo:
            function.__code__ = code
        for file in read:
            linecache.cache.pop(file, None)


def _compiled(file: str, text: str) -> CodeType:
    return compile(text, file, "exec", dont_inherit=True)


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code of each function, and what takes its place. Codes are equal by what they do and where they stand."""
    inside, others = _inside(before), _inside(after)
    if [code.co_name for code in inside] != [code.co_name for code in others]:
        raise ValueError("the functions of the file have changed")
    for code, other in zip(inside, others, strict=True):
        yield code, other
        yield from _pairs(code, other)


def _inside(code: CodeType) -> list[CodeType]:
    return [item for item in code.co_consts if isinstance(item, CodeType)]


def _functions(file: str) -> list[FunctionType]:
    """Those that were made from a file, decorated ones too."""
    end = os.path.basename(file)
    return [
        item
        for item in gc.get_objects()
        if type(item) is FunctionType
        and item.__code__.co_filename.endswith(end)
        and os.path.abspath(item.__code__.co_filename) == file
    ]
