"""Which line of whose code is being run: the innermost user line. Any thread; no torch.

Frames of torch, of Python's library and of DevExplorer are passed over (sample models of the zoo count as the user's).
A line of another installed package is taken where there is no user line further out within the model.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from devexplorer.core.records import CodeLines

AROUND = 4
"""Lines of code that are shown before and after one."""
_CORE = str(Path(__file__).parents[1]) + os.sep
_SAMPLES = str(Path(__file__).parents[1] / "models" / "samples") + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = tuple(str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "platstdlib"))


class SourceLocation(NamedTuple):
    """A line of Python."""

    file: str
    """Absolute."""
    line: int
    function: str
    library: bool = False
    """Whether it is of an installed package rather than the user's own."""


NOWHERE = SourceLocation("", 0, "")


@lru_cache(maxsize=4096)
def kind_of(file: str) -> str:
    """`user`, `library` (an installed package other than torch) or `skipped`."""
    if file.startswith("<") or not file:
        return "skipped"
    path = os.path.abspath(file)
    if path.startswith(_CORE):
        return "user" if path.startswith(_SAMPLES) else "skipped"
    parts = Path(path).parts
    if any(part in _INSTALLED for part in parts):
        last = max(index for index, part in enumerate(parts) if part in _INSTALLED)
        package = parts[last + 1] if last + 1 < len(parts) else ""
        return "skipped" if package in ("torch", "functorch", "torchgen") else "library"
    return "skipped" if path.startswith(_STANDARD) else "user"


def is_sample(file: str) -> bool:
    """Whether it is a file of DevExplorer's sample models."""
    return os.path.abspath(file).startswith(_SAMPLES)


def place_at(file: str, line: int, function: str) -> SourceLocation | None:
    """A line as a place; None where it is torch's, Python's or DevExplorer's."""
    kind = kind_of(file)
    return None if kind == "skipped" else SourceLocation(os.path.abspath(file), line, function, kind == "library")


def innermost(places: Iterable[SourceLocation | None]) -> SourceLocation | None:
    """Of lines in the order from the inside out: the first user line, else the first one of a library."""
    library: SourceLocation | None = None
    for place in places:
        if place is not None and not place.library:
            return place
        library = library or place
    return library


def library_of(frame: FrameType | None, until: FrameType | None = None) -> SourceLocation | None:
    """The line of an installed package that is at work, where it is further in than the user's own; None where the
    user's line itself, or torch called by it, is."""
    inner = next((place for place in _outwards(frame, until) if place is not None), None)
    return inner if inner is not None and inner.library else None


def place_of(frame: FrameType | None, until: FrameType | None = None) -> SourceLocation | None:
    """The innermost user line from this frame outwards, else the innermost one of a library; None where
    there is neither.

    `until` is the first frame that does not belong to the model any more.
    """
    return innermost(_outwards(frame, until))


def frames(frame: FrameType | None, until: FrameType | None = None) -> Iterator[FrameType]:
    """A frame, the one that called it, and so on; `until` is the first that is left out."""
    while frame is not None and frame is not until:
        yield frame
        frame = frame.f_back


def _outwards(frame: FrameType | None, until: FrameType | None) -> Iterator[SourceLocation | None]:
    for outer in frames(frame, until):
        yield place_at(outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_name)


def raised_at(error: BaseException) -> SourceLocation | None:
    """The line of an exception's traceback that `place_of` would take; None where it has no user code."""
    raised: list[SourceLocation | None] = []
    trace = error.__traceback__
    while trace is not None:  # outermost first
        code = trace.tb_frame.f_code
        raised.append(place_at(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return innermost(reversed(raised))


def caller_location(skip: int = 1) -> SourceLocation | None:
    """`place_of` the caller; `skip` frames further out where it is more than 1."""
    return place_of(sys._getframe(skip))


def code_lines(place: SourceLocation) -> CodeLines | None:
    """The lines around a place, as the file is now; None where it cannot be read."""
    linecache.checkcache(place.file)
    first = max(1, place.line - AROUND)
    lines = [linecache.getline(place.file, number) for number in range(first, place.line + AROUND + 1)]
    while lines and not lines[-1]:
        lines.pop()
    return CodeLines(first=first, lines=tuple(line.rstrip("\n") for line in lines)) if lines else None
