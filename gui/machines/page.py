"""The Machines page: a row for each machine of this window, and for those that can be connected again. Main thread;
reads what is known, and asks its `room` for what is to be done."""

from __future__ import annotations

from collections import Counter

from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import MISSING, bytes_text, count_text, joined, number_text
from devexplorer.core.machines.window.link import (
    STALE_S,
    age_text,
    alarm_words,
    link_of,
    state_colour,
    state_words,
    why,
)
from devexplorer.core.session import Device, State
from devexplorer.core.session.machine import Machine
from devexplorer.gui.machines.actions import reconnect
from devexplorer.gui.machines.room import MachineRoom
from devexplorer.gui.widgets import (
    EDGE_PX,
    Cell,
    Colour,
    Column,
    Figures,
    RowsTable,
    TableRow,
    hbox,
    label,
    numbers,
    offer_menu,
    push_button,
    vbox,
)

GIB = 1 << 30
COLUMNS = (
    Column("machine"),
    Column("state"),
    Column("devices", "The GPUs; where there is none, the virtual ones, else the CPU. What follows is about them."),
    numbers("util %", "The highest utilization of these devices"),
    numbers("memory GiB", "Used, and all of it, of these devices together"),
    numbers("hottest °C", "The highest temperature of these devices"),
    numbers("readings", "How old the latest readings are"),
    numbers("latency ms", "There and back through the link"),
    numbers("rate kB/s", "Received and sent through the link, compressed"),
    numbers("dropped", "Readings that were left out because the link was too slow"),
)
WIDTHS = (110, 184, 222, 68, 112, 84, 78, 80, 80, 68)
MACHINE, DEVICES = 0, 2
GIVES_UP = (9, 8, 5, 7)


def _device_texts(state: State) -> tuple[str, str, str, str]:
    """Names, load, memory and temperature of the devices that count: usable GPUs, else virtual ones, else other GPUs,
    else the CPU."""
    every = list(state.devices.values())
    real = [one for one in every if one.info.kind != "cpu" and not one.info.simulated]
    usable = [one for one in real if one.info.usable]
    chosen = usable or [one for one in every if one.info.simulated] or real or every
    counts = Counter(one.info.name.removeprefix("NVIDIA ") for one in chosen)
    names = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    if chosen and chosen[0].info.simulated:
        names += ", simulated"
    samples = [one.sample for one in chosen if one.sample is not None]
    used, total = _sum([one.used_bytes for one in chosen]), _sum([one.total_bytes for one in chosen])
    memory = MISSING if used is None or total is None else f"{used / GIB:.1f} / {total / GIB:.1f}"
    load, hottest = _most([one.utilization_percent for one in samples]), _most([one.temperature_c for one in samples])
    return names or MISSING, load, memory, hottest


def _most(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.0f}" if known else MISSING


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def row(machine: Machine, state: State, *, shown: bool) -> TableRow:
    """One machine; `state` is what is known of it."""
    link, (devices, load, memory, hottest) = link_of(machine), _device_texts(state)
    stale = link is not None and (link.state != "connected" or (link.reading_age_s or 0) >= STALE_S)
    alarmed = alarm_words(state)
    colour = "error" if alarmed else state_colour(link)
    tone: Colour | str = "dim" if stale else ""
    rate = None if link is None else (link.received_bytes_s + link.sent_bytes_s) / 1000
    cells = (
        (machine.name, "", _about(machine)),
        (joined(", ", state_words(link), "shown" * shown, alarmed), colour, why(link)),
        (devices, tone, "\n".join(map(_device_line, state.devices.values()))),
        (load, tone, ""),
        (memory, tone, ""),
        (hottest, tone, ""),
        ("now" if link is None else age_text(link.reading_age_s), "warning" if stale else "", ""),
        (MISSING if link is None or link.latency_s is None else number_text(link.latency_s * 1000), "", ""),
        (MISSING if rate is None else f"{rate:.1f}", "", ""),
        (MISSING if link is None else f"{link.dropped:,}", "", ""),
    )
    return TableRow(machine.name, tuple(Cell(text, colour, tip) for text, colour, tip in cells))  # type: ignore[arg-type]


def known_row(host: str) -> TableRow:
    """One that is only remembered."""
    rest = (Cell(MISSING, "dim") for _ in COLUMNS[2:])
    return TableRow(host, (Cell(host, "dim"), Cell("○ Not connected", "dim"), *rest))


def order_key(text: str) -> tuple[bool, float, str]:
    """For sorting by what a cell says: numbers by their size, what is missing last."""
    first = text.split()[0].replace(",", "") if text.split() else ""
    try:
        return False, float(first), ""
    except ValueError:
        return text == MISSING, 0.0, text.lower()


