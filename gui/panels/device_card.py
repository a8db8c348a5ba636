"""One device as a card or, where there are many, as a compact row. Main thread.

Painted rather than built of labels: sixteen devices stay one widget each plus their bar, and nothing is laid out anew
when a number changes. Everything that is painted is also in the accessible description.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QEnterEvent,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.records.devices import Problem
from devexplorer.core.state import Device
from devexplorer.gui.icons import pixmap
from devexplorer.gui.item_models.dragging import Verdict, decode
from devexplorer.gui.panels.device_words import CardTexts, card_texts, card_tooltip
from devexplorer.gui.panels.memory_bar import HEIGHT_PX, MemoryBar
from devexplorer.gui.theme import Role, Theme, device_colour, device_dash, font

_EDGE = 3
"""Width of the left edge in the device's colour."""
_ICON = 14
CARD_PX, ROW_PX = 97, 30
"""Heights of a card (a line more where it carries a warning) and of a compact row."""


class DeviceItem(QWidget):
    """What cards and compact rows have in common: texts, bar, keyboard, selection, drops. Subclasses place and paint."""

    selected = Signal(object)
    """The device's id, when it is clicked or chosen with the keyboard."""
    dropped = Signal(object, object)
    """Targets (tuple of str) and the device's id."""
    drag_entered = Signal(object)
    """Targets that hang over this device now; an empty tuple when they leave."""

    def __init__(self, device: Device, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.device_id = device.info.id
        self._device, self._theme = device, theme
        self._texts: CardTexts | None = None
        self._verdict: Verdict | None = None
        self._selected = self._hovered = self._drop_here = False
        self.bar = MemoryBar(theme, device_colour(device.colour, theme), self)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAcceptDrops(True)
        self.refresh(device, ())

    @property
    def texts(self) -> CardTexts:
        """What the card says now."""
        assert self._texts is not None
        return self._texts

    @property
    def verdict(self) -> Verdict | None:
        """What a drop would do, while something is dragged."""
        return self._verdict

    @property
    def is_selected(self) -> bool:
        """Whether this device is the chosen one."""
        return self._selected

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self.bar.set_theme(theme, device_colour(self._device.colour, theme))
        self.update()

    def set_selected(self, selected: bool) -> None:
        """Mark the device as chosen, or not."""
        if selected != self._selected:
            self._selected = selected
            self.update()

    def set_verdict(self, verdict: Verdict | None) -> None:
        """Show what a drop would do in place of the readings; None: nothing is dragged."""
        if verdict != self._verdict:
            self._verdict = verdict
            self._show_bar()
            self.update()

    def refresh(self, device: Device, problems: tuple[Problem, ...]) -> None:
        """Take the texts and the bar from `device`; repaints only when a text changed."""
        self._device = device
        texts = card_texts(device, problems)
        self.bar.set_reading(device.parts, device.total_bytes)
        if texts == self._texts:
            return
        taller = self._texts is None or (bool(texts.warning), bool(texts.reason)) != (
            bool(self._texts.warning), bool(self._texts.reason))  # fmt: skip
        self._texts = texts
        self._show_bar()
        self.setToolTip(card_tooltip(device, problems))
        self.setAccessibleName(f"{texts.id} {texts.name}" + (" simulated" if texts.simulated else ""))
        readings = ", ".join(" ".join(filter(None, reading)) for reading in texts.readings)
        self.setAccessibleDescription(texts.reason or f"{texts.used} {texts.of_total}, {readings}. {texts.warning}".strip())
        if taller:
            self.updateGeometry()
            self._place_bar()
        self.update()

    def _place_bar(self) -> None:
        raise NotImplementedError

    def _show_bar(self) -> None:
        self.bar.setVisible(not self.texts.reason)

    def resizeEvent(self, _event: QResizeEvent) -> None:
        self._place_bar()

    def enterEvent(self, _event: QEnterEvent) -> None:
        self._hovered = True
        self.update()

    def leaveEvent(self, _event: object) -> None:
        self._hovered = False
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.selected.emit(self.device_id)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.selected.emit(self.device_id)
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            self.focusNextPrevChild(event.key() == Qt.Key.Key_Down)
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        targets = decode(event.mimeData())
        if not targets:
            return
        self._drop_here = True
        self.drag_entered.emit(targets)  # the panel answers with `set_verdict`
        self.update()
        event.acceptProposedAction()

    def dragLeaveEvent(self, _event: QDragLeaveEvent) -> None:
        self._drop_here = False
        self.drag_entered.emit(())
        self.update()

    def dropEvent(self, event: QDropEvent) -> None:
        targets = decode(event.mimeData())
        self._drop_here = False
        self.drag_entered.emit(())
        self.update()
        if targets:
            # Also where it would not fit: the engine refuses with the numbers and says what would help.
            event.acceptProposedAction()
            self.dropped.emit(targets, self.device_id)

    # painting, shared

    def _colour(self) -> QColor:
        return QColor(device_colour(self._device.colour, self._theme))

    def _paint_frame(self, painter: QPainter, radius: float) -> None:
        """Background, outline (dashed when simulated), the edge in the device's colour, the focus frame."""
        theme, colour = self._theme, self._colour()
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        outline = QPainterPath()
        outline.addRoundedRect(box, radius, radius)
        painter.fillPath(outline, QColor(theme.hover if self._hovered and not self._selected else theme.card))
        edge = QColor(theme.border_strong)
        if self._drop_here and self._verdict is not None:
            refused = not self._verdict.allowed and not self._verdict.nothing_to_do
            edge = QColor(theme.error) if refused else colour
        elif self._selected:
            edge = colour
        pen = QPen(edge, 1)
        if self.texts.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.drawPath(outline)
        painter.save()
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(self.rect()), radius, radius)
        painter.setClipPath(shape)
        dash = device_dash(self._device.colour, theme)
        stripe = QPen(colour, 2 * _EDGE)
        stripe.setCapStyle(Qt.PenCapStyle.FlatCap)
        if dash:
            stripe.setDashPattern([part / (2 * _EDGE) for part in dash])
        painter.setPen(stripe)
        painter.drawLine(QPointF(0, 0), QPointF(0, self.height()))
        painter.restore()
        if self.hasFocus():
            painter.setPen(QPen(QColor(theme.accent), 1))
            painter.drawRoundedRect(box.adjusted(2, 2, -2, -2), radius - 2, radius - 2)

    def _words(self, painter: QPainter, where: QRect, text: str, role: Role, colour: str | QColor, *, right: bool = False) -> int:
        """Draw one elided line, centred vertically in `where`; returns the width it took."""
        which = font(role)
        painter.setFont(which)
        painter.setPen(QColor(colour))
        metrics = QFontMetrics(which)
        text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, max(where.width(), 0))
        side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
        painter.drawText(where, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text)
        return metrics.horizontalAdvance(text)

    def _sign(self, painter: QPainter, x: int, middle: int, name: str, colour: str) -> int:
        """Draw an icon of state; returns the x behind it."""
        painter.drawPixmap(x, middle - _ICON // 2, pixmap(name, colour, _ICON, self.devicePixelRatioF()))
        return x + _ICON + 5

    def _paint_verdict(self, painter: QPainter, where: QRect) -> None:
        assert self._verdict is not None
        if self._verdict.allowed:
            self._words(painter, where, self._verdict.words, Role.TEXT, self._theme.text)
        else:
            nothing = self._verdict.nothing_to_do
            sign, colour = ("check", self._theme.dim) if nothing else ("error", self._theme.error)
            x = self._sign(painter, where.left(), where.center().y() + 1, sign, colour)
            where = QRect(x, where.top(), where.right() - x, where.height())
            self._words(painter, where, self._verdict.words, Role.TEXT, colour)


class DeviceCard(DeviceItem):
    """The full card: name, the one number, the bar, the readings."""

    _LINE, _NUMBER_LINE, _TOP, _SIDE = 18, 28, 9, 14

    def sizeHint(self) -> QSize:
        return QSize(220, CARD_PX + (self._LINE + 2 if self.texts.warning else 0))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.sizeHint().height())

    def _place_bar(self) -> None:
        top = self._TOP + self._LINE + self._NUMBER_LINE
        self.bar.setGeometry(self._SIDE, top, max(self.width() - self._SIDE - 13, 0), HEIGHT_PX)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme, texts = self._theme, self.texts
        self._paint_frame(painter, 6)
        left, right = self._SIDE, self.width() - 13
        self._paint_title(painter, left, right)
        if texts.reason:
            self._paint_reason(painter, QRect(left, self._TOP + self._LINE + 3, right - left, self.height() - 37))
            return
        line = QRect(left, self._TOP + self._LINE, right - left, self._NUMBER_LINE)
        taken = self._words(painter, line, texts.used, Role.NUMBER, theme.text)
        self._words(painter, line.adjusted(taken + 6, 2, 0, 2), texts.of_total, Role.TEXT, theme.dim)
        bottom = QRect(left, self.bar.geometry().bottom() + 6, right - left, self._LINE)
        if self._verdict is not None:
            self._paint_verdict(painter, bottom)
        else:
            self._paint_readings(painter, bottom)
        if texts.warning:
            bottom = bottom.translated(0, self._LINE + 2)
            x = self._sign(painter, left, bottom.center().y() + 1, "warning", theme.warning)
            self._words(painter, QRect(x, bottom.top(), right - x, bottom.height()), texts.warning, Role.LABEL, theme.warning)

    def _paint_title(self, painter: QPainter, left: int, right: int) -> None:
        theme, texts = self._theme, self.texts
        line = QRect(left, self._TOP - 1, right - left, self._LINE)
        if texts.simulated:
            right -= self._paint_badge(painter, line) + 8
        x = left + self._words(painter, line, texts.id, Role.STRONG, self._colour()) + 8
        room = right - x
        note = QFontMetrics(font(Role.LABEL)).horizontalAdvance(texts.note) + 8 if texts.note else 0
        taken = self._words(painter, QRect(x, line.top(), room - note, line.height()), texts.name, Role.TEXT, theme.text)
        if note:
            x += taken + 8
            self._words(painter, QRect(x, line.top() + 1, right - x, line.height()), texts.note, Role.LABEL, theme.dim)

    def _paint_badge(self, painter: QPainter, line: QRect) -> int:
        """The word "simulated" in a dashed frame at the right end of `line`; returns its width."""
        which = font(Role.LABEL)
        width = QFontMetrics(which).horizontalAdvance("simulated") + 10
        box = QRectF(line.right() - width + 0.5, line.center().y() - 7.5, width, 16)
        pen = QPen(QColor(self._theme.simulated), 1)
        pen.setDashPattern([3, 2])
        painter.setPen(pen)
        painter.drawRoundedRect(box, 3, 3)
        painter.setFont(which)
        painter.setPen(QColor(self._theme.dim))
        painter.drawText(box, Qt.AlignmentFlag.AlignCenter, "simulated")
        return width

    def _paint_readings(self, painter: QPainter, line: QRect) -> None:
        """The readings side by side: first at the left, last at the right, the rest evenly between."""
        readings = self.texts.readings
        plain, strong = font(Role.TEXT), font(Role.TEXT)
        strong.setWeight(QFont.Weight.Medium)
        each = [self._reading_width(reading) for reading in readings]
        gap = (line.width() - sum(each)) / max(len(readings) - 1, 1)
        x = float(line.left())
        for reading, width in zip(readings, each, strict=True):
            inner = x
            for text, which, colour in (
                (reading.before, plain, self._theme.dim),
                (reading.value, strong, self._theme.text),
                (reading.after, plain, self._theme.dim),
            ):
                if text:
                    painter.setFont(which)
                    painter.setPen(QColor(colour))
                    advance = QFontMetrics(which).horizontalAdvance(text)
                    painter.drawText(QRectF(inner, line.top(), advance + 2, line.height()), Qt.AlignmentFlag.AlignVCenter, text)
                    inner += advance + 4
            x += width + gap

    def _reading_width(self, reading: tuple[str, str, str]) -> int:
        metrics = QFontMetrics(font(Role.TEXT))
        words = [text for text in reading if text]
        return sum(metrics.horizontalAdvance(text) for text in words) + 4 * (len(words) - 1) + 1

    def _paint_reason(self, painter: QPainter, where: QRect) -> None:
        """Why the device cannot be used, in up to three lines; the tooltip has all of it."""
        x = self._sign(painter, where.left(), where.top() + 9, "error", self._theme.error)
        which = font(Role.TEXT)
        metrics = QFontMetrics(which)
        painter.setFont(which)
        painter.setPen(QColor(self._theme.soft))
        room, words, lines = where.right() - x, self.texts.reason.split(), [""]
        for word in words:
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and metrics.horizontalAdvance(longer) > room:
                lines.append(word)
            else:
                lines[-1] = longer
        most = max(where.height() // self._LINE, 1)
        if len(lines) > most:
            lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
        for number, text in enumerate(lines):
            line = QRect(x, where.top() + number * self._LINE, room, self._LINE)
            painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, metrics.elidedText(text, Qt.TextElideMode.ElideRight, room))


