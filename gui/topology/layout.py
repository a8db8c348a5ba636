"""Where everything in the topology picture is: CPU boxes on top, PCIe switches, devices, NVLinks below. Pure
geometry; main thread.

All boxes and paths are in pixels. NVLinks of one kind between all devices of a group (NVSwitch, or a full mesh) are one
bar that each device hangs on: that is what they are to a program, and sixteen devices would be 120 arcs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, QSizeF
from PySide6.QtGui import QPainterPath

from devexplorer.core.records import PeerLink
from devexplorer.core.telemetry.topology_text import Pairs, is_nvlink

EDGE, SOCKET_PX, SWITCH_PX, DEVICE_PX = 12, 38, 16, 38
"""Margin, and the heights of CPU boxes, switches and devices."""
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


class Socket(NamedTuple):
    """A NUMA node, or its substitute."""

    title: str
    words: str
    box: QRectF
    simulated: bool


class Wire(NamedTuple):
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
class Layout:
    """Everything that is drawn, and the size that it takes."""

    sockets: list[Socket] = field(default_factory=list)
    switches: list[tuple[QRectF, tuple[str, ...]]] = field(default_factory=list)
    devices: dict[str, QRectF] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
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
        below = result.setdefault(SIMULATED if device in invented else UNKNOWN if node is None else node, [])
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
    devices: Sequence[str], pairs: Pairs, simulated: Iterable[str], width: float, height: float, narrowest: float = 60
) -> Layout:
    """Place everything in `width` × `height` pixels, or in more where a device would be narrower than `narrowest`."""
    layout = Layout()
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
    least = 2 * EDGE + SOCKET_PX + gaps + DEVICE_PX + lanes
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
                layout.devices[device] = QRectF(x, top, each, DEVICE_PX)
                x += each + GAP
            x += GROUP_GAP - GAP
        box = QRectF(left, above, x - GROUP_GAP - left, SOCKET_PX)
        layout.sockets.append(_socket(node, pairs, groups, box))
        _join_up(layout, box, groups, switch_top, simulated=node == SIMULATED)
        x += SOCKET_GAP - GROUP_GAP
    _join_sockets(layout)
    _join_down(layout, pairs, full, rest, top + DEVICE_PX)
    return layout


def _socket(node: int | str, pairs: Pairs, groups: list[list[str]], box: QRectF) -> Socket:
    if node == SIMULATED:
        return Socket("virtual GPUs", "simulated", box, True)
    if node == UNKNOWN:
        return Socket("CPU", "NUMA node not known", box, False)
    cpus = next((cpus for group in groups for device in group if (cpus := pairs.cpus(device))), None)
    return Socket(f"NUMA node {node}", f"CPUs {cpus}" if cpus else "", box, False)


def _join_up(layout: Layout, socket: QRectF, groups: list[list[str]], switch_top: float, *, simulated: bool) -> None:
    """PCIe: from each device up to its switch or its CPU."""
    for group in groups:
        boxes = [layout.devices[device] for device in group]
        ceiling = socket.bottom()
        if len(group) > 1:
            switch = QRectF(boxes[0].left(), switch_top, boxes[-1].right() - boxes[0].left(), SWITCH_PX)
            layout.switches.append((switch, tuple(group)))
            layout.wires.append(
                Wire("pcie", _line(switch.center().x(), ceiling, switch.top()), tuple(group), simulated=simulated)
            )
            ceiling = switch.bottom()
        for device, box in zip(group, boxes, strict=True):
            layout.wires.append(
                Wire("pcie", _line(box.center().x(), ceiling, box.top()), (device,), simulated=simulated)
            )


def _join_sockets(layout: Layout) -> None:
    """From CPU to CPU."""
    real = [socket for socket in layout.sockets if not socket.simulated]
    for left, right in pairwise(real):
        path = QPainterPath(QPointF(left.box.right(), left.box.center().y()))
        path.lineTo(right.box.left(), right.box.center().y())
        layout.wires.append(Wire("system", path, (), width=2.0))


def _join_down(layout: Layout, pairs: Pairs, full: list[tuple[str, ...]], rest: list[PeerLink], bottom: float) -> None:
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
            Wire("nvlink", path, group, links, text, below, _thick(links[0]), links[0].simulated, tuple(legs))
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
        layout.wires.append(Wire("nvlink", path, (link.a, link.b), (link,), text, at, _thick(link), link.simulated))


def _free_place(path: QPainterPath, layout: Layout) -> QPointF | None:
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


def _middle(layout: Layout, device: str) -> float:
    return layout.devices[device].center().x()


def _thick(link: PeerLink) -> float:
    """Width of an NVLink: one pixel and a half for a single link, four and a half for eighteen."""
    return 1.5 + min(link.nvlinks or 1, 18) / 6


def _line(x: float, top: float, bottom: float) -> QPainterPath:
    path = QPainterPath(QPointF(x, top))
    path.lineTo(x, bottom)
    return path
