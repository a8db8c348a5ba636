"""The picture of how devices are joined, with tooltips: CPU boxes on top, PCIe switches, devices, NVLinks below. Main
thread.

All boxes and paths are in pixels. NVLinks of one kind between all devices of a group (NVSwitch, or a full mesh) are one
bar that each device hangs on: that is what they are to a program, and sixteen devices would be 120 arcs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPainterPathStroker,
    QPen,
    QResizeEvent,
)

from devexplorer.core.records import PeerLink
from devexplorer.core.session import Device
from devexplorer.core.telemetry.topology_text import Pairs, is_nvlink, pair_text
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

EDGE, SOCKET_PX, SWITCH_PX, DEVICE_PX, LINE_PX = 12, 38, 16, 38, 13
"""Margin, the heights of CPU boxes, switches and devices, and of one more line of a device's name."""
UP_PX, DOWN_PX, LANE_PX, ARC_PX = 22, 16, 24, 44
"""Least gaps above the switches and above the devices; the distance of two NVLink bars; how deep the longest arc
hangs."""
LEG_PX, BELOW_BAR_PX = 8, 9
"""From a device down to its bar, and from the bar down to the middle of its label: on the bar it would hide legs."""
MOST_PX = 136
"""Widest device."""
GAP, GROUP_GAP, SOCKET_GAP = 6, 12, 26
LABEL_BOX = QSizeF(52, 16)
"""Room of a label on an arc; its text is short."""
SIMULATED, UNKNOWN = "simulated", "unknown"
RADIUS_PX, EDGE_PX, REACH_PX = 5, 3, 8
"""Corners; the edge in the device's colour; how near to a line the pointer has to be."""
ROOM_FOR_NAME_PX, NAME_EDGES_PX, LABEL_PX = 84, 12, 14


class Socket(NamedTuple):
    """A NUMA node, or its substitute."""

    title: str
    words: str
    box: QRectF
    simulated: bool


class DrawnWire(NamedTuple):
    """A line that joins two or more things."""

    kind: str
    """`nvlink`, `pcie`, `system`."""
    path: QPainterPath
    devices: tuple[str, ...]
    """Ids; the one device of a line from a CPU or a switch to it."""
    links: tuple[PeerLink, ...] = ()
    label: str = ""
    label_at: QPointF | None = None
    width: float = 1.0
    simulated: bool = False
    legs: tuple[QPointF, ...] = ()
    """Of a bar: where each of its devices joins it."""

    def between(self, a: str, b: str, bottom: float) -> QPainterPath:
        """The part of the line that two of its devices use; `bottom` is the lower edge of the devices."""
        if not self.legs:
            return self.path
        first, second = (self.legs[self.devices.index(device)] for device in (a, b))
        path = QPainterPath(QPointF(first.x(), bottom))
        for corner in (first, second, QPointF(second.x(), bottom)):
            path.lineTo(corner)
        return path


@dataclass
class PictureLayout:
    """Everything that is drawn, and the size that it takes."""

    sockets: list[Socket] = field(default_factory=list)
    switches: list[tuple[QRectF, tuple[str, ...]]] = field(default_factory=list)
    devices: dict[str, QRectF] = field(default_factory=dict)
    wires: list[DrawnWire] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def groups_below(
    devices: Sequence[str], pairs: Pairs, simulated: Iterable[str] = ()
) -> dict[int | str, list[list[str]]]:
    """NUMA node (or `unknown`, `simulated`) -> its devices, those below one PCIe switch together."""
    result: dict[int | str, list[list[str]]] = {}
    invented = set(simulated)
    for device in devices:
        node = pairs.numa_node(device)
        place: int | str
        if device in invented:
            place = SIMULATED
        elif node is None:
            place = UNKNOWN
        else:
            place = node
        below = result.setdefault(place, [])
        mate = next((group for group in below if any(_one_switch(pairs.link(device, other)) for other in group)), None)
        if mate is None:
            below.append([device])
        else:
            mate.append(device)
    return dict(
        sorted(
            result.items(), key=lambda entry: (isinstance(entry[0], str), entry[0] == SIMULATED, str(entry[0]).zfill(4))
        )
    )


