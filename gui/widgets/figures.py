"""What a picture shows as numbers, and "Show as table" in its context menu. Main thread.

Any widget with a method `figures` has it; the dialog is `gui.widgets.figures_dialog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QMenu, QWidget

from devexplorer.core.base import MISSING

DIGITS = 5
"""Significant digits of the largest number of a column."""
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
        """What is on show now; None: nothing."""


def number_texts(values: Iterable[float | None]) -> list[str]:
    """Numbers of one column, all with the same decimals; what is not known is `MISSING`."""
    numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    largest = float(np.nanmax(np.abs(numbers), initial=0.0))
    places = min(max(DIGITS - 1 - int(np.floor(np.log10(largest))), 0), 12) if largest else 0
    return [MISSING if np.isnan(value) else f"{value:.{places}f}" for value in numbers]


def offer_table(
    picture: QWidget, event: QContextMenuEvent, above: Iterable[MenuLine] = (), below: Iterable[MenuLine] = ()
) -> None:
    """The context menu of a widget with `figures`, where it shows something, between other lines."""
    has_figures = cast(Tabled, picture).figures() is not None
    table: list[MenuLine] = [("Show as table…", partial(show_tables, picture, [picture]))] if has_figures else []
    lines = [*above, *table, *below]
    if not lines:
        event.ignore()
        return
    menu = QMenu(picture)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
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
            tabled[f"{name} ({same + 1})" if same else name] = cast(Tabled, picture)
    if tabled:
        dialog = FiguresDialog(tabled, parent.window())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
    return bool(tabled)
