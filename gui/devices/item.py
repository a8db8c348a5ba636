"""What a device's card and its compact row have in common. Main thread.

Painted, not built of labels: sixteen devices stay one widget each plus their bar, and the layout stays when a number
changes. Everything that is painted is also said by `spoken`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QEnterEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPen,
    QPixmap,
    QRegion,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.records import Problem
from devexplorer.core.session import Device, Progress
from devexplorer.core.telemetry.alerts import Alert
from devexplorer.gui.actions import Verdict, decode
from devexplorer.gui.devices.card_text import CardTexts, card_texts, card_tooltip
from devexplorer.gui.widgets import (
    MemoryBar,
    Role,
    Tone,
    colour_of,
    current_theme,
    device_colour,
    device_dash,
    draw_text,
    paint_progress,
    pixmap,
    tell_chosen,
)

EDGE_PX = 3
"""Width of the left edge in the device's colour."""
SIGN_PX = 14


class DeviceItem(QWidget):
    """What cards and compact rows share: texts, bar, keyboard, selection, drops. Subclasses place and paint."""

    accessible_role = QAccessible.Role.RadioButton  # one device is chosen

    selected = Signal(object)
    """The device's id, when it is clicked or chosen with the keyboard."""
    dropped = Signal(object, object)
    """Targets (tuple of str) and the device's id."""
    drag_entered = Signal(object)
    """Targets that hang over this device now; an empty tuple when they leave."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device_id = device.info.id
        self._device = device
        self._texts: CardTexts | None = None
        self.verdict: Verdict | None = None
        """What a drop would do, while something is dragged."""
        self.progress: Progress | None = None
        """Long work that keeps this device busy."""
        self._problems: tuple[Problem, ...] = ()
        self._alerts: Sequence[Alert] = ()
        self._frame_of: tuple[object, ...] = ()
        self._frame = QPixmap()
        self.is_selected = self._hovered = self._drop_here = False
        """Whether this device is the chosen one."""
        self.bar = MemoryBar(device.colour)
        self.bar.setParent(self)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAcceptDrops(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)  # else every number repaints ten widgets below it
        self.refresh(device, ())

    @property
    def texts(self) -> CardTexts:
        """What the card says now."""
        assert self._texts is not None
        return self._texts

    def set_selected(self, selected: bool) -> None:
        """Mark the device as chosen, or not."""
        if selected != self.is_selected:
            self.is_selected = selected
            tell_chosen(self)
            self.update()

    def set_verdict(self, verdict: Verdict | None) -> None:
        """Show what a drop would do in place of the readings; None: nothing is dragged."""
        if verdict != self.verdict:
            self.verdict = verdict
            self._show_bar()
            self.update()

    def set_progress(self, progress: Progress | None) -> None:
        """Show how far long work is; None: there is none."""
        before, self.progress = self.progress, progress
        if (before and before.words) != (progress and progress.words):
            self.update()

    def spoken(self) -> str:
        """What is painted, for a screen reader."""
        texts = self.texts
        alarm = f"Alarm: {texts.alarm}. " if texts.alarm else ""
        readings = ", ".join(" ".join(filter(None, reading)) for reading in (*texts.readings, *texts.watched))
        held = f" Throttled by: {texts.held}." if texts.held else ""
        busy = f" Busy: {self.progress.title}." if self.progress is not None else ""
        said = texts.reason or f"{texts.used} {texts.of_total}, {readings}. {texts.warning}".strip() + held
        return alarm + said + busy

    def tip(self) -> str:
        """What the tooltip says now."""
        return card_tooltip(self._device, self._problems, self._alerts)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            self.setToolTip(self.tip())  # not before it is asked for: readings come all the time
        return super().event(event)

    def _texts_of(self, device: Device, problems: tuple[Problem, ...], alerts: Sequence[Alert]) -> CardTexts:
        return card_texts(device, problems, alerts)

    def refresh(self, device: Device, problems: tuple[Problem, ...], alerts: Sequence[Alert] = ()) -> None:
        """Take the texts and the bar from `device`; repaints only what changed of both."""
        self._device, self._problems, self._alerts = device, problems, alerts
        texts = self._texts_of(device, problems, alerts)
        self.bar.set_reading(device.parts, device.total_bytes)
        if texts == self._texts:
            return
        old = self._texts
        if old is not None and _still(texts) == _still(old):
            self._texts = texts
            if self._looks(texts) != self._looks(old):
                self.update(QRegion(self._readings_rect()) - QRegion(self.bar.geometry()))
            return
        taller = old is None or _lines(texts) != _lines(old)
        moved = taller or bool(texts.held) != bool(old and old.held)
        self._texts = texts
        self._show_bar()
        self.setAccessibleName(f"{texts.id} {texts.name}" + (" simulated" if texts.simulated else ""))
        if taller:
            self.updateGeometry()
        if moved:
            self._place_bar()
            self.update()
        else:
            self.update(QRegion(self.rect()) - QRegion(self.bar.geometry()))

    def _looks(self, texts: CardTexts) -> object:
        """What of the texts is painted; others are spoken, and in the tooltip."""
        return texts

    def height_px(self) -> int:
        """More where something is wrong with the device."""
        raise NotImplementedError

    def sizeHint(self) -> QSize:
        return QSize(220, self.height_px())

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.height_px())

    def _place_bar(self) -> None:
        raise NotImplementedError

    def _readings_rect(self) -> QRect:
        """The part with the readings; the rest is not painted again while only they change, twice a second."""
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
        return QColor(device_colour(self._device.colour))

    def _paint_frame(self, painter: QPainter, radius: float) -> None:
        """Background, outline (dashed when simulated), the edge in the device's colour, the focus frame."""
        theme, colour = current_theme(), self._colour()
        inside = theme.hover if self._hovered and not self.is_selected else theme.card
        edge = QColor(theme.border_strong)
        if self._drop_here and self.verdict is not None:
            refused = not self.verdict.allowed and not self.verdict.nothing_to_do
            edge = QColor(theme.error) if refused else colour
        elif self.is_selected:
            edge = colour
        scale = self.devicePixelRatioF()
        frame_of = (self.size(), scale, theme, inside, edge, self.texts.simulated, self._device.colour)
        if frame_of != self._frame_of:  # kept as a picture: smooth corners cost more than all texts of a row
            self._frame_of, self._frame = frame_of, QPixmap(self.size() * scale)
            self._frame.setDevicePixelRatio(scale)
            with QPainter(self._frame) as onto:
                onto.setRenderHint(QPainter.RenderHint.Antialiasing)
                self._draw_frame(onto, radius, inside, edge)
        painter.drawPixmap(0, 0, self._frame)
        if self.progress is not None:
            painter.save()
            painter.setClipPath(self._shape(radius))
            paint_progress(painter, self.rect().adjusted(EDGE_PX, 0, 0, 0), self.progress)
            painter.restore()
        if self.hasFocus():
            painter.setPen(theme.focus)
            box = QRectF(self.rect()).adjusted(2.5, 2.5, -2.5, -2.5)
            painter.drawRoundedRect(box, radius - 2, radius - 2)

    def _shape(self, radius: float) -> QPainterPath:
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(self.rect()), radius, radius)
        return shape

    def _draw_frame(self, painter: QPainter, radius: float, inside: str, edge: QColor) -> None:
        painter.fillRect(self.rect(), current_theme().panel)
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        painter.fillPath(outline, QColor(inside))
        pen = QPen(edge)
        if self.texts.simulated:
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.drawPath(outline)
        painter.setClipPath(self._shape(radius))
        dash = device_dash(self._device.colour)
        stripe = QPen(self._colour(), 2 * EDGE_PX)
        stripe.setCapStyle(Qt.PenCapStyle.FlatCap)
        if dash:
            stripe.setDashPattern([part / (2 * EDGE_PX) for part in dash])
        painter.setPen(stripe)
        painter.drawLine(QPointF(0, 0), QPointF(0, self.height()))

    def _sign(self, painter: QPainter, x: int, middle: int, name: str, tone: Tone) -> int:
        """Draw an icon of state; returns the x behind it."""
        painter.drawPixmap(x, middle - SIGN_PX // 2, pixmap(name, colour_of(tone), SIGN_PX, self.devicePixelRatioF()))
        return x + SIGN_PX + 5

    def _sign_and_words(
        self, painter: QPainter, where: QRect, name: str, text: str, role: Role, tone: Tone, words: Tone | None = None
    ) -> None:
        """An icon of state and one line behind it; `words`: another tone for the line."""
        x = self._sign(painter, where.left(), where.center().y() + 1, name, tone)
        draw_text(painter, where.adjusted(x - where.left(), 0, 0, 0), text, words or tone, role)

    def _paint_alarm(self, painter: QPainter, where: QRect) -> None:
        if self.texts.alarm:
            self._sign_and_words(painter, where, "error", self.texts.alarm, Role.LABEL, "error")

    def _paint_verdict(self, painter: QPainter, where: QRect) -> None:
        assert self.verdict is not None
        if self.verdict.allowed:
            draw_text(painter, where, self.verdict.words, "text", Role.TEXT)
        else:
            nothing = self.verdict.nothing_to_do
            tone: Tone = "dim" if nothing else "error"
            self._sign_and_words(painter, where, "check" if nothing else "error", self.verdict.words, Role.TEXT, tone)


_still = attrgetter(*(name for name in CardTexts._fields if name not in ("used", "short", "readings")))
"""The texts without the readings."""


def _lines(texts: CardTexts) -> tuple[bool, bool, bool, int]:
    """What makes a card taller, and what shows a bar or a reason."""
    return bool(texts.warning), bool(texts.reason), bool(texts.alarm), len(texts.watched)
