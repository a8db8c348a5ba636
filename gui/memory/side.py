"""Beside the breakdown: the memory as nvidia-smi, torch and the workspace count it, and before and after a release.
Main thread."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.core.base import bytes_text
from devexplorer.core.session import Device
from devexplorer.core.telemetry.memory_views import memory_views, why_they_differ
from devexplorer.gui.widgets import EDGE_PX, Role, grid, hbox, holder, label, push_button, vbox

FIGURES = ("in use", "reserved", "allocated", "cached", "context")


def figures(device: Device) -> tuple[int | None, ...]:
    """What a release or a restart changes, in the order of `FIGURES`; None where it is not known now."""
    parts, allocator = device.parts, device.allocator
    if allocator is None:
        # A virtual GPU is read by the engine only: without one its last sample is history.
        return (None if device.info.simulated else device.used_bytes, None, None, None, None)
    used = parts.used if device.info.simulated else device.used_bytes
    return (used, allocator.reserved_bytes, allocator.allocated_bytes, parts.cached, parts.context)


class Comparison(NamedTuple):
    """What was done, and the figures of each device from before."""

    what: str
    before: dict[str, tuple[int | None, ...]]


class _Numbers(QWidget):
    """A grid of labels: words at the left, columns of numbers at the right."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._grid = grid(EDGE_PX, 4, self)
        self._grid.setColumnStretch(0, 1)
        self._columns = columns
        self._rows: list[list[QLabel]] = []

    def show_rows(self, rows: list[tuple[str, ...]], tips: list[str]) -> None:
        """Show these texts; labels are kept and get new ones."""
        while len(self._rows) < len(rows):
            made = [label(words="dim" if column == 0 else "") for column in range(self._columns)]
            for column, item in enumerate(made):
                side = Qt.AlignmentFlag.AlignLeft if column == 0 else Qt.AlignmentFlag.AlignRight
                item.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                self._grid.addWidget(item, len(self._rows), column)
            self._rows.append(made)
        for number, labels in enumerate(self._rows):
            for column, item in enumerate(labels):
                item.setVisible(number < len(rows))
                if number < len(rows):
                    item.setText(rows[number][column])
                    item.setToolTip(tips[number])


class MemoryComparison(QWidget):
    """Feed it with `show_device`."""

    def __init__(self) -> None:
        super().__init__()
        self._comparison: Comparison | None = None
        self._device = ""
        self.changed_title = label("", Role.STRONG, wrap=True)
        hide = "Hide the comparison"
        self.hide_button = push_button("✕", self._hide_changes, look="quiet", name=hide, tip=hide)
        self.changed = _Numbers(4)
        self.views_title = label("The same memory, counted by", Role.STRONG)
        self.views = _Numbers(2)
        self.why = label("", words="soft", wrap=True, selectable=True)
        title = hbox((self.changed_title, 1), (self.hide_button, 0, Qt.AlignmentFlag.AlignTop))
        self._changes = holder(vbox(title, self.changed, spacing=6, margins=(0, 0, 0, EDGE_PX)))
        parts = (self._changes, self.views_title, self.views, self.why, None)
        vbox(*parts, spacing=6, margins=(0, 3, EDGE_PX, 8), parent=self)
        self._changes.hide()

    def compare(self, comparison: Comparison) -> None:
        """Show the figures from before beside those of now, until that is hidden."""
        self._comparison = comparison

    @property
    def compares(self) -> bool:
        """Whether there is a comparison of the device that is shown."""
        return self._comparison is not None and self._device in self._comparison.before

    def show_device(self, device: Device) -> None:
        """Show the counts of this device."""
        self._device = device.info.id
        views = memory_views(device.info, device.used_bytes, device.engine_bytes, device.allocator)
        self.views.show_rows([(view.who, bytes_text(view.bytes)) for view in views], [view.question for view in views])
        self.why.setText(why_they_differ(device.info, device.parts, device.used_bytes))
        self._changes.setVisible(self.compares)
        if self._comparison is not None and self.compares:
            self._show_changes(self._comparison, device)

    def _show_changes(self, comparison: Comparison, device: Device) -> None:
        self.changed_title.setText(f"Before and after {comparison.what}")
        rows: list[tuple[str, ...]] = [("", "before", "now", "change")]
        for name, was, now in zip(FIGURES, comparison.before[device.info.id], figures(device), strict=True):
            change = None if was is None or now is None else now - was
            sign = "" if change is None or change <= 0 else "+"
            rows.append((name, bytes_text(was), bytes_text(now), f"{sign}{bytes_text(change)}".replace("-", "−")))
        self.changed.show_rows(rows, [""] * len(rows))

    def _hide_changes(self) -> None:
        self._comparison = None
        self._changes.hide()
