"""Everything that is known of one device, in groups. Main thread; only reads the state."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QWidget,
)

from devexplorer.core.session import State
from devexplorer.core.telemetry.device_facts import facts, facts_text
from devexplorer.core.telemetry.fact_rows import Group
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    ElidedLabel,
    EmptyState,
    Role,
    ScrollArea,
    device_colour,
    hbox,
    holder,
    label,
    line_edit,
    push_button,
    stack,
    theme_changed,
    vbox,
)
from devexplorer.gui.widgets.facts_sheet import FactsSheet


class DetailsPanel(QWidget):
    """Shows the device of the last `set_device`, and the first GPU until one is chosen. `refresh` when readings,
    details or devices changed."""

    device_chosen = Signal(object)
    """Id of the device that the empty state's button chose (str): its card should be marked."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._chosen: str | None = None
        self.groups: tuple[Group, ...] = ()
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
        self.empty = EmptyState("", "")
        self.empty.chosen.connect(self._choose_offered)
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        bar = hbox(self.title, (self.name, 1), self.filter, self.copy_button, margins=(EDGE_PX, 6, EDGE_PX, 2))
        self.area = ScrollArea(self.sheet)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._below = stack(self.area, self.nothing)
        self._filled = holder(vbox(bar, (self._below, 1), spacing=2))
        self._stack = stack(self._filled, self.empty)
        vbox(self._stack, parent=self)
        theme_changed.connect(self._name_device)

    @property
    def device(self) -> str | None:
        """Id of the device on show."""
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
            self.area.verticalScrollBar().setValue(0)
            self.refresh()

    def refresh(self) -> None:
        """Take over the latest readings."""
        device = self._state.devices.get(self.device or "")
        self._stack.setCurrentWidget(self.empty if device is None else self._filled)
        if device is None:
            self.groups = ()
            self._offer()
            return
        self._name_device()
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
        nothing = bool(words) and not shown
        if nothing:
            self.nothing.setText(f"No fact about {self.device} holds “{self.filter.text().strip()}”.")
        self._below.setCurrentWidget(self.nothing if nothing else self.area)

    def _offer(self) -> None:
        """The empty state: what is missing, and one device at hand."""
        words = f"{self.device} is no longer available." if self.device is not None else "No device is known yet."
        if self.empty.sentence.text() != words:
            self.empty.sentence.setText(words)
        self.empty.button.setVisible(self._first is not None)
        if self.empty.button.text() != f"Show {self._first}":
            self.empty.button.setText(f"Show {self._first}")

    def _choose_offered(self) -> None:
        chosen = self._first
        self.set_device(chosen)
        self.device_chosen.emit(chosen)

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


def filtered(groups: tuple[Group, ...], words: list[str]) -> tuple[Group, ...]:
    """The rows that contain every word, in group, label or value."""
    if not words:
        return groups
    result = []
    for group in groups:
        kept = tuple(
            row for row in group.rows if all(word in f"{group.title} {row.label} {row.value}".lower() for word in words)
        )
        if kept:
            result.append(Group(group.title, kept))
    return tuple(result)
