"""The legend in a plot's header, or in a row below a narrow one: one entry per device in its colour, or per part of a
stack; a click hides and shows it, the plot's context menu has the entry under the mouse alone. Main thread.

What does not fit is in a menu behind "+N". Simulated devices have a dashed line and the word: behind each of them where
there is room, else once in front of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAction, QBrush, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QMenu, QSizePolicy, QToolButton, QWidget

from devexplorer.gui.widgets import (
    EDGE_PX,
    LEFT,
    MenuLine,
    Role,
    current_theme,
    device_colour,
    device_pen,
    font,
    hbox,
    put_in_order,
    text_width,
)

LINE_PX, GAP_PX, SPACE_PX, HEIGHT_PX = 16, 5, 12, 20
"""Length of the line, between line and text, between entries, height of an entry."""
MORE_PX = 36
"""Of the `+N`."""
LEAST_ENTRIES = 4
"""A header that cannot name so many, or all, leaves the legend to the row below it."""
WORD = "simulated: "


class LegendLine(NamedTuple):
    """A device, or a part of a stack, as the legend shows it."""

    device: str
    """Its id, or the part's name."""
    colour: int
    """Palette index."""
    simulated: bool
    value: str = ""
    """The number behind the name."""
    brushes: tuple[QBrush, ...] = ()
    """Of an area, painted one over the other: then a small square takes the place of the line."""
    text_colour: str = ""
    """`#RRGGBB`; empty: the colour of the device."""
    idle: bool = False
    """Its curve is at zero: where there is little room, entries of curves that can be seen come first."""

    def text(self, *, with_word: bool = True) -> str:
        """Behind the line: the name, the number and, `with_word`, whether it is simulated."""
        word = "simulated" if self.simulated and with_word else ""
        return " ".join(filter(None, (self.device, self.value, word)))


class LegendEntry(QAbstractButton):
    """One device: its line, its name, its number; checked while its curve is shown."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, checkable=True, checked=True)
        self.setFont(font(Role.LABEL))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._entry = LegendLine("", 0, False)
        self.with_word = True
        self.is_first = False
        """Before it stands the word that is true of those after it, too."""

    def set_entry(self, entry: LegendLine) -> None:
        """Show that device."""
        if entry == self._entry:
            return
        self._entry = entry
        word = " (simulated)" if entry.simulated else ""
        self.setAccessibleName(f"{entry.device}{word} {entry.value}".strip())
        self.setToolTip(f"{entry.device}{word}: click to hide or show it, right-click for it alone")
        self.update()

    @property
    def text_shown(self) -> str:
        """The text behind the line."""
        return self._entry.text(with_word=self.with_word)

    def width_for(self, *, with_word: bool) -> int:
        """Pixels that it takes with or without the word "simulated" behind its name."""
        return LINE_PX + GAP_PX + text_width(self._entry.text(with_word=with_word)) + 4

    def sizeHint(self) -> QSize:
        before = text_width(WORD) if self.is_first else 0
        return QSize(before + self.width_for(with_word=self.with_word), HEIGHT_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        shown, middle = self.isChecked(), self.height() // 2 + 0.5
        painter.setPen(current_theme().dim)
        left = 0
        if self.is_first:  # in no device's colour
            painter.drawText(self.rect(), LEFT, WORD)
            left = text_width(WORD)
        if shown:
            draw_key(painter, self._entry, QPointF(left + 2, middle))
        else:
            painter.drawEllipse(QPointF(left + LINE_PX / 2, middle), 2.5, 2.5)
        chosen = self.font()
        chosen.setStrikeOut(not shown)
        painter.setFont(chosen)
        painter.setPen(entry_colour(self._entry) if shown else current_theme().dim)
        room = QRectF(left + LINE_PX + GAP_PX, 0, self.width(), self.height())
        painter.drawText(room, LEFT, self.text_shown)
        if self.hasFocus():
            painter.setPen(current_theme().focus)
            painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), 3, 3)


def draw_key(painter: QPainter, entry: LegendLine, left: QPointF) -> None:
    """The line or the square before the name, from `left` on, `LINE_PX` - 2 wide at most."""
    if not entry.brushes:
        pen = device_pen(entry.colour, simulated=entry.simulated)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)  # this and the next: else the last dash would be a dot
        pen.setDashOffset(4)
        painter.setPen(pen)
        painter.drawLine(left, left + QPointF(LINE_PX - 2, 0))
    for brush in entry.brushes:
        painter.fillRect(QRectF(left.x() + 2, left.y() - 4.5, 9, 9), brush)


def entry_colour(entry: LegendLine) -> str:
    """`#RRGGBB` of the entry's name."""
    return entry.text_colour or device_colour(entry.colour)