def _one_switch(link: PeerLink | None) -> bool:
    return link is not None and (link.code == "PIX" or link.level in ("PCIe switch", "same board"))


def fabrics(devices: Sequence[str], pairs: Pairs) -> tuple[list[tuple[str, ...]], list[PeerLink]]:
    """Groups of three or more devices that are all joined by NVLinks of one kind, and the NVLinks between all
    others."""
    links = {
        frozenset((link.a, link.b)): link
        for a, b in combinations(devices, 2)
        if (link := pairs.link(a, b)) and is_nvlink(link)
    }
    full: list[tuple[str, ...]] = []
    for start in devices:
        if any(start in group for group in full):
            continue
        for code in dict.fromkeys(link.code for pair, link in links.items() if start in pair):
            group = [start]
            for other in devices:
                joined = (links.get(frozenset((other, member))) for member in group)
                if other != start and all(link is not None and link.code == code for link in joined):
                    group.append(other)
            if len(group) > 2 and not any(set(group) & set(taken) for taken in full):
                full.append(tuple(group))
    rest = [link for pair, link in links.items() if not any(pair <= set(group) for group in full)]
    return full, rest


def arrange(
    devices: Sequence[str],
    pairs: Pairs,
    simulated: Iterable[str],
    width: float,
    height: float,
    narrowest: float = 60,
    whole: float = 0,
) -> PictureLayout:
    """Place everything in `width` × `height` pixels, or in more where a device would be narrower than `narrowest`;
    below `whole` devices have room for names of two lines."""
    layout = PictureLayout()
    below = groups_below(devices, pairs, simulated)
    if not below:
        return layout
    full, rest = fabrics(devices, pairs)
    spaces = sum(
        (len(groups) - 1) * GROUP_GAP + sum((len(group) - 1) * GAP for group in groups) for groups in below.values()
    )
    spaces += (len(below) - 1) * SOCKET_GAP + 2 * EDGE
    each = min(max((width - spaces) / len(devices), narrowest), MOST_PX)
    layout.width = each * len(devices) + spaces
    has_switch = any(len(group) > 1 for groups in below.values() for group in groups)
    lanes = len(full) * LANE_PX + (ARC_PX if rest else 0)
    gaps = UP_PX + (SWITCH_PX + DOWN_PX if has_switch else 0)
    high = DEVICE_PX
    if ROOM_FOR_NAME_PX <= each < whole:
        high += LINE_PX
    least = 2 * EDGE + SOCKET_PX + gaps + high + lanes
    stretch = min(max((height - least) / (2 if has_switch else 1), 0), 24)
    layout.height = least + stretch * (2 if has_switch else 1)
    x = EDGE + max((width - layout.width) / 2, 0)
    above = EDGE + max((height - layout.height) / 2, 0)
    switch_top = above + SOCKET_PX + UP_PX + stretch
    top = switch_top + (SWITCH_PX + DOWN_PX + stretch if has_switch else 0)
    for node, groups in below.items():
        left = x
        for group in groups:
            for device in group:
                layout.devices[device] = QRectF(x, top, each, high)
                x += each + GAP
            x += GROUP_GAP - GAP
        box = QRectF(left, above, x - GROUP_GAP - left, SOCKET_PX)
        layout.sockets.append(_socket(node, pairs, groups, box))
        _join_up(layout, box, groups, switch_top, simulated=node == SIMULATED)
        x += SOCKET_GAP - GROUP_GAP
    _join_sockets(layout)
    _join_down(layout, pairs, full, rest, top + high)
    return layout


def _socket(node: int | str, pairs: Pairs, groups: list[list[str]], box: QRectF) -> Socket:
    if node == SIMULATED:
        return Socket("virtual GPUs", "simulated", box, True)
    if node == UNKNOWN:
        return Socket("CPU", "NUMA node not known", box, False)
    cpus = next((cpus for group in groups for device in group if (cpus := pairs.cpus(device))), None)
    return Socket(f"NUMA node {node}", f"CPUs {cpus}" if cpus else "", box, False)


