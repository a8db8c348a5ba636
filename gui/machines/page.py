"""The page Machines: a row for each machine of this window, and for those that can be connected again. Main thread;
reads what is known, and asks its `room` for what is to be done."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import count_text
from devexplorer.core.session import State
from devexplorer.core.session.machine import Machine
from devexplorer.gui.machines.room import MachineRoom
from devexplorer.gui.machines.rows import COLUMNS, DEVICES, GIVES_UP, WIDTHS, known_row, order_key, row
from devexplorer.gui.widgets import EDGE_PX, Figures, hbox, label, offer_table, push_button, vbox
from devexplorer.gui.widgets.table import RowsModel, RowsTable, TableRow

ALONE = "Only this machine so far. Connect to a server to see its devices here, and to work on them in this window."


class MachinesPage(QWidget):
    """`set_room` once, then `refresh` as things change."""

    connect_requested = Signal()
    reconnect_requested = Signal(str)
    """One that is not connected."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._room: MachineRoom | None = None
        self._order: tuple[int, bool] | None = None
        """Column, and whether the largest comes first; None: in the order in which they were connected."""
        self.setAccessibleName("Machines")
        self.words = label(words="dim", wrap=True)
        self.show_button = push_button("Show", self._show, look="quiet", tip="Show this machine in the window")
        self.reconnect_button = push_button("Reconnect", self._reconnect, look="quiet")
        self.take_over_button = push_button("Take over", self._take_over, look="quiet")
        self.disconnect_button = push_button("Disconnect", self._disconnect, look="quiet")
        self.forget_button = push_button("Forget", self._forget, look="quiet", tip="Do not offer this machine any more")
        self.connect_button = push_button("Connect…", self.connect_requested, look="quiet")
        self.model = RowsModel(COLUMNS)
        self.table = RowsTable(self.model, "Machines", WIDTHS, stretched=DEVICES, gives_up=GIVES_UP)
        header = self.table.horizontalHeader()
        header.setSectionsClickable(True)
        header.sectionClicked.connect(self._sort_by)
        self._buttons = (
            self.show_button, self.reconnect_button, self.take_over_button, self.disconnect_button, self.forget_button,
            self.connect_button,
        )  # fmt: skip
        head = hbox((self.words, 1), *self._buttons, margins=(EDGE_PX, 4, 6, 0))
        vbox(head, (self.table, 1), spacing=0, parent=self)
        self.table.selectionModel().selectionChanged.connect(self._show_buttons)
        self.table.activated.connect(self._activated)

    def set_room(self, room: MachineRoom) -> None:
        """Show the machines of this window."""
        self._room = room
        room.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show them as they are now."""
        room = self._room
        if room is None:
            return
        rows = [
            row(machine, self._state if machine is room.shown else machine.aside, shown=machine is room.shown)
            for machine in room.machines
        ]
        rows += [known_row(one.host) for one in room.known]
        if self._order is not None:
            column, down = self._order
            rows.sort(key=lambda one: order_key(one.cells[column].text), reverse=down)
        chosen = self.table.selected_key
        self.model.set_rows(rows)
        if chosen is not None and self.table.selected_key != chosen:
            self.table.select_key(chosen)
        more = f", {len(room.known)} to connect again" if room.known else ""
        self.words.setText(ALONE if len(rows) == 1 else f"{count_text(len(room.machines), 'machine')}{more}")
        self._show_buttons()

    def figures(self) -> Figures | None:
        """What the table shows."""
        rows = self.model.rows
        return Figures(tuple(column.title for column in COLUMNS), [_texts(one) for one in rows]) if rows else None

    # --- the chosen one

    def _chosen(self) -> tuple[Machine | None, str]:
        """The machine of the selected row, and its name; empty where none is selected."""
        key = self.table.selected_key
        if self._room is None or not isinstance(key, str):
            return None, ""
        return self._room.find(key), key

    def _show_buttons(self) -> None:
        machine, name = self._chosen()
        link = None if machine is None else machine.link
        shown = self._room is not None and machine is self._room.shown
        self.show_button.setVisible(machine is not None and not shown)
        self.reconnect_button.setVisible(bool(name) and (machine is None or (link is not None and not link.live)))
        self.take_over_button.setVisible(link is not None and link.live and link.watching and shown)
        self.disconnect_button.setVisible(link is not None)
        self.forget_button.setVisible(bool(name) and machine is None)

    def _activated(self, index: QModelIndex) -> None:
        """Double-click or Enter: show it, or connect it again."""
        machine, name = self._chosen()
        if self._room is not None and machine is not None:
            self._room.show(machine)
        elif name:
            self.reconnect_requested.emit(name)

    def _show(self) -> None:
        machine, _ = self._chosen()
        if self._room is not None and machine is not None:
            self._room.show(machine)

    def _reconnect(self) -> None:
        self.reconnect_requested.emit(self._chosen()[1])

    def _take_over(self) -> None:
        if self._room is not None:
            self._room.take_over()

    def _disconnect(self) -> None:
        machine, _ = self._chosen()
        if self._room is not None and machine is not None:
            self._room.leave(machine)

    def _forget(self) -> None:
        if self._room is not None:
            self._room.forget(self._chosen()[1])

    # --- order, and the numbers as a table

    def _sort_by(self, column: int) -> None:
        """The smallest first, then the largest first, then as they were connected."""
        order = {(column, False): (column, True), (column, True): None}
        self._order = order.get(self._order, (column, False)) if self._order is not None else (column, False)
        header = self.table.horizontalHeader()
        header.setSortIndicatorShown(self._order is not None)
        if self._order is not None:
            down = Qt.SortOrder.DescendingOrder if self._order[1] else Qt.SortOrder.AscendingOrder
            header.setSortIndicator(column, down)
        self.refresh()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """What the buttons do with the chosen machine."""
        offer_table(self, event, [(one.text(), one.click) for one in self._buttons if not one.isHidden()])


def _texts(shown: TableRow) -> tuple[str, ...]:
    return tuple(cell.text for cell in shown.cells)
