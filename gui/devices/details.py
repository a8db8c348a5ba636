"""Everything that is known of one device, in groups. Main thread; only reads the state."""

from __future__ import annotations

import re
from functools import partial

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import (
    QContextMenuEvent,
    QGuiApplication,
    QPainter,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QListWidget,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.core.base import MISSING, joined
from devexplorer.core.session import State
from devexplorer.core.telemetry.device_facts import FactGroup, FactRow, facts, facts_text
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    RIGHT,
    ElidedLabel,
    Role,
    Tone,
    current_theme,
    device_colour,
    draw_text,
    hbox,
    label,
    line_edit,
    popup_menu,
    push_button,
    stack,
    text_width,
    theme_changed,
    vbox,
)

ROW_PX, LEAST_COLUMN_PX = 20, 290
_UNIT = re.compile(r"(.*\d) ([^\d\s]+)")


class FactsSheet(QListWidget):
    """Groups of facts in columns, like the face of an instrument. Rows are walked with the arrow keys; Ctrl+C copies a
    value."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: tuple[FactGroup, ...] = ()
        """What is shown."""
        self.lines: list[FactGroup | FactRow | None] = []
        """The same, as items: the title of each group, its rows; None: an empty line."""
        self.setFlow(QListView.Flow.TopToBottom)
        self.setItemDelegate(_Line(self))
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)

    def set_groups(self, groups: tuple[FactGroup, ...]) -> None:
        """Show `groups`; only the rows that changed are painted again."""
        if groups != self.groups:
            self.groups = groups
            self._fill()

    def _fill(self) -> None:
        """Groups are whole where there is room for all of their columns; empty lines between them go before a group is
        torn. A title is never the last line of a column."""
        before = self.lines
        # Qt leaves room for the scroll bar whether it is shown or not
        bar_px = self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent, None, self.horizontalScrollBar())
        high = max((self.maximumViewportSize().height() - bar_px - 1) // ROW_PX, 2)
        room = self.viewport().width() // self.gridSize().width() * high if self.isWrapping() else 0
        for whole, apart in ((True, True), (True, False), (False, True), (False, False)):
            self.lines = self._flow(high, whole=whole, apart=apart)
            if len(self.lines) <= room:
                break
        else:
            self.lines = self._flow(high, whole=False, apart=True)
        if [line and line[0] for line in before] != [line and line[0] for line in self.lines]:
            self.clear()
            self.addItems([line.title if isinstance(line, FactGroup) else "" for line in self.lines])
        for at, line in enumerate(self.lines):
            item = self.item(at)
            if isinstance(line, FactRow):
                words, why = f"{line.label}: {line.value}", f"Not known: {line.why}" if line.why else ""
                item.setText(line.value)  # what Ctrl+C copies
                item.setData(Qt.ItemDataRole.AccessibleTextRole, words)
                item.setToolTip(joined("\n", words, why, line.meaning))
            elif item.flags():
                item.setFlags(Qt.ItemFlag.NoItemFlags)

    def _flow(self, high: int, *, whole: bool, apart: bool) -> list[FactGroup | FactRow | None]:
        """The lines of all groups in columns of so many lines; `whole`: a group that would be torn begins a column;
        `apart`: with an empty line between groups."""
        lines: list[FactGroup | FactRow | None] = []
        for group in self.groups:
            if apart and lines and len(lines) % high:
                lines.append(None)
            left = -len(lines) % high
            if self.isWrapping() and left and left < (1 + len(group.rows) if whole else 2):
                lines += [None] * left
            lines += [group, *group.rows]
        return lines

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if (item := self.currentItem()) is not None:
            menu = popup_menu(self)
            menu.addAction("Copy value", partial(QGuiApplication.clipboard().setText, item.text()))
            menu.popup(event.globalPos())

    def resizeEvent(self, event: QResizeEvent) -> None:
        columns = max(self.viewport().width() // LEAST_COLUMN_PX, 1)
        self.setWrapping(columns > 1)
        self.setGridSize(QSize(self.viewport().width() // columns, ROW_PX))
        super().resizeEvent(event)
        self._fill()


class _Line(QStyledItemDelegate):
    """The label at the left, the value at the right with its unit dimmed behind it."""

    def __init__(self, sheet: FactsSheet) -> None:
        super().__init__(sheet)
        self._sheet = sheet

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        line = self._sheet.lines[index.row()]
        where = option.rect.adjusted(EDGE_PX, 0, -EDGE_PX, 0)
        painter.save()
        if isinstance(line, FactGroup):
            draw_text(painter, where, line.title, "text", Role.STRONG)
            painter.setPen(current_theme().border)
            painter.drawLine(where.bottomLeft(), where.bottomRight())
        elif line is not None:
            self._paint_row(painter, option, where, line)
        painter.restore()

    def _paint_row(self, painter: QPainter, option: QStyleOptionViewItem, where: QRect, line: FactRow) -> None:
        theme = current_theme()
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(option.rect, theme.selection)
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(theme.focus)
            painter.drawRect(option.rect.adjusted(0, 0, -1, -1))
        match = _UNIT.fullmatch(line.value)
        value, unit = match.groups() if match else (line.value, "")
        taken = draw_text(painter, where, unit, "dim", Role.TEXT, RIGHT) + 4 if unit else 0
        least = min(text_width(line.label, Role.TEXT), where.width() // 2) + EDGE_PX
        tone: Tone = "dim" if line.value == MISSING else "text"
        if line.warning:
            value, tone = f"▲ {value}", "warning"
        # long identifiers differ at their end
        cut = Qt.TextElideMode.ElideRight if " " in line.value else Qt.TextElideMode.ElideMiddle
        taken += draw_text(painter, where.adjusted(least, 0, -taken, 0), value, tone, Role.TEXT, RIGHT, cut)
        draw_text(painter, where.adjusted(0, 0, -taken - EDGE_PX, 0), line.label, "dim", Role.TEXT)


class DetailsPanel(QWidget):
    """Shows the device of the last `set_device`, and the first GPU until one is chosen. `refresh` when readings,
    details or devices changed."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._chosen: str | None = None
        self.groups: tuple[FactGroup, ...] = ()
        """Everything that is known of it, before the filter."""
        self.title = label("", Role.STRONG)
        self.name = ElidedLabel(Role.TEXT, "dim")
        self.filter = line_edit(
            placeholder="filter: clock, ecc, …",
            name="filter details",
            tip="Show rows that contain these words, for example: memory mhz",
            clear=True,
            width_px=200,
        )
        self.filter.textChanged.connect(self._show)
        self.copy_button = push_button(
            "Copy all as text",
            self.copy_text,
            look="quiet",
            tip="All details of this device, with the reasons for missing values",
        )
        self.sheet = FactsSheet()
        self.nothing = label("", words="dim", align=CENTRE)
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        bar = hbox(self.title, (self.name, 1), self.filter, self.copy_button, margins=(EDGE_PX, 6, EDGE_PX, 2))
        self._below = stack(self.sheet, self.nothing)
        vbox(bar, (self._below, 1), spacing=4, parent=self)
        theme_changed.connect(self._name_device)

    @property
    def device(self) -> str | None:
        """Id of the device shown."""
        return self._chosen if self._chosen is not None else self._first

    @property
    def _first(self) -> str | None:
        devices = self._state.devices
        gpus = (name for name, device in devices.items() if device.info.kind != "cpu")
        return next(gpus, next(iter(devices), None))

    def set_device(self, device: str | None) -> None:
        """Show another device; None: none is chosen."""
        if device != self._chosen:
            self._chosen = device
            self.refresh()
            self.sheet.scrollToItem(self.sheet.item(0))

    def refresh(self) -> None:
        """Take over the latest readings."""
        device = self._state.devices.get(self.device or "")
        self._name_device()
        self.groups = ()
        if device is not None:
            self.groups = facts(device.info, device.sample, device.details, self._state.problems)
        self._show()

    def _name_device(self) -> None:
        device = self._state.devices.get(self.device or "")
        if device is None:
            return
        if self.title.text() != device.info.id:
            self.title.setText(device.info.id)
        sheet = f"color: {device_colour(device.colour)}"
        if self.title.styleSheet() != sheet:
            self.title.setStyleSheet(sheet)
        self.name.set_full_text(device.info.name + (", simulated" if device.info.simulated else ""))
        self.sheet.setAccessibleName(f"Everything about {device.info.id}")

    def _show(self) -> None:
        """The groups, or what the filter leaves of them."""
        words = self.filter.text().lower().split()
        shown = filtered(self.groups, words)
        self.sheet.set_groups(shown)
        if self.groups:
            self.nothing.setText(f"No fact about {self.device} holds “{self.filter.text().strip()}”.")
        else:
            self.nothing.setText(f"{self.device} is not available." if self.device else "No device is known yet.")
        self._below.setCurrentWidget(self.sheet if shown else self.nothing)

    def copy_text(self) -> None:
        """Put everything on the clipboard as text."""
        device = self._state.devices.get(self.device or "")
        if device is not None:
            mark = ", simulated" if device.info.simulated else ""
            QGuiApplication.clipboard().setText(
                f"{device.info.id}: {device.info.name}{mark}\n\n{facts_text(self.groups)}\n"
            )

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


def filtered(groups: tuple[FactGroup, ...], words: list[str]) -> tuple[FactGroup, ...]:
    """The rows that contain every word, in group, label or value."""
    if not words:
        return groups
    result = []
    for group in groups:
        kept = tuple(
            row for row in group.rows if all(word in f"{group.title} {row.label} {row.value}".lower() for word in words)
        )
        if kept:
            result.append(FactGroup(group.title, kept))
    return tuple(result)
