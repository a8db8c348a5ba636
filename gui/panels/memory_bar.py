"""The memory bar of a device: where its used memory went, ten pixels high. Main thread."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from devexplorer.core.formats import bytes_text
from devexplorer.core.telemetry.waterfall import MemoryParts
from devexplorer.gui.theme import Theme

HEIGHT_PX = 10

DEFINITIONS = {
    "workspace": "tensors of the objects in the tree, each storage counted once",
    "other allocations": "other live tensors of the engine: benchmark operands, activations, results",
    "cached": "kept by the caching allocator for the next tensor; no tensor uses it now",
    "context": "CUDA context and libraries of the engine; given back only when the engine ends",
    "other processes": "everybody else on this device",
    "used": "in use by all processes together; nothing finer is known here",
    "free": "in use by nobody",
}
"""What each part is, in the order of the bar."""


class Segment(NamedTuple):
    """One part of the bar: a key of `DEFINITIONS` and its bytes."""

    part: str
    bytes: int


def segments(parts: MemoryParts) -> tuple[Segment, ...]:
    """The known, non-empty parts from left to right. Where only the sum is known it is one segment, `used`."""
    if parts.workspace is None:
        found = [("used", parts.other_processes), ("free", parts.free)]
    else:
        found = [
            ("workspace", parts.workspace),
            ("other allocations", parts.other_allocated),
            ("cached", parts.cached),
            ("context", parts.context),
            ("other processes", parts.other_processes),
            ("free", parts.free),
        ]
    return tuple(Segment(name, count) for name, count in found if count)


def widths(found: tuple[Segment, ...], total_bytes: int | None, pixels: float) -> list[float]:
    """Width of each segment in pixels. What is there is at least one pixel wide; together they never exceed `pixels`.

    Two readings of one moment can disagree and add up to more than the capacity: then the sum is the scale.
    """
    whole = max(total_bytes or 0, sum(segment.bytes for segment in found), 1)
    left, result = pixels, []
    for segment in found:
        share = pixels * segment.bytes / whole
        width = min(share if segment.part == "free" else max(share, 1.0), left)
        result.append(width)
        left -= width
    return result


class MemoryBar(QWidget):
    """The bar. Feed it with `set_reading`; it repaints when something changed."""

    def __init__(self, theme: Theme, colour: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._colour = theme, QColor(colour)
        self._segments: tuple[Segment, ...] = ()
        self._total: int | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("memory")

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What the bar shows, from left to right."""
        return self._segments

    def set_theme(self, theme: Theme, colour: str) -> None:
        """Paint in other colours."""
        self._theme, self._colour = theme, QColor(colour)
        self.update()

    def set_reading(self, parts: MemoryParts, total_bytes: int | None) -> None:
        """Show `parts` of `total_bytes`."""
        found = segments(parts)
        if (found, total_bytes) != (self._segments, self._total):
            self._segments, self._total = found, total_bytes
            self.setAccessibleDescription(", ".join(f"{part} {bytes_text(count)}" for part, count in found) or "unknown")
            self.update()

    def part_at(self, x: float) -> Segment | None:
        """The segment below `x` pixels from the left, or None where there is none."""
        edge = 0.0
        for segment, width in zip(self._segments, widths(self._segments, self._total, self.width()), strict=True):
            edge += width
            if x < edge:
                return segment
        return None

    def tooltip(self, x: float) -> str:
        """The part below `x` with its definition first, then what else there is."""
        if not self._segments:
            return "How much memory is in use is not known here."
        here = self.part_at(x)
        lines = [f"{here.part}: {bytes_text(here.bytes)}", DEFINITIONS[here.part], ""] if here else []
        lines += [f"{part}: {bytes_text(count)}" for part, count in self._segments if here is None or part != here.part]
        if self._total is not None:
            lines.append(f"total: {bytes_text(self._total)}")
        return "\n".join(lines)

    def sizeHint(self) -> QSize:
        return QSize(120, HEIGHT_PX)

    def minimumSizeHint(self) -> QSize:
        return QSize(16, HEIGHT_PX)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.tooltip(event.pos().x()), self)
            return True
        return super().event(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        whole = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(whole, 2, 2)
        painter.setClipPath(outline)
        painter.fillRect(whole, QColor(self._theme.bar_free))
        x = 0.0
        for segment, width in zip(self._segments, widths(self._segments, self._total, whole.width()), strict=True):
            self._paint(painter, segment.part, QRectF(x, 0, width, whole.height()))
            x += width
        painter.end()

    def _paint(self, painter: QPainter, part: str, where: QRectF) -> None:
        match part:
            case "workspace" | "used":
                painter.fillRect(where, self._colour)
            case "other allocations":
                painter.fillRect(where, self._shade(0.7))
            case "cached":
                painter.fillRect(where, self._shade(0.14))
                painter.save()
                painter.setClipRect(where, Qt.ClipOperation.IntersectClip)
                painter.setPen(QPen(self._shade(0.6), 1.5))
                x = where.left() - where.height() - where.left() % 5.0  # the hatch stands still when the part grows
                while x < where.right():
                    painter.drawLine(QRectF(x, where.top(), where.height(), where.height()).bottomLeft(),
                                     QRectF(x, where.top(), where.height(), where.height()).topRight())  # fmt: skip
                    x += 5.0
                painter.restore()
            case "context":
                painter.fillRect(where, QColor(self._theme.bar_context))
            case "other processes":
                painter.fillRect(where, QColor(self._theme.bar_other))

    def _shade(self, opacity: float) -> QColor:
        shade = QColor(self._colour)
        shade.setAlphaF(opacity)
        return shade
