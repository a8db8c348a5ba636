"""The memory page: breakdown of a device's memory as a bar and a table, and the counts of nvidia-smi and torch. Main
thread.

After a release or a restart the page shows the figures before and after.
"""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QComboBox, QMenu, QPushButton, QWidget

from devexplorer.core.base import bytes_text
from devexplorer.core.session import Device
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.memory.rows import WITH_CHILDREN, children, part_rows
from devexplorer.gui.memory.side import Comparison, MemoryComparison, figures
from devexplorer.gui.memory.snapshot_files import open_snapshot, save_snapshot
from devexplorer.gui.memory.table import PartsTable
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    MemoryBar,
    Role,
    ScrollArea,
    ShrinkingLabel,
    current_theme,
    hbox,
    label,
    push_button,
    text_width,
    vbox,
)
from devexplorer.gui.widgets.form_fields import Choice

BAR_PX, SIDE_PX, LEAST_PX, LEAST_DEVICE_PX = 20, 400, 120, 130
NO_ENGINE = "The engine is not ready yet."


class BreakdownBar(MemoryBar):
    """The large bar; a simulated device has a dashed outline. `part_clicked` carries a key of `PARTS`."""

    part_clicked = Signal(str)
    simulated = False

    def sizeHint(self) -> QSize:
        return QSize(400, BAR_PX)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, BAR_PX)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        here = self.part_at(event.position().x())
        if here is not None:
            self.part_clicked.emit(here.key)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.simulated:
            painter = QPainter(self)
            pen = QPen(current_theme().simulated)
            pen.setDashPattern([4, 3])
            painter.setPen(pen)
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
            painter.end()