def _join_up(
    layout: PictureLayout, socket: QRectF, groups: list[list[str]], switch_top: float, *, simulated: bool
) -> None:
    """PCIe: from each device up to its switch or its CPU."""
    for group in groups:
        boxes = [layout.devices[device] for device in group]
        ceiling = socket.bottom()
        if len(group) > 1:
            switch = QRectF(boxes[0].left(), switch_top, boxes[-1].right() - boxes[0].left(), SWITCH_PX)
            layout.switches.append((switch, tuple(group)))
            layout.wires.append(
                DrawnWire("pcie", _line(switch.center().x(), ceiling, switch.top()), tuple(group), simulated=simulated)
            )
            ceiling = switch.bottom()
        for device, box in zip(group, boxes, strict=True):
            layout.wires.append(
                DrawnWire("pcie", _line(box.center().x(), ceiling, box.top()), (device,), simulated=simulated)
            )


def _join_sockets(layout: PictureLayout) -> None:
    """From CPU to CPU."""
    real = [socket for socket in layout.sockets if not socket.simulated]
    for left, right in pairwise(real):
        path = QPainterPath(QPointF(left.box.right(), left.box.center().y()))
        path.lineTo(right.box.left(), right.box.center().y())
        layout.wires.append(DrawnWire("system", path, (), width=2.0))


def _join_down(
    layout: PictureLayout, pairs: Pairs, full: list[tuple[str, ...]], rest: list[PeerLink], bottom: float
) -> None:
    """NVLinks: bars for groups, arcs for single pairs."""
    for lane, group in enumerate(full):
        boxes = [layout.devices[device] for device in group]
        y = bottom + lane * LANE_PX + LEG_PX
        path = QPainterPath(QPointF(boxes[0].center().x(), y))
        path.lineTo(boxes[-1].center().x(), y)
        legs = []
        for box in boxes:
            x = box.center().x() - (lane - (len(full) - 1) / 2) * 6  # a device on two bars has two legs
            path.moveTo(x, bottom)
            path.lineTo(x, y)
            legs.append(QPointF(x, y))
        links = tuple(link for a, b in combinations(group, 2) if (link := pairs.link(a, b)) is not None)
        code = links[0].code or ""
        below = QPointF((boxes[0].center().x() + boxes[-1].center().x()) / 2, y + BELOW_BAR_PX)
        text = f"{code} between any two" + (", simulated" if links[0].simulated else "")
        layout.wires.append(
            DrawnWire("nvlink", path, group, links, text, below, _thick(links[0]), links[0].simulated, tuple(legs))
        )
    base = bottom + len(full) * LANE_PX
    far = max((abs(_middle(layout, link.a) - _middle(layout, link.b)) for link in rest), default=1.0)
    for link in rest:
        a, b = sorted((_middle(layout, link.a), _middle(layout, link.b)))
        depth = 12 + (ARC_PX - 20) * (b - a) / far
        path = QPainterPath(QPointF(a, bottom))
        # Two legs down to below the bars, and a bow between them; a cubic hangs to three quarters of its handles.
        path.lineTo(a, base)
        path.cubicTo(QPointF(a, base + depth * 4 / 3), QPointF(b, base + depth * 4 / 3), QPointF(b, base))
        path.lineTo(b, bottom)
        at = _free_place(path, layout)
        text = (link.code or "") if at is not None else ""
        layout.wires.append(
            DrawnWire("nvlink", path, (link.a, link.b), (link,), text, at, _thick(link), link.simulated)
        )


def _free_place(path: QPainterPath, layout: PictureLayout) -> QPointF | None:
    """A point on an arc where a label hides no other; None: there is none, and the line has its words under the
    pointer."""
    taken = [_label_box(wire.label_at) for wire in layout.wires if wire.label_at is not None]
    for share in (0.5, 0.4, 0.6):
        at = path.pointAtPercent(share)
        if not any(_label_box(at).intersects(other) for other in taken):
            return at
    return None


def _label_box(at: QPointF) -> QRectF:
    return QRectF(at - QPointF(LABEL_BOX.width() / 2, LABEL_BOX.height() / 2), LABEL_BOX)


def _middle(layout: PictureLayout, device: str) -> float:
    return layout.devices[device].center().x()


def _thick(link: PeerLink) -> float:
    """Width of an NVLink: one pixel and a half for a single link, four and a half for eighteen."""
    return 1.5 + min(link.nvlinks or 1, 18) / 6


