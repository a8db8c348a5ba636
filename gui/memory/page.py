"""The memory page: breakdown of a device's memory as a bar and a table, and the counts of nvidia-smi and torch. Main
thread.

After a release or a restart the page shows the figures before and after.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QEvent, QModelIndex, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QComboBox, QLabel, QMenu, QPushButton, QWidget

from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.memory.records import OpenSnapshot, RecordAllocator, ReleaseCache
from devexplorer.core.session import Device
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS, MemoryParts, memory_views, why_they_differ
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.memory.snapshot_files import open_snapshot, save_snapshot
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    PAD_PX,
    UNLIMITED_PX,
    Cell,
    Choice,
    Column,
    Index,
    MemoryBar,
    Padded,
    Role,
    RowsModel,
    RowsTable,
    ScrollArea,
    ShrinkingLabel,
    TableRow,
    Tone,
    current_theme,
    draw_text,
    grid,
    hbox,
    holder,
    label,
    lay_out,
    numbers,
    paint_part,
    push_button,
    text_width,
    vbox,
    why_fixed,
    why_not_live,
)

COLUMNS = (
    Column("part"),
    numbers("size"),
    numbers("bytes", "Exactly: the parts add up to the total."),
    numbers("share", "Of the device's memory."),
    Column("what it is"),
)
WITH_CHILDREN = ("workspace", "other_processes", "unsplit", "used")
MOST_PROCESSES = 30
SWATCH_PX, ARROW_PX, GAP_PX = 12, 8, 8
FIGURES = ("in use", "reserved", "allocated", "cached", "context")
BAR_PX, SIDE_PX, LEAST_PX, LEAST_DEVICE_PX = 20, 400, 120, 130
BESIDE_PX = 1000
"""From this width on the counts are beside the table, else below it."""


class MemoryKey(NamedTuple):
    """What a row is about: a part, or an object or process in it (`child`), or the total (part "")."""

    part: str
    child: str = ""


class Child(NamedTuple):
    """A share of a part."""

    key: str
    name: str
    bytes: int | None
    words: str


def part_rows(device: Device, engine_pid: int | None, opened: Collection[str]) -> list[TableRow]:
    """A row per part, below those in `opened` one per object or process; the total last."""
    parts, total = device.parts, device.total_bytes
    rows = []
    for key, size in _shown(parts, simulated=device.info.simulated):
        rows.append(
            _row(MemoryKey(key), PART_TEXTS[key].title, size, total, _definition(device, key), tip=_tip(key, size))
        )
        if key in opened:
            rows += [
                _row(MemoryKey(key, child.key), child.name, child.bytes, total, child.words)
                for child in children(device, key, engine_pid)
            ]
    rows.append(_row(MemoryKey(""), "total", total, total, ""))
    return rows


def children(device: Device, key: str, engine_pid: int | None) -> list[Child]:
    """The objects or processes of a part, largest first; what they do not account for is one more."""
    parts = device.parts
    if key == "workspace" and device.allocator is not None:
        result = [Child(use.name, use.name, use.bytes, "") for use in device.allocator.objects]
        return _with_rest(result, parts.workspace, "more objects", "only the largest are listed")
    if (
        key not in ("other_processes", "unsplit", "used")
        or device.sample is None
        or not device.sample.processes
        or device.info.kind == "cpu"
    ):
        return []
    others = [use for use in device.sample.processes if use.pid != engine_pid]
    others.sort(key=lambda use: -(use.memory_bytes or 0))
    result = [
        Child(str(use.pid), f"{use.name or 'process'} {use.pid}", use.memory_bytes, use.command or use.user or "")
        for use in others[:MOST_PROCESSES]
    ]
    if not result:
        return []
    return _with_rest(
        result, parts.other_processes, "not attributed to a process", "the list of processes is read every few seconds"
    )


def _with_rest(result: list[Child], whole: int | None, name: str, words: str) -> list[Child]:
    rest = (whole or 0) - sum(child.bytes or 0 for child in result)
    return [*result, Child("…", name, rest, words)] if result and rest > 0 else result


def _shown(parts: MemoryParts, *, simulated: bool) -> list[tuple[str, int | None]]:
    """Parts and their bytes: also those that are 0 or not known, as far as they could be anything here."""
    if parts.workspace is None:
        result: list[tuple[str, int | None]] = [("used", parts.other_processes)]
    else:
        result = [(key, getattr(parts, key)) for key in ("workspace", "other_allocated", "cached")]
        if parts.context is None and not simulated:
            result.append(("unsplit", parts.other_processes))
        else:
            result += [("context", parts.context), ("other_processes", parts.other_processes)]
    if parts.driver is not None:
        result.append(("driver", parts.driver))
    return [*result, ("free", parts.free)]


def _definition(device: Device, key: str) -> str:
    text = PART_TEXTS[key].definition
    allocator = device.allocator
    if key == "cached" and allocator is not None and allocator.largest_free_block_bytes is not None:
        where = "" if allocator.segments is None else f", {count_text(allocator.segments, 'segment')}"
        text = f"largest free block {bytes_text(allocator.largest_free_block_bytes)}{where}"
    if device.info.simulated and key == "context":
        text = "assumed for virtual GPUs, from the first tensor on"
    if device.info.simulated and key == "other_processes":
        text = "a virtual GPU has no other processes"
    return text


def _tip(key: str, size: int | None) -> str:
    part = PART_TEXTS[key]
    exact = "" if size is None else f"\n{size:,} bytes"
    return f"{part.title}: {part.definition}.{exact}" + (f"\n{part.remedy}" if part.remedy else "")


def _row(key: MemoryKey, title: str, size: int | None, total: int | None, words: str, tip: str = "") -> TableRow:
    if size is None or not total:
        share = MISSING
    elif 0 < size < total / 2000:
        share = "< 0.1 %"
    else:
        share = f"{100 * size / total:.1f} %"
    why = "" if size is not None else "not known here"
    return TableRow(
        key,
        (
            Cell(title, tip=tip or title),
            Cell(bytes_text(size), tip=why or tip),
            Cell(MISSING if size is None else f"{size:,}", "dim", tip=why or tip),
            Cell(share, "dim", tip=tip),
            Cell(words, "dim", tip=words),
        ),
    )


class PartDelegate(Padded):
    """Paints the first column: an arrow where there is more, the part's look as in the bar, its name."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__()
        self._model = model
        self.openable: frozenset[str] = frozenset()
        self.opened: frozenset[str] = frozenset()
        self.device = CPU

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        key = self._model.rows[index.row()].key
        assert isinstance(key, MemoryKey)
        where = QRectF(cell)
        x, middle = where.left() + PAD_PX, where.center().y()
        if not key.child and key.part in self.openable:
            arrow = "▾" if key.part in self.opened else "▸"
            draw_text(painter, QRectF(x, where.top(), ARROW_PX, where.height()), arrow, "dim", Role.TEXT)
        x += ARROW_PX + GAP_PX
        if key.part and not key.child:
            swatch = QRectF(x, middle - SWATCH_PX / 2, SWATCH_PX, SWATCH_PX)
            paint_part(painter, key.part, swatch, self.device)
            painter.setPen(current_theme().border_strong)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(swatch.adjusted(0.5, 0.5, -0.5, -0.5))
        x += SWATCH_PX + GAP_PX
        room = QRectF(x, where.top(), where.right() - x - PAD_PX, where.height())
        tone: Tone = "soft" if key.child else "text"
        role = Role.TEXT if key.part else Role.STRONG
        draw_text(painter, room, index.data(), tone, role, cut=Qt.TextElideMode.ElideMiddle)
        return True


