"""What a picture shows as numbers, and what its context menu has: a table, a copy, files. Main thread.

Any widget with a method `figures` has it; the dialog is `gui.widgets.figures_dialog`. Files are written by the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QMainWindow, QWidget

from devexplorer.core.base import MISSING
from devexplorer.gui.widgets.layouts import popup_menu

DIGITS = 5
"""Significant digits of the largest number of a column."""
COPY = "copy"
EXPORTS = {
    COPY: "Copy the picture", "png": "Save as PNG…", "svg": "Save as SVG…", "csv": "Save the values as CSV…",
}  # fmt: skip
"""What a picture with figures can become, and the line of its context menu."""
MenuLine = tuple[str, Callable[[], object]]
"""Words of a line of a context menu, and what it does."""


class Figures(NamedTuple):
    """The numbers of a picture."""

    columns: tuple[str, ...]
    """Titles, with units."""
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    """What the rows are, where that has to be said."""


class Tabled(Protocol):
    """A widget whose numbers can be shown as a table."""

    def figures(self) -> Figures | None:
        """What is shown now; None: nothing."""


class ExportingWindow(QMainWindow):
    """The window that writes the files of all pictures that are in it, in its dialogs and in its panels' windows."""

    export_requested = Signal(object, str)
    """A picture (None: all plots over time), and as what: a key of `EXPORTS` or of `time_control.FORMATS`."""


def ask_export(widget: QWidget, kind: str, picture: QWidget | None) -> None:
    """Ask the window that `widget` belongs to."""
    around: QWidget | None = widget
    while around is not None and not isinstance(around, ExportingWindow):
        around = around.parentWidget()
    if around is not None:
        around.export_requested.emit(picture, kind)


def number_texts(values: Iterable[float | None]) -> list[str]:
    """Numbers of one column, all with the same decimals; what is not known is `MISSING`."""
    numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    largest = float(np.nanmax(np.abs(numbers), initial=0.0))
    places = min(max(DIGITS - 1 - int(np.floor(np.log10(largest))), 0), 12) if largest else 0
    return [MISSING if np.isnan(value) else f"{value:.{places}f}" for value in numbers]


def offer_menu(
    picture: QWidget, event: QContextMenuEvent, above: Iterable[MenuLine] = (), below: Iterable[MenuLine] = ()
) -> None:
    """The context menu of a widget with `figures`, where it shows something, between other lines."""
    own: list[MenuLine] = []
    if cast("Tabled", picture).figures() is not None:
        own.append(("Show as table…", partial(show_tables, picture, [picture])))
        own += [(words, partial(ask_export, picture, kind, picture)) for kind, words in EXPORTS.items()]
    lines = [*above, *own, *below]
    if not lines:
        event.ignore()
        return
    menu = popup_menu(picture)
    for words, chosen in lines:
        menu.addAction(words, chosen)
    menu.popup(event.globalPos())


def show_tables(parent: QWidget, pictures: Iterable[QWidget]) -> bool:
    """Open the dialog with those of `pictures` that show something; False: none does."""
    from devexplorer.gui.widgets.figures_dialog import FiguresDialog  # when it is asked for

    tabled: dict[str, Tabled] = {}
    for picture in pictures:
        figures = getattr(picture, "figures", None)
        if figures is not None and figures() is not None:
            name = picture.accessibleName()
            same = sum(known.partition(" (")[0] == name for known in tabled)
            tabled[f"{name} ({same + 1})" if same else name] = cast("Tabled", picture)
    if tabled:
        dialog = FiguresDialog(tabled, parent.window())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
    return bool(tabled)