class MemoryPanel(QWidget):
    """One device at a time. Feed it with `refresh`."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__()
        self._context, self._controller = context, context.controller
        self._state = context.state
        self._opened: set[str] = {"workspace"}
        self._picked = False
        self._ids: list[str] = []
        """Of the devices to choose from."""
        self.chooser = Choice("Device")
        self.chooser.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.chooser.setMinimumWidth(LEAST_DEVICE_PX)  # a long name never pushes the buttons out of the page
        self.number = label("", Role.NUMBER)
        self.number.setMinimumWidth(text_width("000.00 MiB", Role.NUMBER))  # the bar stays where it is
        self.of = ShrinkingLabel(words="dim")
        self.bar = BreakdownBar(CPU)
        self.table = PartsTable()
        self.side = MemoryComparison()
        self.release = push_button("Release cache", self._ask_release)
        self.restart = push_button("Restart engine", self._ask_restart)
        self.record = push_button("Record stacks", self._controller.record_allocator)
        self.record.setCheckable(True)
        self.snapshot = QPushButton("Snapshot ▾")
        menu = QMenu(self.snapshot, toolTipsVisible=True)
        self.snapshot.setMenu(menu)
        self.browse = menu.addAction(
            "Browse segments and blocks", lambda: self._controller.open_snapshot(self.device_id)
        )
        self.save = menu.addAction("Save to a file…", lambda: save_snapshot(context, self.device_id))
        self.open = menu.addAction("Open a file…", partial(open_snapshot, context))
        self._lay_out()
        self.chooser.activated.connect(self._chosen)
        self.table.toggled.connect(self._toggle)
        self.bar.part_clicked.connect(self.table.select_part)
        self.refresh()

    def _lay_out(self) -> None:
        buttons = (self.release, self.restart, self.record, self.snapshot)
        top = hbox(self.chooser, None, *buttons)
        used = hbox(self.number, self.of, (self.bar, 1))
        scroll = ScrollArea(self.side)
        scroll.setFixedWidth(SIDE_PX)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        head = vbox(top, used, margins=(EDGE_PX, 8, EDGE_PX, 8))
        vbox(head, (hbox((self.table, 1), scroll, spacing=2 * EDGE_PX), 1), spacing=0, parent=self)
        self.setMinimumHeight(LEAST_PX)
        self.table.setMinimumHeight(0)
        # what is cut off is in the tooltips
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    # --- what is shown

    @property
    def device_id(self) -> str:
        """The device that is shown; "" while there is none."""
        return self.chooser.value or ""

    def show_device(self, device: str) -> None:
        """Show this device, if it is there; the panel stays with it."""
        if device in self._ids:
            self._picked = True
            self.chooser.choose(device)
            self.refresh()

    def refresh(self) -> None:
        """Show the latest readings."""
        self._list_devices()
        device = self._state.devices.get(self.device_id)
        self._enable(device)
        if device is None:
            self.table.rows_model.set_rows([])
            return
        parts = device.parts
        used = parts.used if parts.workspace is not None else device.used_bytes
        self.number.setText(bytes_text(used))
        total = f"of {bytes_text(device.total_bytes)} in use" if device.total_bytes is not None else "in use"
        simulated, shared = device.info.simulated, device.info.memory_shared
        kind = ", simulated" if simulated else ", shared with the system" if shared else ""
        self.of.say(total + kind)
        self.bar.simulated = device.info.simulated
        self.bar.set_device(device.colour)
        self.bar.set_reading(parts, device.total_bytes)
        self._show_rows(device)
        self.side.show_device(device)

    def _show_rows(self, device: Device) -> None:
        pid = self._state.engine.pid if self._state.engine is not None else None
        delegate = self.table.delegate
        delegate.device = device.colour
        delegate.openable = frozenset(key for key in WITH_CHILDREN if children(device, key, pid))
        delegate.opened = frozenset(self._opened)
        self.table.rows_model.set_rows(part_rows(device, pid, self._opened))
        self.table.viewport().update()

    def _list_devices(self) -> None:
        infos = [
            device.info
            for device in self._state.devices.values()
            if device.total_bytes is not None or device.info.usable
        ]
        ids = [info.id for info in infos]
        if ids != self._ids:
            chosen, self._ids = self.device_id, ids
            self.chooser.offer(
                (info.id, f"{info.id}   {info.name}{'   simulated' if info.simulated else ''}", "") for info in infos
            )
            first = next((info.id for info in infos if info.kind != "cpu" and info.usable), None)
            self.chooser.choose(chosen if self._picked and chosen in ids else first)

    def _enable(self, device: Device | None) -> None:
        ready = None if self._state.engine is not None else NO_ENGINE
        allocator = device.allocator if device is not None else None
        listed = device is not None and device.info.kind in ("cuda", "virtual")
        no_allocator = ready or (None if allocator is not None else "This engine has no memory on this device.")
        no_blocks = no_allocator or (
            None if listed else "torch can list the blocks of its allocator for CUDA devices only."
        )
        nothing = (
            None
            if allocator is None or allocator.reserved_bytes > allocator.allocated_bytes
            else "Nothing is cached there now."
        )
        cards = any(item.info.usable and item.info.kind in ("cuda", "virtual") for item in self._state.devices.values())
        no_recording = ready or (
            None if cards else "Only allocators of CUDA devices and virtual GPUs can record; there are none here."
        )
        for button, reason, tip in (
            (self.release, no_allocator or nothing, "Return unused segments to the device."),
            (
                self.restart,
                None,
                "Restart the engine, which frees all its memory, and rebuild the workspace.",
            ),
            (self.record, no_recording, "Record which line of code requests each block."),
            (self.browse, no_blocks, "Show the segments and blocks of this device's allocator as they are now."),
            (self.save, no_blocks, "Write them to a file in PyTorch's own format."),
            (self.open, ready, "Read a file that PyTorch or this window has written."),
        ):
            button.setEnabled(reason is None)
            button.setToolTip(reason or tip)
        if ready is not None and self.record.isChecked():
            self.record.setChecked(False)  # a new engine records only when asked again

    # --- what is done

    def _chosen(self) -> None:
        self._picked = True
        self.refresh()

    def _toggle(self, part: str) -> None:
        self._opened ^= {part}
        self.refresh()

    def _ask_release(self) -> None:
        self._compare(f"releasing the cache of {self.device_id}", [self.device_id])
        self._controller.release_cache(self.device_id)

    def _ask_restart(self) -> None:
        self._compare("restarting the engine", list(self._state.devices))
        self._context.restart_requested.emit()

    def _compare(self, what: str, devices: list[str]) -> None:
        before = {name: figures(self._state.devices[name]) for name in devices if name in self._state.devices}
        self.side.compare(Comparison(what, before))
        self.refresh()