def _about(machine: Machine) -> str:
    link = link_of(machine)
    if link is None:
        return ""
    facts = (link.machine and f"calls itself {link.machine}", link.devexplorer and f"DevExplorer {link.devexplorer}")
    return joined("\n", *facts, link.python and f"engine: {link.python}")


def _device_line(device: Device) -> str:
    sample = device.sample
    load = "" if sample is None or sample.utilization_percent is None else f", {sample.utilization_percent:.0f} %"
    simulated = ", simulated" if device.info.simulated else ""
    return f"{device.info.id}  {device.info.name}{simulated}: {bytes_text(device.used_bytes, 1)}{load}"


ALONE = "Only this machine so far. Connect to a server to see its devices and use them in this window."


class MachinesPage(QWidget):
    """`set_room` once, then `refresh` as things change."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._room: MachineRoom
        self.setAccessibleName("Machines")
        self.words = label(words="dim", wrap=True)
        self.show_button = push_button("Show", self._show, look="quiet", tip="Show this machine in the window")
        self.reconnect_button = push_button("Reconnect", self._reconnect, look="quiet")
        self.take_over_button = push_button("Take over", lambda: self._room.take_over(), look="quiet")
        self.disconnect_button = push_button("Disconnect", self._disconnect, look="quiet")
        self.forget_button = push_button("Forget", self._forget, look="quiet", tip="Do not offer this machine any more")
        self.table = RowsTable(COLUMNS, "Machines", WIDTHS, stretched=DEVICES, gives_up=GIVES_UP, named=(MACHINE,))
        self.table.sort_by_clicks(self.refresh)
        self._buttons = (
            self.show_button, self.reconnect_button, self.take_over_button, self.disconnect_button, self.forget_button,
        )  # fmt: skip
        head = hbox((self.words, 1), *self._buttons, margins=(EDGE_PX, 4, 6, 0))
        vbox(head, (self.table, 1), spacing=0, parent=self)
        self.table.selected.connect(self._show_buttons)
        self.table.activated.connect(lambda _index: self._show())

    def set_room(self, room: MachineRoom) -> None:
        """Show the machines of this window."""
        self._room = room
        room.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show them as they are now."""
        room = self._room
        rows = [
            row(machine, self._state if machine is room.shown else machine.aside, shown=machine is room.shown)
            for machine in room.machines
        ]
        rows += [known_row(one.host) for one in room.known]
        column, down = self.table.show_sorted()
        if column >= 0:  # else in the order in which they were connected
            rows.sort(key=lambda one: order_key(one.cells[column].text), reverse=down)
        chosen = self.table.selected_key
        self.table.set_rows(rows)
        if chosen is not None and self.table.selected_key != chosen:
            self.table.select_key(chosen)
        more = f", {len(room.known)} to connect again" if room.known else ""
        self.words.setText(ALONE if len(rows) == 1 else f"{count_text(len(room.machines), 'machine')}{more}")
        self._show_buttons()

    def figures(self) -> Figures | None:
        """What the table shows."""
        rows = [tuple(cell.text for cell in one.cells) for one in self.table.rows]
        return Figures(tuple(column.title for column in COLUMNS), rows) if rows else None

    # --- the chosen one

    def _chosen(self) -> tuple[Machine | None, str]:
        """The machine of the selected row, and its name; empty where none is selected."""
        key = self.table.selected_key
        return (self._room.find(key), key) if isinstance(key, str) else (None, "")

    def _show_buttons(self) -> None:
        machine, name = self._chosen()
        link = link_of(machine)
        shown = machine is self._room.shown
        self.show_button.setVisible(machine is not None and not shown)
        self.reconnect_button.setVisible(bool(name) and (machine is None or (link is not None and not link.live)))
        self.take_over_button.setVisible(link is not None and link.live and link.watching and shown)
        self.disconnect_button.setVisible(link is not None)
        self.forget_button.setVisible(bool(name) and machine is None)

    def _show(self) -> None:
        """Also a double-click or Enter: show it, or connect it again."""
        machine, name = self._chosen()
        if machine is not None:
            self._room.show(machine)
        elif name:
            self._reconnect()

    def _reconnect(self) -> None:
        reconnect(self._room.context, self._chosen()[1])

    def _disconnect(self) -> None:
        machine, _ = self._chosen()
        if machine is not None:
            self._room.leave(machine)

    def _forget(self) -> None:
        self._room.forget(self._chosen()[1])

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """What the buttons do with the chosen machine."""
        offer_menu(self, event, [(one.text(), one.click) for one in self._buttons if not one.isHidden()])