class PartsTable(RowsTable):
    """`toggled` asks to open or close a part: by a click on its row, Right and Left, Enter and Space."""

    toggled = Signal(str)

    def __init__(self) -> None:
        super().__init__(COLUMNS, "Parts of the memory", [230, 92, 128, 68, 300], gives_up=(2, 4))
        self.delegate = PartDelegate(self.rows_model)
        self.setItemDelegateForColumn(0, self.delegate)
        self.clicked.connect(self._clicked)

    def key_at(self, row: int) -> MemoryKey:
        """What a row is about."""
        key = self.rows_model.rows[row].key
        assert isinstance(key, MemoryKey)
        return key

    def select_part(self, part: str) -> None:
        """Select the row of a part."""
        self.select_key(MemoryKey(part))

    def _clicked(self, index: QModelIndex) -> None:
        self._toggle(self.key_at(index.row()))

    def _toggle(self, key: MemoryKey) -> None:
        if not key.child and key.part in self.delegate.openable:
            self.toggled.emit(key.part)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row = self.currentIndex().row()
        if row >= 0:
            key = self.key_at(row)
            is_open = key.part in self.delegate.opened
            wanted = {Qt.Key.Key_Right: not is_open, Qt.Key.Key_Left: is_open}
            press = Qt.Key(event.key())
            if press in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) or wanted.get(press, False):
                self._toggle(MemoryKey(key.part))
                return
        super().keyPressEvent(event)


def figures(device: Device) -> tuple[int | None, ...]:
    """What a release or a restart changes, in the order of `FIGURES`; None where it is not known now."""
    parts, allocator = device.parts, device.allocator
    if allocator is None:
        # A virtual GPU is read by the engine only: without one its last sample is history.
        return (None if device.info.simulated else device.used_bytes, None, None, None, None)
    used = parts.used if device.info.simulated else device.used_bytes
    return (used, allocator.reserved_bytes, allocator.allocated_bytes, parts.cached, parts.context)


