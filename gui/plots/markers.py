"""Lines across the curves, with their labels in a lane above: markers for moves and runs, guides for what a metric is
measured against (capacity, power cap, thresholds of temperature, the fastest clock, the datasheet).

Main thread. One item per plot paints all of them in pixels, so nothing is made or destroyed while the plot scrolls. No
label ever lies on a curve: what would be in the plot is in the lane, which the canvas keeps free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from devexplorer.core.session import Device
from devexplorer.gui.widgets import Role, current_theme, font

GAP_PX = 4.0
"""Between a line and its label."""
ROW_PX = 15.0
MARKER_ALPHA = 0.5
ROWS_FROM_PX = (0, 140, 260)
"""A canvas from this height on has so many rows of labels; what has no place in them keeps its line and gives up its
label."""
MARK = "  simulated"
"""Of a guide: how its text ends."""
KEY_PX = 14.0
"""A piece of a guide's dotted line before its label, which is not at the line itself."""
GUIDES_APART_PX, GUIDES_SHARE = 16.0, 0.45
"""Where there is one row only, and markers are in it, labels of guides take no more of it than this share: what just
happened has to have room."""
DASHES: Mapping[str, tuple[float, ...]] = {"copy": (5.0, 3.0), "cast": (1.0, 3.0)}
"""How the line of a copy and of a cast differ from that of a move, by `core.session.state.Marker.kind`."""
ARROW, SHORTEST_NAME_PX = " → ", 20.0
"""In the text of a move; of the name before it so much stays at least."""
SHORTEST_LABEL_PX = 44.0
"""A label that would be cut shorter than this is left out."""


class MarkerLine(NamedTuple):
    """A marker or guide: where (pixels from the left, or from the top), what it says, in which colour (`#RRGGBB`)."""

    at_px: float
    text: str
    colour: str
    dash: tuple[float, ...] = ()
    """Of a marker, in pixels; solid without."""


class PlacedLabel(NamedTuple):
    """A label that found its place."""

    text: str
    rect: QRectF


def place_labels(
    lines: Sequence[MarkerLine],
    *,
    width_px: float,
    rows: int,
    text_width: Callable[[str], float],
    elide: Callable[[str, float], str],
    taken: Sequence[QRectF] = (),
) -> list[PlacedLabel]:
    """Find a place for the label of each line (oldest first) so that none overlaps another or one of `taken`.

    Newer labels choose first: what just happened keeps its place, and a marker that scrolls out moves no other. A label
    is right of its line in the first row that is free, else left of it; where neither is, it is cut short; then it is
    left out. The labels of a row are in the order of their lines: of two lines side by side,
    each would be taken for the other.
    """
    placed: list[PlacedLabel] = []
    occupied = list(taken)

    def is_free(rect: QRectF) -> bool:
        room = rect.adjusted(-GAP_PX, 0.5, GAP_PX, -0.5)
        return not any(room.intersects(other) for other in occupied)

    def starts_in(row: int) -> float:
        """Where the first label of a newer line is in a row."""
        return min((label.rect.left() for label in placed if label.rect.top() == row * ROW_PX), default=width_px)

    for line in reversed(lines):
        if not 0 <= line.at_px <= width_px:
            continue
        width = text_width(line.text)
        beside = (line.at_px + GAP_PX, line.at_px - GAP_PX - width)
        starts = [start for start in beside if 0 <= start <= width_px - width]
        ordered = [row for row in range(rows) if line.at_px <= starts_in(row)]
        candidates = [QRectF(start, row * ROW_PX, width, ROW_PX) for start in starts for row in ordered]
        result = next((PlacedLabel(line.text, rect) for rect in candidates if is_free(rect)), None)
        if result is None:
            result = _cut_short(line, width_px, ordered, elide, occupied)
        if result is not None and result.text:
            placed.append(result)
            occupied.append(result.rect)
    return placed[::-1]


def _cut_short(
    line: MarkerLine,
    width_px: float,
    rows: Sequence[int],
    elide: Callable[[str, float], str],
    occupied: Sequence[QRectF],
) -> PlacedLabel | None:
    """The label in the row with the most room right of its line, elided; None where there is too little."""
    start, best, best_row = line.at_px + GAP_PX, 0.0, 0
    for row in rows:
        band = QRectF(start - GAP_PX, row * ROW_PX + 0.5, width_px, ROW_PX - 1)
        ends = [rect.left() - GAP_PX for rect in occupied if rect.intersects(band)]
        room = min([*ends, width_px]) - start
        if room > best:
            best, best_row = room, row
    if best < SHORTEST_LABEL_PX:
        return None
    return PlacedLabel(elide(line.text, best), QRectF(start, best_row * ROW_PX, best, ROW_PX))


