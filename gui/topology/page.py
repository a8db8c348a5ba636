"""How the devices are connected: a picture, and the matrix of every pair. Main thread; only reads the state."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QWidget

from devexplorer.core.base import MISSING, sentence
from devexplorer.core.records import PeerLink
from devexplorer.core.session import Device, State
from devexplorer.core.telemetry.topology_text import SELF, Pairs, code_text, legend, matrix, pair_text
from devexplorer.gui.topology.picture import TopologyPicture
from devexplorer.gui.widgets import (
    EDGE_PX,
    ROW_PX,
    Cell,
    Choice,
    Column,
    EmptyState,
    Role,
    RowsModel,
    RowsTable,
    ScrollArea,
    TableRow,
    hbox,
    holder,
    label,
    numbers,
    push_button,
    splitter,
    stack,
    vbox,
)

SHOWN = {
    "link": "How the two are connected",
    "peer read": "Whether one can read the other's memory directly",
    "peer write": "Whether one can write the other's memory directly",
    "peer atomics": "Whether one can do atomic operations in the other's memory",
}
"""What the cells of the matrix can show, and what that is."""
PAIR_PX, SIMULATED_PX, FIRST_PX, NODE_PX, CPUS_PX = 56, 8, 12, 52, 114
"""Widths of columns; more for the mark of simulated links, and for the edge of the first column."""
AROUND_MATRIX_PX, LOW_ROW_PX = 74, 19
"""Height of the row above the matrix, of the legend below it and of what is between them; rows in a low page."""


class TopologyPanel(QWidget):
    """Reads `state.topologies` and `state.devices`; `refresh` after `Change.DETAILS` and `Change.DEVICES`."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._pairs = Pairs(())
        self._names: list[str] = []
        self._drawn: object = None
        self._split_by_hand = False
        self._affinity_px = NODE_PX + CPUS_PX
        """Width of the columns of NUMA node and CPUs; without a real device there is none."""
        self.picture = TopologyPicture()
        self.area = ScrollArea(self.picture, "Picture of the connections", sideways=True)
        # the words of a CPU's box stay in sight
        self.area.horizontalScrollBar().valueChanged.connect(self.picture.update)
        self.model = _MatrixModel(())
        self.table = RowsTable(self.model, "Every pair of devices", [])
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectItems)
        self.table.selectionModel().currentChanged.connect(self._on_cell)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        names = self.table.verticalHeader()
        names.setHighlightSections(False)
        names.setMinimumSectionSize(LOW_ROW_PX)
        names.show()
        self.table.setCornerButtonEnabled(False)
        self.table.setStyleSheet(
            "QTableCornerButton::section { background: transparent; border: 0; }"
            "QHeaderView::section:vertical { padding: 0 4px 0 12px; border: 0; }"
        )
        self.choice = Choice("what the matrix shows", [(name, name, meaning) for name, meaning in SHOWN.items()])
        self.choice.currentIndexChanged.connect(self._fill_matrix)
        self.copy_button = push_button(
            "Copy as text", self.copy_text, look="quiet", tip="The matrix as nvidia-smi topo -m would print it"
        )
        self.legend = label("", Role.LABEL, "dim", wrap=True)
        self.legend.setAccessibleName("what the codes mean")
        self.empty = EmptyState("", "Add two virtual GPUs")
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        caption = label("every pair by", Role.LABEL, "dim")
        caption.setBuddy(self.choice)
        bar = hbox(caption, self.choice, None, self.copy_button, margins=(EDGE_PX, 6, EDGE_PX, 2))
        self.legend.setContentsMargins(EDGE_PX, 0, EDGE_PX, 2)
        right = holder(vbox(bar, (self.table, 1), self.legend, spacing=4, margins=(0, 0, 0, 4)))
        self.splitter = splitter(self.area, right, stretches=[1, 0])
        self.splitter.splitterMoved.connect(lambda: setattr(self, "_split_by_hand", True))
        self.area.setMinimumWidth(200)
        right.setMinimumWidth(300)
        self._stack = stack(self.splitter, self.empty)
        vbox(self._stack, parent=self)

    @property
    def is_empty(self) -> bool:
        """Whether the empty state is shown."""
        return self._stack.currentWidget() is self.empty

    def refresh(self) -> None:
        """Show the devices and links as they are known now."""
        devices = {name: device for name, device in self._state.devices.items() if _has_place(device)}
        self._pairs = Pairs(self._state.topologies.values())
        known = any(self._pairs.link(a, b) for a in devices for b in devices if a != b)
        self._stack.setCurrentWidget(self.splitter if len(devices) > 1 and known else self.empty)
        if self.is_empty:
            self._explain(list(devices))
            return
        drawn = (tuple((device.info, device.colour) for device in devices.values()), dict(self._state.topologies))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        if list(devices) != self._names:
            self._names = list(devices)
            self.picture.mark()
            self._new_columns(devices)
        self.picture.set_topology(devices, self._pairs)
        self._fill_matrix()
        result = legend(self._state.topologies.values())
        self.legend.setText("     ".join(f"{code}  {text}".replace(" ", "\N{NO-BREAK SPACE}") for code, text in result))

    def _new_columns(self, devices: dict[str, Device]) -> None:
        columns = [Column(name, device.info.name) for name, device in devices.items()]
        columns += [
            numbers("NUMA", "NUMA node near the device"),
            Column("CPUs near", "CPU affinity"),
        ]
        invented = all(device.info.simulated for device in devices.values())  # near no CPU: nothing but dashes
        self._affinity_px = 0 if invented else NODE_PX + CPUS_PX
        self.model.set_columns(columns)
        for number in range(len(devices)):
            self.table.setColumnWidth(number, self._pair_px() + (0 if number else FIRST_PX))
        self.table.setColumnWidth(len(devices), NODE_PX)
        self.table.setColumnWidth(len(devices) + 1, CPUS_PX)
        for number in range(len(columns)):
            self.table.setColumnHidden(number, invented and number >= len(devices))
        self._split()

    def _fill_matrix(self) -> None:
        rows = []
        for a in self._names:
            node, cpus = self._pairs.numa_node(a), self._pairs.cpus(a)
            why = self._why_no_affinity(a)
            cells = [self._cell(a, b) for b in self._names]
            missing = Cell(MISSING, "dim", why)
            cells.append(missing if node is None else Cell(str(node)))
            cells.append(Cell(cpus, tip=cpus) if cpus else missing)
            rows.append(TableRow(a, tuple(cells)))
        self.model.set_rows(rows)

    def _cell(self, a: str, b: str) -> Cell:
        if a == b:
            return Cell(SELF, "dim")
        link = self._pairs.link(a, b)
        which = self.choice.value
        text = code_text(link) if which == "link" else _peer_text(link, which)
        return Cell(text, "dim" if text == MISSING else "", pair_text(a, b, link))

    def _why_no_affinity(self, device: str) -> str:
        result = self._state.devices.get(device)
        if result is None or result.info.simulated:
            return "not modelled for virtual GPUs"
        missing = result.details.missing if result.details is not None else {}
        return missing.get("numa_node") or missing.get("cpus") or "not reported by the driver"

    def _explain(self, names: list[str]) -> None:
        """The empty state: why there is nothing to draw."""
        reason = next((problem.reason for problem in self._state.problems if problem.field == "topology"), None)
        if not names:
            text = "There is no GPU, so there are no links between devices to show."
        elif len(names) == 1:
            text = f"{names[0]} is the only GPU here, so there are no links between devices to show."
            node, cpus = self._pairs.numa_node(names[0]), self._pairs.cpus(names[0])
            text += f" CPUs near it: {cpus}." if cpus else ""
            text += f" NUMA node: {node}." if node is not None else ""
        else:
            text = f"The links between {len(names)} devices are unknown. " + sentence(
                reason or "no source reports them"
            )
        if self.empty.sentence.text() != text:
            self.empty.sentence.setText(text)
        unavailable = self._state.engine.virtual_unavailable if self._state.engine is not None else None
        self.empty.button.setVisible(unavailable is None)
        self.empty.follow(self._state)

    def _on_cell(self, current: QModelIndex, _previous: QModelIndex) -> None:
        """A cell of the matrix: its pair is emphasised in the picture."""
        pair = (current.row(), current.column())
        self.picture.mark(*(self._names[number] for number in pair if 0 <= number < len(self._names)))

    def copy_text(self) -> None:
        """Put the matrix on the clipboard as text."""
        QGuiApplication.clipboard().setText(matrix(list(self._state.topologies.values()), self._names) + "\n")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self._split_by_hand:
            self._split()

    def _split(self) -> None:
        """The matrix gets what it needs, beside the picture or, where both are whole only then, below it; else at most
        three fifths where the picture needs the rest."""
        needed = 100 + len(self._names) * self._pair_px() + self._affinity_px
        picture = self.picture.minimumSize()
        is_beside, row_px, below_px = needed + picture.width() + 20 <= self.width(), ROW_PX, 0
        if not is_beside:
            rows_px = self.height() - picture.height() - AROUND_MATRIX_PX - ROW_PX
            row_px = max(LOW_ROW_PX, min(ROW_PX, rows_px // max(len(self._names), 1)))
            below_px = AROUND_MATRIX_PX + ROW_PX + len(self._names) * row_px
            is_beside = picture.height() + below_px > self.height()
        self.table.verticalHeader().setDefaultSectionSize(ROW_PX if is_beside else row_px)
        self.splitter.setOrientation(Qt.Orientation.Horizontal if is_beside else Qt.Orientation.Vertical)
        if not is_beside:
            picture_px = max(picture.height() + 2 * self.area.frameWidth(), self.height() - below_px - 2 * EDGE_PX)
            self.splitter.setSizes([picture_px, self.height() - picture_px - self.splitter.handleWidth()])
            return
        matrix_px = min(needed, max(self.width() - self.picture.minimumWidth() - 20, self.width() // 2))
        self.splitter.setSizes([max(self.width() - matrix_px - 8, 1), matrix_px])

    def _pair_px(self) -> int:
        # one may have left since `refresh`
        known = [self._state.devices[name] for name in self._names if name in self._state.devices]
        return PAIR_PX + (SIMULATED_PX if any(device.info.simulated for device in known) else 0)


class _MatrixModel(RowsModel):
    """Rows with the device's id at their side, where it stays when the columns are scrolled."""

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Vertical and role == Qt.ItemDataRole.DisplayRole:
            return self._rows[section].key if 0 <= section < len(self._rows) else ""
        return super().headerData(section, orientation, role)


def _has_place(device: Device) -> bool:
    """The CPU is what the others are near to, a MIG instance is where its card is, a hidden virtual GPU is nowhere."""
    info = device.info
    return info.kind != "cpu" and info.parent is None and not (info.simulated and not info.usable)


def _peer_text(link: PeerLink | None, which: str) -> str:
    state = None if link is None else getattr(link, which.replace(" ", "_"))
    if state is None:
        return MISSING
    return "ok" if state == "ok" else "no"
