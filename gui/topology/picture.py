"""The picture of how devices are joined: painted from `topology_layout`, with words under the pointer. Main thread."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QHelpEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPainterPathStroker,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from devexplorer.core.session.state import Device
from devexplorer.core.telemetry.topology_text import Pairs, pair_text
from devexplorer.gui.topology.layout import Layout, Socket, Wire, arrange
from devexplorer.gui.widgets.plain_text import tip
from devexplorer.gui.widgets.theme import Role, Theme, device_colour, device_dash, font

RADIUS_PX, EDGE_PX, REACH_PX = 5, 3, 8
"""Corners; the edge in the device's colour; how near to a line the pointer has to be."""
ROOM_FOR_NAME_PX = 84


class TopologyPicture(QWidget):
    """Shows what `set_topology` was given. As small as its devices allow; a scroll area round it shows the rest."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._devices: dict[str, Device] = {}
        self._pairs = Pairs(())
        self._marked: frozenset[str] = frozenset()
        self.layout_now = Layout()
        """Where everything stands."""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self.update()

    def set_topology(self, devices: Mapping[str, Device], pairs: Pairs) -> None:
        """Draw these devices, in their order."""
        self._devices, self._pairs = dict(devices), pairs
        self._arrange()
        self.setAccessibleDescription(self._in_words())
        self.update()

    def mark(self, *devices: str) -> None:
        """Emphasise these devices and the line that joins exactly them; none: nothing."""
        if frozenset(devices) != self._marked:
            self._marked = frozenset(devices)
            self.update()

    @property
    def marked(self) -> frozenset[str]:
        """What is emphasised."""
        return self._marked

    def _arrange(self) -> None:
        simulated = [name for name, device in self._devices.items() if device.info.simulated]
        metrics = QFontMetrics(font(Role.STRONG))
        narrowest = max((metrics.horizontalAdvance(name) for name in self._devices), default=0) + 2 * EDGE_PX + 8
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

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for wire in self.layout_now.wires:
            self._paint_wire(painter, wire)
        for wire in self.layout_now.wires:  # above all lines, or a later one would cross it out
            if wire.label and wire.label_at is not None:
                self._paint_label(painter, wire.label, wire.label_at)
        for socket in self.layout_now.sockets:
            self._paint_socket(painter, socket)
        for box, group in self.layout_now.switches:
            self._paint_switch(painter, box, bool(self._marked) and self._marked <= set(group))
        for name, box in self.layout_now.devices.items():
            self._paint_device(painter, self._devices[name], box)

    def _paint_wire(self, painter: QPainter, wire: Wire) -> None:
        theme = self._theme
        marked = wire.kind == "pcie" and len(wire.devices) == 1 and wire.devices[0] in self._marked
        self._stroke(
            painter, wire, wire.path, theme.text if marked else theme.dim if wire.kind == "nvlink" else theme.bar_other
        )
        if wire.kind == "nvlink" and len(self._marked) == 2 and self._marked <= set(wire.devices):
            a, b = sorted(self._marked)
            self._stroke(painter, wire, wire.between(a, b, self.layout_now.devices[a].bottom()), theme.text, more=1.5)

    def _stroke(self, painter: QPainter, wire: Wire, path: QPainterPath, colour: str, more: float = 0.0) -> None:
        pen = QPen(QColor(colour), wire.width + more)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        if wire.simulated:
            pen.setDashPattern([2 + 4 / pen.widthF(), 1 + 2 / pen.widthF()])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(path)

    def _paint_label(self, painter: QPainter, text: str, at: QPointF) -> None:
        """Words on a line, on a patch of the background."""
        which = font(Role.LABEL)
        metrics = QFontMetrics(which)
        width = metrics.horizontalAdvance(text) + 12
        box = QRectF(at.x() - width / 2, at.y() - metrics.height() / 2, width, metrics.height())
        painter.fillRect(box, QColor(self._theme.window))
        painter.setFont(which)
        painter.setPen(QColor(self._theme.text))
        painter.drawText(box, Qt.AlignmentFlag.AlignCenter, text)

    def _paint_socket(self, painter: QPainter, socket: Socket) -> None:
        theme, box = self._theme, _crisp(socket.box)
        pen = QPen(QColor(theme.simulated if socket.simulated else theme.border_strong), 1)
        if socket.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(QColor(theme.button))
        painter.drawRoundedRect(box, RADIUS_PX, RADIUS_PX)
        inner = box.adjusted(8, 3, -8, -3)
        inner = self._in_sight(inner)
        half = inner.height() / 2
        lines = [(socket.title, Role.TEXT, theme.text), (socket.words, Role.LABEL, theme.dim)]
        if not socket.words:
            half = inner.height()
        for number, (text, role, colour) in enumerate(line for line in lines if line[0]):
            where = QRectF(inner.left(), inner.top() + number * half, inner.width(), half)
            self._words(painter, where, text, role, colour)

    def _in_sight(self, box: QRectF) -> QRectF:
        """What can be seen of a box when the picture is scrolled: its words stand there."""
        seen = box.intersected(QRectF(self.visibleRegion().boundingRect()))
        return seen if seen.width() > ROOM_FOR_NAME_PX else box

    def _paint_switch(self, painter: QPainter, box: QRectF, marked: bool) -> None:
        theme = self._theme
        painter.setPen(QPen(QColor(theme.text if marked else theme.border_strong), 1))
        painter.setBrush(QColor(theme.card))
        painter.drawRoundedRect(_crisp(box), 3, 3)
        self._words(painter, box, "PCIe switch" if box.width() > ROOM_FOR_NAME_PX else "switch", Role.LABEL, theme.dim)

    def _paint_device(self, painter: QPainter, device: Device, box: QRectF) -> None:
        theme, info = self._theme, device.info
        outline = _crisp(box)
        colour = QColor(device_colour(device.colour, theme))
        shape = QPainterPath()
        shape.addRoundedRect(outline, RADIUS_PX, RADIUS_PX)
        painter.fillPath(shape, QColor(theme.card))
        painter.save()
        painter.setClipPath(shape)
        stripe = QPen(colour, 2 * EDGE_PX)
        stripe.setCapStyle(Qt.PenCapStyle.FlatCap)
        dash = device_dash(device.colour, theme)
        if dash:
            stripe.setDashPattern([part / (2 * EDGE_PX) for part in dash])
        painter.setPen(stripe)
        painter.drawLine(outline.topLeft(), outline.bottomLeft())
        painter.restore()
        pen = QPen(
            colour if info.id in self._marked else QColor(theme.border_strong), 2 if info.id in self._marked else 1
        )
        if info.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(shape)
        inner = box.adjusted(EDGE_PX + 4, 3, -5, -3)
        if box.width() < ROOM_FOR_NAME_PX:
            self._words(painter, inner, info.id, Role.STRONG, colour)
            return
        upper, lower = QRectF(inner), QRectF(inner)
        upper.setHeight(inner.height() / 2)
        lower.setTop(upper.bottom())
        self._words(painter, upper, info.id, Role.STRONG, colour)
        self._words(painter, lower, info.name.removeprefix("NVIDIA "), Role.LABEL, theme.dim)

    def _words(self, painter: QPainter, where: QRectF, text: str, role: Role, colour: str | QColor) -> None:
        which = font(role)
        painter.setFont(which)
        painter.setPen(QColor(colour))
        shown = QFontMetrics(which).elidedText(text, Qt.TextElideMode.ElideRight, int(where.width()))
        painter.drawText(where, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextSingleLine, shown)

    # words under the pointer

    def tip_at(self, position: QPoint) -> str:
        """What stands at a point, in words; empty where there is nothing."""
        at = QPointF(position)
        for name, box in self.layout_now.devices.items():
            if box.contains(at):
                return self._device_words(name)
        for socket in self.layout_now.sockets:
            if socket.box.contains(at):
                return f"{socket.title}\n{socket.words}".strip()
        for switch, group in self.layout_now.switches:
            if switch.contains(at):
                return f"PCIe switch: {', '.join(group)}"
        stroker = QPainterPathStroker()
        stroker.setWidth(REACH_PX)
        for wire in reversed(self.layout_now.wires):
            if stroker.createStroke(wire.path).contains(at):
                return self._wire_words(wire)
        return ""

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

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            words = self.tip_at(event.pos())
            if words:
                QToolTip.showText(event.globalPos(), tip(words), self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Click on a line: emphasise its devices; on nothing: none."""
        stroker = QPainterPathStroker()
        stroker.setWidth(REACH_PX)
        wires = (wire for wire in reversed(self.layout_now.wires) if wire.kind == "nvlink")
        hit = next((wire for wire in wires if stroker.createStroke(wire.path).contains(event.position())), None)
        self.mark(*(hit.devices if hit is not None else ()))


def _crisp(box: QRectF) -> QRectF:
    """On pixel centres, so that a line of one pixel is one pixel wide."""
    return QRectF(round(box.left()) + 0.5, round(box.top()) + 0.5, round(box.width()) - 1, round(box.height()) - 1)