def lane_rows(height_px: float) -> int:
    """How many rows of labels a canvas of this height has above its curves."""
    return sum(height_px >= least for least in ROWS_FROM_PX)


def forget_picture(item: QGraphicsItem) -> None:
    """Paint an item of another size anew: where Qt keeps its picture it would take over the old one, and paint only
    what has become visible beside it, whatever `update` says."""
    kept = item.cacheMode()
    item.setCacheMode(QGraphicsItem.CacheMode.NoCache)
    item.setCacheMode(kept)


class LinesItem(QGraphicsItem):
    """Paints markers and guides over a view box, their labels above it. Coordinates are the view box's pixels; the
    lane's are negative."""

    def __init__(self, parent: QGraphicsItem) -> None:
        """`parent`: not the view box, which clips what is in it."""
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setZValue(50)
        self._font = font(Role.LABEL)
        self._metrics = QFontMetricsF(self._font)
        self._rect = QRectF()
        self._rows = 1
        self._markers: list[MarkerLine] = []
        self._guides: list[MarkerLine] = []
        self.labels: list[PlacedLabel] = []
        """Labels of markers as they are drawn now, oldest first."""
        self.guide_labels: list[PlacedLabel] = []

    def show_lines(self, rect: QRectF, rows: int, markers: list[MarkerLine], guides: list[MarkerLine]) -> None:
        """Show these lines, their labels in so many rows; does nothing when they are the ones that are shown."""
        if (rect, rows, markers, guides) == (self._rect, self._rows, self._markers, self._guides):
            return
        if (rect, rows) != (self._rect, self._rows):
            self.prepareGeometryChange()
            forget_picture(self)
        self._rect, self._rows, self._markers, self._guides = rect, rows, markers, guides
        self._place()
        self.update()

    def _place(self) -> None:
        """Guides are in the top row from the left, the highest line first: no marker's line comes so high there."""
        width = self._rect.width()
        result: list[PlacedLabel] = []
        left, right = 6.0, width if self._rows > 1 or not self._markers else width * GUIDES_SHARE
        for guide in sorted(self._guides):
            room = right - left - KEY_PX - GAP_PX
            text = self._shortened(guide.text, room)
            if room >= min(SHORTEST_LABEL_PX, self._metrics.horizontalAdvance(guide.text)):
                result.append(
                    PlacedLabel(text, QRectF(left, 0, KEY_PX + GAP_PX + self._metrics.horizontalAdvance(text), ROW_PX))
                )
                left = result[-1].rect.right() + GUIDES_APART_PX
        placed = place_labels(
            self._markers,
            width_px=width,
            rows=self._rows,
            text_width=self._metrics.horizontalAdvance,
            elide=self._elide,
            taken=[label.rect.adjusted(0, 0, GUIDES_APART_PX, 0) for label in result],
        )
        self.guide_labels, self.labels = self._raised(result), self._raised(placed)

    def _raised(self, labels: Sequence[PlacedLabel]) -> list[PlacedLabel]:
        """From rows that are counted from the top of the lane to the view box's pixels."""
        return [label._replace(rect=label.rect.translated(0, -self._rows * ROW_PX)) for label in labels]

    def _elide(self, text: str, width: float) -> str:
        """Cut short at the end, but of `model → device` the device stays; empty where that has no room."""
        name, arrow, goal = text.rpartition(ARROW)
        if not arrow:
            return self._metrics.elidedText(text, Qt.TextElideMode.ElideRight, width)
        room = width - self._metrics.horizontalAdvance(arrow + goal)
        if room < SHORTEST_NAME_PX:
            return ""
        return self._metrics.elidedText(name, Qt.TextElideMode.ElideRight, room) + arrow + goal

    def _shortened(self, text: str, width: float) -> str:
        """Where there is little room, the number alone: its dotted line says what it is. What is simulated keeps its
        mark."""
        if self._metrics.horizontalAdvance(text) > width:
            text = text.partition(" ")[2] or text
        words = text.removesuffix(MARK)
        mark = text[len(words) :]
        return self._elide(words, width - self._metrics.horizontalAdvance(mark)) + mark

    def boundingRect(self) -> QRectF:
        return self._rect.adjusted(0, -self._rows * ROW_PX, 0, 0)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        painter.setFont(self._font)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        for guide in self._guides:
            if guide.at_px >= 0:
                painter.setPen(_pen(guide.colour, 1.0, [1.0, 4.0]))
                y = round(guide.at_px) + 0.5
                painter.drawLine(QPointF(0, y), QPointF(self._rect.width(), y))
        tops = {
            edge: label.rect.top() + 2
            for label in self.labels
            for edge in (label.rect.left() - GAP_PX, label.rect.right() + GAP_PX)
        }
        for marker in self._markers:
            if 0 <= marker.at_px <= self._rect.width():
                painter.setPen(_pen(marker.colour, MARKER_ALPHA, marker.dash))
                x = round(marker.at_px) + 0.5
                painter.drawLine(QPointF(x, tops.get(marker.at_px, 0.0)), QPointF(x, self._rect.height()))
        backdrop = QColor(current_theme().panel)  # a label may cross another marker's line, and stays readable
        for label in (*self.guide_labels, *self.labels):
            painter.fillRect(label.rect.adjusted(-2, 1, 2, -1), backdrop)
        self._paint_texts(painter)

    def _paint_texts(self, painter: QPainter) -> None:
        aligned = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        for guide, label in zip(sorted(self._guides), self.guide_labels, strict=False):
            painter.setPen(_pen(guide.colour, 1.0, [1.0, 4.0]))
            y = round(label.rect.center().y()) + 0.5
            painter.drawLine(QPointF(label.rect.left(), y), QPointF(label.rect.left() + KEY_PX, y))
            painter.setPen(current_theme().soft)
            painter.drawText(label.rect.adjusted(KEY_PX + GAP_PX, 0, 2, 0), aligned, label.text)
        painter.setPen(current_theme().soft)
        for label in self.labels:
            painter.drawText(label.rect, aligned, label.text)