def _line(x: float, top: float, bottom: float) -> QPainterPath:
    path = QPainterPath(QPointF(x, top))
    path.lineTo(x, bottom)
    return path


class TopologyPicture(Picture):
    """Shows what `set_topology` was given. As small as its devices allow; a scroll area round it shows the rest."""

    def __init__(self) -> None:
        super().__init__("How the devices are connected")
        self._devices: dict[str, Device] = {}
        self._pairs = Pairs(())
        self.marked: frozenset[str] = frozenset()
        """What is emphasised."""
        self.layout_now = PictureLayout()
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
        names = list(self._devices)
        narrowest = max((text_width(name, Role.STRONG) for name in names), default=0) + 2 * EDGE_PX + 8
        whole = max((text_width(_name(device)) for device in self._devices.values()), default=0) + NAME_EDGES_PX
        self.layout_now = arrange(names, self._pairs, simulated, self.width(), self.height(), narrowest, whole)
        least = arrange(names, self._pairs, simulated, 0, 0, narrowest, whole)
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

    def _paint_wire(self, painter: QPainter, wire: DrawnWire) -> None:
        theme = current_theme()
        marked = wire.kind == "pcie" and len(wire.devices) == 1 and wire.devices[0] in self.marked
        if marked:
            colour = theme.text
        elif wire.kind == "nvlink":
            colour = theme.dim
        else:
            colour = theme.bar_other
        self._stroke(painter, wire, wire.path, colour)
        if wire.kind == "nvlink" and len(self.marked) == 2 and self.marked <= set(wire.devices):
            a, b = sorted(self.marked)
            self._stroke(painter, wire, wire.between(a, b, self.layout_now.devices[a].bottom()), theme.text, more=1.5)

    def _stroke(self, painter: QPainter, wire: DrawnWire, path: QPainterPath, colour: str, more: float = 0.0) -> None:
        pen = QPen(QColor(colour), wire.width + more)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        if wire.simulated:
            pen.setDashPattern([2 + 4 / pen.widthF(), 1 + 2 / pen.widthF()])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(path)

    def _paint_label(self, painter: QPainter, wire: DrawnWire, at: QPointF) -> None:
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
        inner = box.adjusted(EDGE_PX + 4, 3, EDGE_PX + 4 - NAME_EDGES_PX, -3)
        if box.width() < ROOM_FOR_NAME_PX:
            draw_text(painter, inner, info.id, colour, Role.STRONG, CENTRE)
            return
        lines = name_lines(_name(device), inner.width()) if box.height() > DEVICE_PX else [_name(device)]
        high = DEVICE_PX - LINE_PX + LINE_PX * len(lines) - 6
        place = QRectF(inner.left(), inner.center().y() - high / 2, inner.width(), high - LINE_PX * len(lines))
        draw_text(painter, place, info.id, colour, Role.STRONG, CENTRE)
        for line in lines:
            place = QRectF(inner.left(), place.bottom(), inner.width(), LINE_PX)
            draw_text(painter, place, line, "dim", align=CENTRE)

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

    def _wire_at(self, point: QPointF, *kinds: str) -> DrawnWire | None:
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

    def _wire_words(self, wire: DrawnWire) -> str:
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


def _name(device: Device) -> str:
    return device.info.name.removeprefix("NVIDIA ")


def name_lines(name: str, width: float) -> list[str]:
    """A name in two lines where it does not fit in one: broken behind a space or a hyphen."""
    parts, first = re.findall(r"[^ -]*[ -]?", name), ""
    while parts and text_width((first + parts[0]).strip()) <= width:
        first += parts.pop(0)
    return [line.strip() for line in (first, "".join(parts)) if line.strip()]


def _halves(box: QRectF) -> tuple[QRectF, QRectF]:
    """The upper and the lower one."""
    half = box.height() / 2
    return box.adjusted(0, 0, 0, -half), box.adjusted(0, half, 0, 0)


def _crisp(box: QRectF) -> QRectF:
    """On pixel centres, so that a line of one pixel is one pixel wide."""
    return QRectF(round(box.left()) + 0.5, round(box.top()) + 0.5, round(box.width()) - 1, round(box.height()) - 1)