class DeviceRow(DeviceItem):
    """The compact row: id, bar, used and total, utilization in one line."""

    _SIDE, _ID, _UTIL = 11, 50, 34

    def sizeHint(self) -> QSize:
        return QSize(220, ROW_PX)

    def minimumSizeHint(self) -> QSize:
        return QSize(160, ROW_PX)

    def _show_bar(self) -> None:
        self.bar.setVisible(not self.texts.reason and self._verdict is None)  # the words need the room

    def _numbers_width(self) -> int:
        return QFontMetrics(font(Role.LABEL)).horizontalAdvance("88.8/88.8 GiB") + 3

    def _place_bar(self) -> None:
        left = self._SIDE + self._ID + 6
        sign = _ICON + 6 if self.texts.warning else 0
        width = self.width() - left - sign - self._numbers_width() - self._UTIL - self._SIDE - 8
        self.bar.setGeometry(left, (ROW_PX - HEIGHT_PX) // 2, max(width, 16), HEIGHT_PX)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme, texts = self._theme, self.texts
        self._paint_frame(painter, 5)
        line = QRect(self._SIDE, 0, self.width() - 2 * self._SIDE, ROW_PX - 1)
        self._words(painter, QRect(line.left(), 0, self._ID, line.height()), texts.id, Role.STRONG, self._colour())
        rest = QRect(self.bar.geometry().left(), 0, line.right() - self.bar.geometry().left(), line.height())
        if texts.reason:
            x = self._sign(painter, rest.left(), rest.center().y() + 1, "error", theme.error)
            self._words(painter, QRect(x, 0, rest.right() - x, rest.height()), texts.reason, Role.LABEL, theme.soft)
            return
        if self._verdict is not None:
            self._paint_verdict(painter, rest)
            return
        numbers = rest.adjusted(self.bar.width() + 8, 0, 0, 0)
        if texts.warning:
            self._sign(painter, numbers.left(), numbers.center().y() + 1, "warning", theme.warning)
        util = texts.readings[0]
        self._words(painter, numbers, f"{util.value} {util.after}", Role.LABEL, theme.dim, right=True)
        used = numbers.adjusted(0, 0, -self._UTIL, 0)
        self._words(painter, used, texts.short, Role.LABEL, theme.text, right=True)