def _pen(colour: str, alpha: float, dash: Sequence[float] = ()) -> QPen:
    shade = QColor(colour)
    shade.setAlphaF(alpha)
    pen = QPen(shade, 1)
    if dash:
        pen.setDashPattern(list(dash))
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    return pen


MEMORY = ("memory_used_bytes", "memory_free_bytes")
Limit = Callable[[Device], float | None]


def _detail(name: str) -> Limit:
    """A figure of the device's details, once they are known."""
    return lambda device: getattr(device.details, name, None)


def _capacity(device: Device) -> float | None:
    return device.total_bytes


def _power_cap(device: Device) -> float | None:
    return device.sample.power_cap_w if device.sample else None


LIMITS: dict[str, tuple[str, Limit]] = {
    "memory_used_bytes": ("capacity", _capacity),
    "memory_free_bytes": ("capacity", _capacity),
    "power_w": ("cap", _power_cap),
    "power_instant_w": ("cap", _power_cap),
    "temperature_c": ("slowdown", _detail("temperature_slowdown_c")),
    "memory_temperature_c": ("limit", _detail("temperature_memory_limit_c")),
    "sm_clock_mhz": ("fastest", _detail("sm_clock_max_mhz")),
    "memory_clock_mhz": ("fastest", _detail("memory_clock_max_mhz")),
    "graphics_clock_mhz": ("fastest", _detail("graphics_clock_max_mhz")),
    "video_clock_mhz": ("fastest", _detail("video_clock_max_mhz")),
}
"""Metric -> what its limit is called, and where a device says it."""


def limits(metric: str, devices: list[Device], value_text: Callable[[float], str]) -> list[tuple[float, str]]:
    """The limits of these devices with their labels; devices with the same one share a label. Empty where there are
    none."""
    if metric not in LIMITS:
        return []
    word, ask = LIMITS[metric]
    result: dict[float, list[str]] = {}
    for device in devices:
        limit = ask(device)
        if limit:
            result.setdefault(float(limit), []).append(device.info.id)
    return [(limit, f"{word} {value_text(limit)}  {_names(names)}") for limit, names in result.items()]


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"