class MemoryBefore(NamedTuple):
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
        self._comparison: MemoryBefore | None = None
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
        views = vbox(self.views_title, self.views, None, spacing=6)
        self._counted = hbox((views, 1), (self.why, 1, Qt.AlignmentFlag.AlignTop), spacing=6)
        vbox(self._changes, self._counted, None, spacing=6, margins=(EDGE_PX, 3, EDGE_PX, 8), parent=self)
        self._changes.hide()

    def place_reason(self, *, beside: bool) -> None:
        """Have why they differ beside the counts, or below them."""
        lay_out(self._counted, beside=beside)
        self._counted.setSpacing(2 * EDGE_PX if beside else 6)

    def compare(self, comparison: MemoryBefore) -> None:
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

    def _show_changes(self, comparison: MemoryBefore, device: Device) -> None:
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


class _AsHighAsItsTexts(ScrollArea):
    """Asks for the height of its content in the width of the page; what else there is, is for the table above."""

    def sizeHint(self) -> QSize:
        page = self.parentWidget()
        width = page.width() if page is not None else self.width()
        high = max(self.content.heightForWidth(width), self.content.minimumSizeHint().height())
        return QSize(super().sizeHint().width(), high + 2 * self.frameWidth())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest and watched is self.content:
            self.updateGeometry()
        return super().eventFilter(watched, event)


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
        self._slack = QWidget()
        self.of = ShrinkingLabel(words="dim")
        self.bar = BreakdownBar(CPU)
        self.table = PartsTable()
        self.side = MemoryComparison()
        self.release = push_button("Release cache", self._ask_release)
        self.restart = push_button("Restart engine", self._ask_restart)
        self.record = push_button("Record stacks", self._record)
        self.record.setCheckable(True)
        self.snapshot = QPushButton("Snapshot ▾")
        menu = QMenu(self.snapshot, toolTipsVisible=True)
        self.snapshot.setMenu(menu)
        self.browse = menu.addAction(
            "Browse segments and blocks", lambda: self._controller.send(OpenSnapshot(device=self.device_id))
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
        used = hbox(self.number, self.of, self._slack, (self.bar, 1))
        self._counts = _AsHighAsItsTexts(self.side)
        self._counts.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        head = vbox(top, used, margins=(EDGE_PX, 8, EDGE_PX, 8))
        self._both = hbox((self.table, 1), self._counts, spacing=2 * EDGE_PX)
        vbox(head, (self._both, 1), spacing=0, parent=self)
        self.setMinimumHeight(LEAST_PX)
        self.table.setMinimumHeight(0)
        # what is cut off is in the tooltips
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        beside = self.width() >= BESIDE_PX
        lay_out(self._both, beside=beside)
        self._both.setSpacing(2 * EDGE_PX if beside else EDGE_PX)
        self._counts.setMinimumWidth(SIDE_PX if beside else 0)
        self._counts.setMaximumWidth(SIDE_PX if beside else UNLIMITED_PX)
        self.side.place_reason(beside=not beside)
        self._counts.updateGeometry()

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
            self.table.set_rows([])
            return
        parts = device.parts
        used = parts.used if parts.workspace is not None else device.used_bytes
        self.number.setText(bytes_text(used))
        widest = text_width("000.00 MiB", Role.NUMBER)
        self._slack.setFixedWidth(max(widest - self.number.sizeHint().width(), 0))  # the bar stays where it is
        total = f"of {bytes_text(device.total_bytes)} in use" if device.total_bytes is not None else "in use"
        if device.info.simulated:
            total += ", simulated"
        elif device.info.memory_shared:
            total += ", shared with the system"
        self.of.say(total)
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
        self.table.set_rows(part_rows(device, pid, self._opened))
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
            words = [f"{info.name}{', simulated' if info.simulated else ''}" for info in infos]
            texts = [f"{info.id}   {info.name.removeprefix('NVIDIA ')}" for info in infos]
            self.chooser.offer(zip(ids, texts, words, strict=True))
            first = next((info.id for info in infos if info.kind != "cpu" and info.usable), None)
            self.chooser.choose(chosen if self._picked and chosen in ids else first)

    def _enable(self, device: Device | None) -> None:
        ready = why_not_live(self._state)
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
                why_fixed(self._state) or None,
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
        self._controller.send(ReleaseCache(device=self.device_id))

    def _record(self, on: bool) -> None:
        self._controller.send(RecordAllocator(on=on))

    def _ask_restart(self) -> None:
        self._compare("restarting the engine", list(self._state.devices))
        self._context.restart_requested.emit()

    def _compare(self, what: str, devices: list[str]) -> None:
        before = {name: figures(self._state.devices[name]) for name in devices if name in self._state.devices}
        self.side.compare(MemoryBefore(what, before))
        self.refresh()
