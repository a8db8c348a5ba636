"""The memory bar of a device: where its used memory went, ten pixels high on a card. Main thread."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPainterPath
from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import bytes_text
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS, MemoryParts
from devexplorer.gui.widgets.picture import Picture
from devexplorer.gui.widgets.theme import current_theme, device_colour

HEIGHT_PX = 10
OTHER_ALPHA, CACHED_ALPHA, HATCH_ALPHA = 0.7, 0.14, 0.6
"""How much of the device's colour other allocations, cached memory and the hatch over it have; in the stacked plot
too."""


class Segment(NamedTuple):
    """One part of the bar."""

    key: str
    """Of `core.telemetry.memory_breakdown.PARTS`."""
    bytes: int

    @property
    def part(self) -> str:
        """What it is called."""
        return PART_TEXTS[self.key].short


def segments(parts: MemoryParts) -> tuple[Segment, ...]:
    """The known, non-empty parts from left to right. Where only the sum is known it is one segment, `used`."""
    if parts.workspace is None:
        named = {"used": parts.other_processes, "driver": parts.driver, "free": parts.free}
    else:
        named = parts._asdict()
        if parts.context is None:
            named["unsplit"] = named.pop("other_processes")
    return tuple(Segment(key, size) for key in PART_TEXTS if (size := named.get(key)))


def widths(found: tuple[Segment, ...], total_bytes: int | None, pixels: float) -> list[float]:
    """Width of each segment in pixels. What is there is at least one pixel wide; together they never exceed `pixels`.

    Two readings of one moment can disagree and add up to more than the capacity: then the sum is the scale.
    """
    whole = max(total_bytes or 0, sum(segment.bytes for segment in found), 1)
    left, result = pixels, []
    for segment in found:
        share = pixels * segment.bytes / whole
        width = min(share if segment.key == "free" else max(share, 1.0), left)
        result.append(width)
        left -= width
    return result


class MemoryBar(Picture):
    """The bar. Feed it with `set_reading`; it repaints when a pixel changed."""

    def __init__(self, index: int) -> None:
        super().__init__("memory")
        self._index = index
        self.segments: tuple[Segment, ...] = ()
        """What the bar shows, from left to right."""
        self._total: int | None = None
        self._painted: list[tuple[str, float]] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_device(self, index: int) -> None:
        """Paint in the colour of the device with this palette index."""
        self._index = index
        self.update()

    def set_reading(self, parts: MemoryParts, total_bytes: int | None) -> None:
        """Show `parts` of `total_bytes`."""
        self.segments, self._total = segments(parts), total_bytes
        if self._ends() != self._painted:
            self.update()

    def spoken(self) -> str:
        """The parts with their bytes, for a screen reader."""
        return ", ".join(f"{item.part} {bytes_text(item.bytes)}" for item in self.segments) or "unknown"

    def _ends(self) -> list[tuple[str, float]]:
        """Where each segment ends: on a whole pixel of the screen, so that most readings change none."""
        scale = self.devicePixelRatioF()
        ends = accumulate(widths(self.segments, self._total, self.width()))
        return [(item.key, math.floor(x * scale + 0.5) / scale) for item, x in zip(self.segments, ends, strict=True)]

    def part_at(self, x: float) -> Segment | None:
        """The segment below `x` pixels from the left, or None where there is none."""
        edge = 0.0
        for segment, width in zip(self.segments, widths(self.segments, self._total, self.width()), strict=True):
            edge += width
            if x < edge:
                return segment
        return None

    def tip_at(self, point: QPointF) -> str:
        """The part there with its definition first, then what else there is."""
        if not self.segments:
            return "How much memory is in use is not known here."
        here = self.part_at(point.x())
        lines = [f"{here.part}: {bytes_text(here.bytes)}", PART_TEXTS[here.key].definition, ""] if here else []
        lines += [f"{item.part}: {bytes_text(item.bytes)}" for item in self.segments if item != here]
        if self._total is not None:
            lines.append(f"total: {bytes_text(self._total)}")
        return "\n".join(lines)

    def sizeHint(self) -> QSize:
        return QSize(120, HEIGHT_PX)

    def minimumSizeHint(self) -> QSize:
        return QSize(16, HEIGHT_PX)

    def draw(self, painter: QPainter) -> None:
        whole = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(whole, 2, 2)
        painter.setClipPath(outline)
        painter.fillRect(whole, current_theme().bar_free)
        x = 0.0
        self._painted = self._ends()
        for key, end in self._painted:
            paint_part(painter, key, QRectF(x, 0, end - x, whole.height()), self._index)
            x = end


def part_brushes(key: str, device: int) -> list[QBrush]:
    """The look of a part, painted one over the other: the colour of the device with this palette index for its tensors,
    hatched for cached, greys for what is not torch's."""
    theme = current_theme()
    greys = {
        "context": theme.bar_context,
        "other_processes": theme.bar_other,
        "unsplit": theme.bar_other,
        "driver": theme.border_strong,
        "free": theme.bar_free,
    }
    if key in greys:
        return [QBrush(QColor(greys[key]))]
    colour = QColor(device_colour(device))
    if key == "other_allocated":
        return [QBrush(shade(colour, OTHER_ALPHA))]
    if key == "cached":
        return [QBrush(shade(colour, CACHED_ALPHA)), QBrush(shade(colour, HATCH_ALPHA), Qt.BrushStyle.BDiagPattern)]
    return [QBrush(colour)]


def paint_part(painter: QPainter, key: str, where: QRectF, device: int) -> None:
    """Fill `where` with the look of a part."""
    for brush in part_brushes(key, device):
        painter.fillRect(where, brush)


def shade(colour: QColor, opacity: float) -> QColor:
    """The colour, that opaque."""
    result = QColor(colour)
    result.setAlphaF(opacity)
    return result
