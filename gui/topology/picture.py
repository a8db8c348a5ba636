"""The picture of how devices are joined, painted from `layout`, with tooltips. Main thread."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPainterPathStroker,
    QPen,
    QResizeEvent,
)

from devexplorer.core.session import Device
from devexplorer.core.telemetry.topology_text import Pairs, pair_text
from devexplorer.gui.topology.layout import Layout, Socket, Wire, arrange
from devexplorer.gui.widgets import (
    CENTRE,
    Picture,
    Role,
    current_theme,
    device_colour,
    device_dash,
    draw_text,
    text_width,
)

RADIUS_PX, EDGE_PX, REACH_PX = 5, 3, 8
"""Corners; the edge in the device's colour; how near to a line the pointer has to be."""
ROOM_FOR_NAME_PX, LABEL_PX = 84, 14


class TopologyPicture(Picture):
    """Shows what `set_topology` was given. As small as its devices allow; a scroll area round it shows the rest."""

    def __init__(self) -> None:
        super().__init__("How the devices are connected")
        self._devices: dict[str, Device] = {}
        self._pairs = Pairs(())
        self.marked: frozenset[str] = frozenset()
        """What is emphasised."""
        self.layout_now = Layout()
        """Where everything is."""

    def set_topology(self, devices: Mapping[str, Device], pairs: Pairs) -> None:
        """Draw these devices, in their order."""
        self._devices, self._pairs = dict(devices), pairs
        self._arrange()
        self.setAccessibleDescription(self._in_words())
        self.update()

    def mark(self, *devices: str) -> None:
        """Emphasise these devices and the line that joins exactly them; none: nothing."""
        if frozenset(devices) != self.marked:
            self.marked = frozenset(devices)
            self.update()

    def _arrange(self) -> None:
        simulated = [name for name, device in self._devices.items() if device.info.simulated]
        narrowest = max((text_width(name, Role.STRONG) for name in self._devices), default=0) + 2 * EDGE_PX + 8
        self.layout_now = arrange(list(self._devices), self._pairs, simulated, self.width(), self.height(), narrowest)
        least = arrange(list(self._devices), self._pairs, simulated, 0, 0, narrowest)
        wanted = QSize(round(least.width + 0.5), round(least.height + 0.5))
        if wanted != self.minimumSize():
            self.setMinimumSize(wanted)

    def _in_words(self) -> str:
        places = (f"{socket.title} {socket.words}".strip() for socket in self.layout_now.sockets)
        lines = (wire.label + ": " + ", ".join(wire.devices) for wire in self.layout_now.wires if wire.label)
        return ". ".join([*places, *lines])

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()

    # painting

    def draw(self, painter: QPainter) -> None:
        for wire in self.layout_now.wires:
            self._paint_wire(painter, wire)
        for wire in self.layout_now.wires:  # above all lines, or a later one would cross it out
            if wire.label and wire.label_at is not None:
                self._paint_label(painter, wire, wire.label_at)
        for socket in self.layout_now.sockets:
            self._paint_socket(painter, socket)
        for box, group in self.layout_now.switches:
            self._paint_switch(painter, box, bool(self.marked) and self.marked <= set(group))
        for name, box in self.layout_now.devices.items():
            self._paint_device(painter, self._devices[name], box)

    def _paint_wire(self, painter: QPainter, wire: Wire) -> None:
        theme = current_theme()
        marked = wire.kind == "pcie" and len(wire.devices) == 1 and wire.devices[0] in self.marked
        self._stroke(
            painter, wire, wire.path, theme.text if marked else theme.dim if wire.kind == "nvlink" else theme.bar_other
        )
        if wire.kind == "nvlink" and len(self.marked) == 2 and self.marked <= set(wire.devices):
            a, b = sorted(self.marked)
            self._stroke(painter, wire, wire.between(a, b, self.layout_now.devices[a].bottom()), theme.text, more=1.5)

    def _stroke(self, painter: QPainter, wire: Wire, path: QPainterPath, colour: str, more: float = 0.0) -> None:
        pen = QPen(QColor(colour), wire.width + more)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        if wire.simulated:
            pen.setDashPattern([2 + 4 / pen.widthF(), 1 + 2 / pen.widthF()])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(path)

    def _paint_label(self, painter: QPainter, wire: Wire, at: QPointF) -> None:
        """Words at a line, on a patch of the background; those of a bar where it is in sight."""
        middle = self._in_sight(wire.path.boundingRect()).center().x() if wire.legs else at.x()
        width = text_width(wire.label) + 12
        box = QRectF(middle - width / 2, at.y() - LABEL_PX / 2, width, LABEL_PX)
        painter.fillRect(box, current_theme().panel)
        draw_text(painter, box, wire.label, "text", align=CENTRE)

    def _paint_socket(self, painter: QPainter, socket: Socket) -> None:
        theme, box = current_theme(), _crisp(socket.box)
        pen = QPen(theme.simulated if socket.simulated else theme.border_strong)
        if socket.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(theme.button)
        painter.drawRoundedRect(box, RADIUS_PX, RADIUS_PX)
        upper, lower = _halves(self._in_sight(box.adjusted(8, 3, -8, -3)))
        draw_text(painter, upper if socket.words else box, socket.title, "text", Role.TEXT, CENTRE)
        draw_text(painter, lower, socket.words, "dim", align=CENTRE)

    def _in_sight(self, box: QRectF) -> QRectF:
        """What can be seen of a box when the picture is scrolled: its text is there."""
        seen = box.intersected(QRectF(self.visibleRegion().boundingRect()))
        return seen if seen.width() > ROOM_FOR_NAME_PX else box

    def _paint_switch(self, painter: QPainter, box: QRectF, marked: bool) -> None:
        theme = current_theme()
        painter.setPen(theme.text if marked else theme.border_strong)
        painter.setBrush(theme.card)
        painter.drawRoundedRect(_crisp(box), 3, 3)
        name = "PCIe switch" if box.width() > ROOM_FOR_NAME_PX else "switch"
        draw_text(painter, box, name, "dim", align=CENTRE)

    def _paint_device(self, painter: QPainter, device: Device, box: QRectF) -> None:
        theme, info = current_theme(), device.info
        outline = _crisp(box)
        colour = QColor(device_colour(device.colour))
        shape = QPainterPath()
        shape.addRoundedRect(outline, RADIUS_PX, RADIUS_PX)
        painter.fillPath(shape, QColor(theme.card))
        painter.save()
        painter.setClipPath(shape)
        stripe = QPen(colour, 2 * EDGE_PX)
        stripe.setCapStyle(Qt.PenCapStyle.FlatCap)
        dash = device_dash(device.colour)
        if dash:
            stripe.setDashPattern([part / (2 * EDGE_PX) for part in dash])
        painter.setPen(stripe)
        painter.drawLine(outline.topLeft(), outline.bottomLeft())
        painter.restore()
        pen = QPen(
            colour if info.id in self.marked else QColor(theme.border_strong), 2 if info.id in self.marked else 1
        )
        if info.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(shape)
        inner = box.adjusted(EDGE_PX + 4, 3, -5, -3)
        if box.width() < ROOM_FOR_NAME_PX:
            draw_text(painter, inner, info.id, colour, Role.STRONG, CENTRE)
            return
        upper, lower = _halves(inner)
        draw_text(painter, upper, info.id, colour, Role.STRONG, CENTRE)
        draw_text(painter, lower, info.name.removeprefix("NVIDIA "), "dim", align=CENTRE)

    # words under the pointer

    def tip_at(self, point: QPointF) -> str:
        """The device, CPU, switch or line at a point."""
        for name, box in self.layout_now.devices.items():
            if box.contains(point):
                return self._device_words(name)
        for socket in self.layout_now.sockets:
            if socket.box.contains(point):
                return f"{socket.title}\n{socket.words}".strip()
        for switch, group in self.layout_now.switches:
            if switch.contains(point):
                return f"PCIe switch: {', '.join(group)}"
        wire = self._wire_at(point)
        return "" if wire is None else self._wire_words(wire)

    def _wire_at(self, point: QPointF, *kinds: str) -> Wire | None:
        """The uppermost line of these kinds at a point."""
        stroker = QPainterPathStroker()
        stroker.setWidth(REACH_PX)
        wires = (wire for wire in reversed(self.layout_now.wires) if not kinds or wire.kind in kinds)
        return next((wire for wire in wires if stroker.createStroke(wire.path).contains(point)), None)

    def _device_words(self, name: str) -> str:
        info = self._devices[name].info
        node = self._pairs.numa_node(name)
        lines = [f"{name}: {info.name}" + (", simulated" if info.simulated else "")]
        lines += [] if node is None else [f"NUMA node {node}"]
        cpus = self._pairs.cpus(name)
        lines += [] if cpus is None else [f"CPUs near: {cpus}"]
        return "\n".join(lines)

    def _wire_words(self, wire: Wire) -> str:
        if wire.kind == "system":
            return "CPU to CPU: the slowest path between two devices (SYS)"
        if wire.kind == "pcie":
            return f"PCIe: {', '.join(wire.devices)}" + (", simulated" if wire.simulated else "")
        first = wire.links[0]
        if len(wire.links) == 1:
            return pair_text(first.a, first.b, first)
        return f"{wire.label}: {', '.join(wire.devices)}\nFor instance {pair_text(first.a, first.b, first)}"

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Click on an NVLink: emphasise its devices; elsewhere: none."""
        wire = self._wire_at(event.position(), "nvlink")
        self.mark(*(wire.devices if wire is not None else ()))


def _halves(box: QRectF) -> tuple[QRectF, QRectF]:
    """The upper and the lower one."""
    half = box.height() / 2
    return box.adjusted(0, 0, 0, -half), box.adjusted(0, half, 0, 0)


def _crisp(box: QRectF) -> QRectF:
    """On pixel centres, so that a line of one pixel is one pixel wide."""
    return QRectF(round(box.left()) + 0.5, round(box.top()) + 0.5, round(box.width()) - 1, round(box.height()) - 1)