class Legend(QWidget):
    """All devices of a plot in one row, right-aligned in a header, left-aligned in a row of their own."""

    changed = Signal()
    """The user has hidden or shown curves."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(HEIGHT_PX)
        self.setAccessibleName("Legend")
        self._entries: tuple[LegendLine, ...] = ()
        self.buttons: dict[str, LegendEntry] = {}
        self._hidden: set[str] = set()
        self.from_left = False
        self._more = QToolButton(self, popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._more.setProperty("look", "quiet")
        self._more.setFont(font(Role.LABEL))
        self._menu = QMenu(self._more)
        self._more.setMenu(self._menu)
        self._menu.aboutToShow.connect(self._fill_menu)
        self.left_over: tuple[LegendLine, ...] = ()
        """Entries that had no room and are in the menu."""
        self._more.hide()

    def set_entries(self, entries: Sequence[LegendLine]) -> None:
        """Show these devices, in this order; does nothing when they are shown already."""
        if tuple(entries) == self._entries:
            return
        self._entries = tuple(entries)
        for gone in self.buttons.keys() - {entry.device for entry in entries}:
            button = self.buttons.pop(gone)
            button.hide()  # at once: it is deleted only when the event loop comes round
            button.deleteLater()
        for entry in entries:
            if entry.device not in self.buttons:
                button = LegendEntry(self)
                button.setChecked(entry.device not in self._hidden)
                button.toggled.connect(lambda shown, device=entry.device: self._toggle(device, shown))
                self.buttons[entry.device] = button
            self.buttons[entry.device].set_entry(entry)
        self.updateGeometry()
        self._arrange()

    def is_named_in(self, room: int) -> bool:
        """Whether so many pixels have room for all entries, or for enough of them."""
        widths = [self.buttons[entry.device].width_for(with_word=False) + SPACE_PX for entry in self._entries]
        room -= text_width(WORD) if any(entry.simulated for entry in self._entries) else 0
        return sum(widths) - SPACE_PX <= room or sum(widths[:LEAST_ENTRIES]) + MORE_PX <= room

    def tab_stops(self) -> list[QWidget]:
        """The entries from left to right, and the menu of those that have no room."""
        return [*(self.buttons[entry.device] for entry in self._entries), self._more]

    def shows(self, device: str) -> bool:
        """Whether the curve of `device` is to be shown."""
        return device not in self._hidden

    def names(self, *, shown: bool) -> set[str]:
        """The entries whose curves are to be shown, or those that are hidden."""
        return {entry.device for entry in self._entries if self.shows(entry.device) is shown}

    def choices(self, place: QPoint) -> list[MenuLine]:
        """What a context menu offers there, in pixels of the screen: the entry below it alone, all of them."""
        child = self.childAt(self.mapFromGlobal(place))
        lines: list[MenuLine] = [
            (f"Show only {name}", partial(self.show_only, {name}))
            for name, button in self.buttons.items()
            if button is child
        ]
        if self.names(shown=False):
            lines.append(("Show all curves", partial(self.show_only, self.buttons.keys())))
        return lines

    def show_only(self, names: Collection[str]) -> None:
        """Show these of the entries, and hide the others."""
        self.show_and_hide(names, self.buttons.keys() - set(names))

    def show_and_hide(self, shown: Collection[str], hidden: Collection[str]) -> None:
        """Others stay as they are; what has no entry yet is meant too."""
        self._hidden = self._hidden - set(shown) | set(hidden)
        for name, button in self.buttons.items():
            button.blockSignals(True)  # the curves are drawn once, not for each of them
            button.setChecked(self.shows(name))
            button.blockSignals(False)
        self.changed.emit()

    def sizeHint(self) -> QSize:
        width = sum(button.width_for(with_word=True) + SPACE_PX for button in self.buttons.values()) - SPACE_PX
        return QSize(max(width, 0), HEIGHT_PX)

    def minimumSizeHint(self) -> QSize:
        return QSize(MORE_PX if self._entries else 0, HEIGHT_PX)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):  # the theme's colours
            self._arrange()

    def _toggle(self, device: str, shown: bool) -> None:
        (self._hidden.discard if shown else self._hidden.add)(device)
        self.changed.emit()

    def _arrange(self) -> None:
        """Give each entry its place; in a header from the right edge, because its left belongs to the title."""
        room = self.width()
        for with_word in (True, False):
            for button in self.buttons.values():
                button.with_word, button.is_first = with_word, False
            total = sum(self.buttons[entry.device].sizeHint().width() + SPACE_PX for entry in self._entries)
            if total - SPACE_PX <= room:
                break
        is_simulated = any(entry.simulated for entry in self._entries)
        shown, left_over = self._split(room if with_word or not is_simulated else room - text_width(WORD))
        first = next((self.buttons[entry.device] for entry in shown if entry.simulated), None)
        if first is not None:
            first.is_first = not with_word
        widths = [self.buttons[entry.device].sizeHint().width() for entry in shown]
        more_px = self._show_more(left_over)
        taken = sum(widths) + SPACE_PX * max(len(widths) - 1, 0)
        x = 0 if self.from_left else room - more_px - taken
        if left_over and self.from_left:
            self._more.move(min(taken + SPACE_PX, room - self._more.width()) if shown else 0, 0)
        for entry, width in zip(shown, widths, strict=True):
            button = self.buttons[entry.device]
            button.setGeometry(x, 0, width, HEIGHT_PX)
            button.update()
            button.show()
            x += width + SPACE_PX

    def _split(self, room: int) -> tuple[list[LegendLine], list[LegendLine]]:
        """Entries that fit into `room` pixels (idle ones last), and the others; both in the devices' order."""
        widths = {name: button.sizeHint().width() + SPACE_PX for name, button in self.buttons.items()}
        if sum(widths.values()) - SPACE_PX <= room:
            return list(self._entries), []
        room -= MORE_PX
        shown: set[str] = set()
        for entry in sorted(self._entries, key=lambda entry: entry.idle):
            room -= widths[entry.device]
            if room < 0:
                break
            shown.add(entry.device)
        return [e for e in self._entries if e.device in shown], [e for e in self._entries if e.device not in shown]

    def _show_more(self, entries: Sequence[LegendLine]) -> int:
        """Keep these for the menu; returns the pixels that its button takes, the space before it included."""
        self.left_over = tuple(entries)
        for entry in entries:
            self.buttons[entry.device].hide()
        self._more.setVisible(bool(entries))
        if not entries:
            return 0
        self._more.setText(f"+{len(entries)}")
        self._more.setAccessibleName(f"{len(entries)} more devices")
        width = max(self._more.sizeHint().width(), 28)
        self._more.setGeometry(self.width() - width, 0, width, HEIGHT_PX)
        return width + 4

    def _fill_menu(self) -> None:
        self._menu.clear()
        for entry in self.left_over:
            action = QAction(entry.text(), self._menu, checkable=True, checked=self.shows(entry.device))
            action.setData(entry.device)
            action.toggled.connect(self.buttons[entry.device].setChecked)
            self._menu.addAction(action)


class LegendRow(QWidget):
    """The row below the header of a plot, for a legend that has no room in it; there it comes after `subtitle`."""

    def __init__(self, legend: Legend, header: QHBoxLayout, subtitle: QWidget) -> None:
        super().__init__()
        self._legend, self._header, self._subtitle = legend, header, subtitle
        self._row = hbox(margins=(EDGE_PX, 4, EDGE_PX, 0), parent=self)
        self.hide()

    def choose_place(self, room: int) -> None:
        """Put the legend where its entries have room: `room` pixels in the header, or the row."""
        legend, below = self._legend, not self._legend.is_named_in(room)
        if below == legend.from_left:
            return
        legend.from_left = below
        if below:
            self._row.addWidget(legend)
        else:
            self._header.insertWidget(self._header.indexOf(self._subtitle) + 1, legend)
        self.setVisible(below)
        if (plot := self.parentWidget()) is not None:
            put_in_order(plot)
