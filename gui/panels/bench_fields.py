"""What the forms of the Benchmark tab are made of: fields with names, and texts read as sizes. Main thread.

Sizes are written as a list (`512, 1024`), or as a range with a step to add (`256 to 4096 by 256`) or to multiply with
(`4 KiB to 1 GiB ×4`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QMenu, QWidget

from devexplorer.core.benchmark.spec import LARGEST_SIDE
from devexplorer.core.errors import BadInput
from devexplorer.gui.icons import icon
from devexplorer.gui.panels.panel import label
from devexplorer.gui.theme import Role, Theme

G = TypeVar("G")
T = TypeVar("T")

DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8")
"""Offered; others can be typed."""
MOST_SIZES = 1000
"""In one range; more are a typing error."""
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_RANGE = re.compile(r"(?P<first>.+?)\s*(?:to|\.\.+|…|–|-)\s*(?P<last>.+?)(?:\s*(?:(?:by\s*)?[x×*]|by|step)\s*(?P<step>[^x×*]+))?$")
_FACTOR = re.compile(r".*(?:[x×*]\s*)[\d.]+\s*$")


class Findings:
    """Everything that is wrong with a form, so that it is said at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def read(self, parse: Callable[[G], T], given: G) -> T | None:
        """What `parse` makes of it; None where that raised `BadInput`, which is kept."""
        try:
            return parse(given)
        except BadInput as error:
            self.add(*error.findings)
            return None

    def add(self, *lines: str) -> None:
        """Keep these lines, each once."""
        self.lines += [line for line in lines if line not in self.lines]

    def refuse(self) -> None:
        """Raise one `BadInput` where anything was found."""
        if self.lines:
            raise BadInput(*self.lines)


def parse_side(text: str) -> int:
    """A side of a matrix.

    >>> parse_side("1024")
    1024
    """
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII) or not 1 <= int(text) <= LARGEST_SIDE:
        raise BadInput(f"'{text.strip()}' is not a side of a matrix; write a whole number from 1 to {LARGEST_SIDE}")
    return int(text)


def parse_bytes(text: str) -> int:
    """A number of bytes; K, M and G are binary, with or without iB.

    >>> parse_bytes("4 KiB"), parse_bytes("1.5g")
    (4096, 1610612736)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmg]?)(?:i?b)?", text.strip().lower(), re.ASCII)
    if match is None or float(match[1]) <= 0:
        raise BadInput(f"'{text.strip()}' is not a number of bytes; write for example 64 KiB, 16 MiB or 1 GiB")
    return max(round(float(match[1]) * _UNITS[match[2]]), 1)


def parse_sizes(text: str, parse: Callable[[str], int], example: str) -> tuple[int, ...]:
    """Sizes in rising order, each once. Without a step a range doubles. Raises `BadInput` with `example`.

    >>> parse_sizes("256 to 1024 by 256", parse_side, ""), parse_sizes("4k to 1m ×16", parse_bytes, "")
    ((256, 512, 768, 1024), (4096, 65536, 1048576))
    """
    if not text.strip():
        raise BadInput(f"no sizes are given; write for example {example}")
    if "," in text or _RANGE.fullmatch(text.strip()) is None:
        return tuple(sorted({parse(part) for part in text.split(",") if part.strip()}))
    match = _RANGE.fullmatch(text.strip())
    assert match is not None
    first, last = parse(match["first"]), parse(match["last"])
    if last < first:
        raise BadInput(f"the range '{text.strip()}' ends before it begins; write for example {example}")
    if match["step"] is None or _FACTOR.fullmatch(text.strip()):
        sizes = _multiplied(first, last, _factor(match["step"] or "2", text))
    else:
        step = parse(match["step"])
        count = (last - first) // step + 1
        sizes = [] if count > MOST_SIZES else list(range(first, last + 1, step))
    if not sizes:
        raise BadInput(f"the range '{text.strip()}' has more than {MOST_SIZES} sizes; take a larger step")
    return tuple(sizes)


def _factor(text: str, whole: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1.01 <= factor <= 1e6:
        raise BadInput(f"the step of '{whole.strip()}' is no factor; write for example ×2")
    return factor


def _multiplied(first: int, last: int, factor: float) -> list[int]:
    sizes, size = [first], float(first)
    while size * factor <= last * (1 + 1e-9):
        size *= factor
        if round(size) > sizes[-1]:
            sizes.append(round(size))
    return sizes


def edit(text: str, placeholder: str, name: str, width_px: int) -> QLineEdit:
    """A line to type in."""
    result = QLineEdit(text)
    result.setPlaceholderText(placeholder)
    result.setAccessibleName(name)
    result.setFixedWidth(width_px)
    return result


class Choice(QComboBox):
    """A few values to choose from, each with words to show and, as a tooltip, what it means.

    The values stay on this side: Qt would make lists of tuples.
    """

    def __init__(self, name: str, items: Iterable[tuple[object, str, str]] = ()) -> None:
        """`items`: value, words, meaning."""
        super().__init__()
        self.setAccessibleName(name)
        self._values: list[object] = []
        self.offer(items)
        self.currentIndexChanged.connect(self._explain)

    def offer(self, items: Iterable[tuple[object, str, str]]) -> None:
        """Offer these from now on; what is chosen stays chosen where it is among them. Tells nobody."""
        offered = list(items)
        if [(self.itemText(at), self._values[at]) for at in range(self.count())] == [(words, value) for value, words, _ in offered]:
            return
        kept = self.currentText()
        self.blockSignals(True)
        self.clear()
        self._values = [value for value, _, _ in offered]
        for at, (_, words, meaning) in enumerate(offered):
            self.addItem(words)
            self.setItemData(at, meaning or None, Qt.ItemDataRole.ToolTipRole)
        self.setCurrentIndex(max(self.findText(kept), 0))
        self.blockSignals(False)
        self._explain()

    @property
    def value(self) -> Any:
        """What is chosen; None where nothing is offered."""
        at = self.currentIndex()
        return self._values[at] if 0 <= at < len(self._values) else None

    def choose(self, value: object) -> None:
        """Choose the item with this value."""
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))

    def _explain(self) -> None:
        self.setToolTip(self.currentData(Qt.ItemDataRole.ToolTipRole) or "")


class DtypeEdit(QLineEdit):
    """A dtype to type, or to choose from a menu."""

    def __init__(self, dtypes: Iterable[str] = DTYPES, width_px: int = 112) -> None:
        super().__init__("float32")
        self.setPlaceholderText("dtype")
        self.setAccessibleName("dtype")
        self.setFixedWidth(width_px)
        self._menu = QMenu(self)
        for name in dtypes:
            self._menu.addAction(name, functools.partial(self.setText, name))
        self._show = self.addAction(QIcon(), QLineEdit.ActionPosition.TrailingPosition)
        self._show.setText("Choose a dtype")
        self._show.triggered.connect(lambda: self._menu.popup(self.mapToGlobal(self.rect().bottomLeft())))

    def set_theme(self, theme: Theme) -> None:
        """Draw the arrow in its colour."""
        self._show.setIcon(icon("chevron", theme.dim))



def labelled(words: str, field: QWidget) -> QWidget:
    """A field behind its name; hidden and shown together."""
    result = QWidget()
    row = QHBoxLayout(result)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(6)
    name = label(words, Role.LABEL, "dim")
    name.setObjectName("name")
    name.setBuddy(field)
    row.addWidget(name)
    row.addWidget(field)
    return result
