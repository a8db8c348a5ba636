"""The plots of the layout Monitor: any quantities one below the other, with one time axis. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSplitter, QWidget

from devexplorer.core.session import State
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import ScrollArea, after_paint, hbox, push_button, put_in_order, vbox

FIRST = ("utilization_percent", "power_w", "temperature_c", "memory_used_bytes")
"""What the plots show at first: those that a device reports."""
LEAST, MOST = 1, 6
"""How many plots there can be."""
LEAST_PX = 280
"""Width in which a plot's key has the names of three devices."""
NEXT = ("memory_used_bytes", "utilization_percent", "power_w", "temperature_c", "sm_clock_mhz", "pcie_rx_bytes_s")
"""What a plot that is added shows: the first of these that none shows yet."""


class PlotStack(QWidget):
    """`refresh` like `PlotSlot`; each plot's title is the menu that chooses its quantity."""

    choices_changed = Signal(object)
    """What the plots show, from above (tuple of str)."""

    def __init__(self, state: State, axis: TimeAxis, choices: Sequence[str]) -> None:
        """Without `choices` it shows the usual ones, as soon as a device reports them, until the user chooses."""
        super().__init__()
        self._state, self._axis = state, axis
        self._is_usual = not choices
        self.slots: list[PlotSlot] = []
        """From above."""
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setHandleWidth(8)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setMinimumWidth(LEAST_PX)
        self.add_button = push_button("+ plot", self.add, look="quiet", tip="One more plot below the others")
        self.remove_button = push_button("− plot", self.remove, look="quiet", tip="Take the lowest plot away")
        vbox(
            (ScrollArea(self._splitter, "Plots"), 1),
            hbox(None, self.remove_button, self.add_button),
            spacing=2,
            parent=self,
        )
        first, *others = choices[:MOST] or self._usual() or NEXT[:LEAST]
        self._append(first)
        self._follow()
        self._coming: list[str] = others
        """What the plots below will show. They are made one after the other: each takes as long as all else here."""
        after_paint(self, self._make_next)

    @property
    def choices(self) -> tuple[str, ...]:
        """What the plots show, from above."""
        return (*(slot.choice for slot in self.slots), *self._coming)

    def add(self) -> None:
        """One more plot below the others."""
        self._make_all()
        self._append(next((choice for choice in NEXT if choice not in self.choices), NEXT[0]))
        self._changed()

    def remove(self) -> None:
        """Take the lowest plot away."""
        self._make_all()
        slot = self.slots.pop()
        slot.hide()
        slot.deleteLater()
        self._changed()

    def show_choices(self, choices: Sequence[str]) -> None:
        """Show these, from above; none: what is shown stays."""
        self._is_usual = self._is_usual and not choices
        self._make_all()
        for slot, choice in zip(self.slots, choices, strict=False):
            slot.set_choice(choice)
        for choice in choices[len(self.slots) : MOST]:
            self._append(choice)
        while choices and len(self.slots) > len(choices):
            self.remove()
        self._follow()

    def refresh(self, now_unix_s: float) -> None:
        """Draw what changed; up to 30 times a second."""
        if self._is_usual:
            self._show_usual()
        for slot in self.slots:
            slot.refresh(now_unix_s)

    def _make_next(self) -> None:
        if self._coming:
            self._append(self._coming.pop(0))
            self._follow()
            after_paint(self, self._make_next)

    def _make_all(self) -> None:
        while self._coming:
            self._append(self._coming.pop(0))

    def _append(self, choice: str) -> None:
        slot = PlotSlot(self._state, self._axis, choice, time_control=not self.slots)
        slot.choice_changed.connect(self._changed)
        slot.in_menu.append(("The same curves in every plot", lambda: self._share(slot)))
        self.slots.append(slot)
        self._splitter.addWidget(slot)

    def _share(self, source: PlotSlot) -> None:
        """Hide in the others what is hidden in one, and show what it shows; what it has no curve of stays."""
        legend = source.plot.legend
        shown, hidden = legend.names(shown=True), legend.names(shown=False)
        for slot in self.slots:
            slot.plot.legend.show_and_hide(shown, hidden)

    def _usual(self) -> tuple[str, ...]:
        histories = [device.history for device in self._state.devices.values()]
        return tuple(metric for metric in FIRST if any(history.has(metric) for history in histories))

    def _show_usual(self) -> None:
        if (usual := self._usual()) and usual != self.choices:
            self.blockSignals(True)  # nobody chose them
            self.show_choices(usual)
            self.blockSignals(False)
            self._is_usual = True

    def _changed(self) -> None:
        self._is_usual = False
        self._follow()
        self.choices_changed.emit(self.choices)

    def _follow(self) -> None:
        put_in_order(self)
        self.add_button.setEnabled(len(self.slots) < MOST)
        self.remove_button.setEnabled(len(self.slots) > LEAST)
