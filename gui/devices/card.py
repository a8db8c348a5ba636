"""One device as a card or, where there are many, as a compact row. Main thread.

Painted, not built of labels: sixteen devices stay one widget each plus their bar, and the layout stays when a number
changes. Everything that is painted is also said by `spoken`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QContextMenuEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QEnterEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPixmap,
    QRegion,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.feature import Trouble
from devexplorer.core.records import Problem
from devexplorer.core.session import Device, Progress
from devexplorer.gui.actions import DropVerdict, decode
from devexplorer.gui.devices.card_text import CardTexts, card_texts, card_tooltip
from devexplorer.gui.widgets import (
    CENTRE,
    HEIGHT_PX,
    RIGHT,
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
    text_width,
)

EDGE_PX = 3
"""Width of the left edge in the device's colour."""
SIGN_PX = 14
READING_ROLES, READING_GAP_PX = (Role.TEXT, Role.STRONG, Role.TEXT), 4
"""Of what stands before a number, the number, and what stands behind it."""


class DeviceItem(QWidget):
    """What cards and compact rows share: texts, bar, keyboard, selection, drops. Subclasses place and paint."""

    accessible_role = QAccessible.Role.RadioButton  # one device is chosen

    selected = Signal(object)
    """The device's id, when it is clicked or chosen with the keyboard."""
    menu_requested = Signal(object, object)
    """The device's id, and where on the screen (QPoint) its menu is wanted."""
    dropped = Signal(object, object)
    """Targets (tuple of str) and the device's id."""
    drag_entered = Signal(object)
    """Targets that hang over this device now; an empty tuple when they leave."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device_id = device.info.id
        self._device = device
        self._texts: CardTexts | None = None
        self.verdict: DropVerdict | None = None
        """What a drop would do, while something is dragged."""
        self.progress: Progress | None = None
        """Long work that keeps this device busy."""
        self._problems: tuple[Problem, ...] = ()
        self._troubles: Sequence[Trouble] = ()
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

    def set_verdict(self, verdict: DropVerdict | None) -> None:
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
        alarm = f"Alert: {texts.alarm}. " if texts.alarm else ""
        readings = ", ".join(" ".join(filter(None, reading)) for reading in texts.readings)
        held = f" Throttled by: {texts.held}." if texts.held else ""
        busy = f" Busy: {self.progress.title}." if self.progress is not None else ""
        said = texts.reason or f"{texts.used} {texts.of_total}, {readings}. {texts.warning}".strip() + held
        return alarm + said + busy

    def tip(self) -> str:
        """What the tooltip says now."""
        return card_tooltip(self._device, self._problems, self._troubles)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            self.setToolTip(self.tip())  # not before it is asked for: readings come all the time
        return super().event(event)

    def refresh(self, device: Device, problems: tuple[Problem, ...], troubles: Sequence[Trouble] = ()) -> None:
        """Take the texts and the bar from `device`; repaints only what changed of both."""
        self._device, self._problems, self._troubles = device, problems, troubles
        texts = card_texts(device, problems, troubles)
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
        self._texts = texts
        self._show_bar()
        self.setAccessibleName(f"{texts.id} {texts.name}" + (" simulated" if texts.simulated else ""))
        if taller:
            self.updateGeometry()
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

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.selected.emit(self.device_id)
        self.menu_requested.emit(self.device_id, event.globalPos())

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


def _lines(texts: CardTexts) -> tuple[bool, bool]:
    """What makes a card taller, and what shows a bar or a reason."""
    return bool(texts.warning), bool(texts.reason)


CARD_PX, WARNING_PX, ROW_PX = 91, 19, 24
"""Heights of a card, of the line more where it carries a warning, and of a compact row. An alert comes and goes by
itself: it finds room in what is there."""


class DeviceCard(DeviceItem):
    """The full card: name, the one number, the bar, the readings."""

    _LINE, _NUMBER_LINE, _TOP, _SIDE = 17, 26, 8, 14

    def height_px(self) -> int:
        return CARD_PX + WARNING_PX * bool(self.texts.warning)

    def _place_bar(self) -> None:
        top = self._TOP + self._LINE + self._NUMBER_LINE
        self.bar.setGeometry(self._SIDE, top, max(self.width() - self._SIDE - 13, 0), HEIGHT_PX)

    def _readings_rect(self) -> QRect:
        return self.rect().adjusted(0, self._TOP + self._LINE, 0, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        texts = self.texts
        self._paint_frame(painter, 6)
        left, right = self._SIDE, self.width() - 13
        if event.rect().top() < self._readings_rect().top():
            self._paint_title(painter, left, right)
        if texts.reason:
            alarm_px = WARNING_PX if texts.alarm else 0
            self._paint_reason(
                painter, QRect(left, self._TOP + self._LINE + 3, right - left, self.height() - 37 - alarm_px)
            )
            if texts.alarm:
                where = QRect(left, self.height() - self._LINE - 6, right - left, self._LINE)
                self._sign_and_words(painter, where, "error", texts.alarm, Role.LABEL, "error")
            return
        line = QRect(left, self._TOP + self._LINE, right - left, self._NUMBER_LINE)
        taken = draw_text(painter, line, texts.used, "text", Role.NUMBER)
        taken += 6 + draw_text(painter, line.adjusted(taken + 6, 2, 0, 2), texts.of_total, "dim", Role.TEXT)
        self._paint_event(painter, line.adjusted(taken + 12, 2, 0, 2))
        bottom = QRect(left, self.bar.geometry().bottom() + 6, right - left, self._LINE)
        if self.verdict is not None:
            self._paint_verdict(painter, bottom)
        else:
            self._paint_readings(painter, bottom)
        if texts.warning:
            bottom = bottom.translated(0, self._LINE + 2)
            self._sign_and_words(painter, bottom, "warning", texts.warning, Role.LABEL, "warning")

    def _paint_title(self, painter: QPainter, left: int, right: int) -> None:
        texts = self.texts
        line = QRect(left, self._TOP - 1, right - left, self._LINE)
        if texts.simulated:
            right -= self._paint_badge(painter, line) + 8
        x = left + draw_text(painter, line, texts.id, self._colour(), Role.STRONG) + 8
        room = right - x
        note = text_width(texts.note) + 8 if texts.note else 0
        name = texts.name
        if text_width(name, Role.TEXT) > room - note:
            name = name.removeprefix("NVIDIA ")  # which card it is says more
        role = Role.TEXT if text_width(name, Role.TEXT) <= room - note else Role.LABEL
        taken = draw_text(painter, QRect(x, line.top(), room - note, line.height()), name, "text", role)
        if note:
            x += taken + 8
            draw_text(painter, QRect(x, line.top(), right - x, line.height()), texts.note, "dim")

    def _paint_event(self, painter: QPainter, where: QRect) -> None:
        """The alert, else what holds the clocks down, else what is being done, at the right end of the line of the big
        number, where there is always room for the sign."""
        tone: Tone = "error" if self.texts.alarm else "warning"
        words = self.texts.alarm or self.texts.held
        if not words:
            if self.progress is not None:
                draw_text(painter, where, self.progress.words, "dim", align=RIGHT)
            return
        x = max(where.right() - text_width(words) - SIGN_PX - 6, where.left())
        x = self._sign(painter, x, where.center().y(), tone, tone)
        draw_text(painter, QRect(x, where.top(), where.right() - x + 1, where.height()), words, tone)

    def _paint_badge(self, painter: QPainter, line: QRect) -> int:
        """The word "simulated" in a dashed frame at the right end of `line`; returns its width."""
        width = text_width("simulated") + 10
        box = QRectF(line.right() - width + 0.5, line.center().y() - 7.5, width, 16)
        pen = QPen(current_theme().simulated)
        pen.setDashPattern([3, 2])
        painter.setPen(pen)
        painter.drawRoundedRect(box, 3, 3)
        draw_text(painter, box, "simulated", "dim", align=CENTRE)
        return width

    def _paint_readings(self, painter: QPainter, line: QRect) -> None:
        """The readings side by side: first at the left, last at the right, the rest evenly between. Where there is no
        room for all, the last are left to the inspector."""
        each = [
            [(text, role) for text, role in zip(reading, READING_ROLES, strict=True) if text]
            for reading in self.texts.readings
        ]
        widths = [sum(text_width(*part) + READING_GAP_PX for part in parts) for parts in each]
        while len(widths) > 1 and sum(widths) - READING_GAP_PX > line.width():
            del each[-1], widths[-1]
        gap = (line.width() + READING_GAP_PX - sum(widths)) // max(len(widths) - 1, 1)
        x = line.left()
        for parts, width in zip(each, widths, strict=True):
            inner = x
            for text, role in parts:
                colour: Tone = "text" if role is Role.STRONG else "dim"
                where = line.adjusted(inner - line.left(), 0, 0, 0)
                inner += READING_GAP_PX + draw_text(painter, where, text, colour, role)
            x += width + gap

    def _paint_reason(self, painter: QPainter, where: QRect) -> None:
        """Why the device cannot be used, in up to three lines; the tooltip has all of it."""
        x = self._sign(painter, where.left(), where.top() + 9, "error", "error")
        room, words, lines = where.right() - x, self.texts.reason.split(), [""]
        for word in words:
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and text_width(longer, Role.TEXT) > room:
                lines.append(word)
            else:
                lines[-1] = longer
        most = max(where.height() // self._LINE, 1)
        if len(lines) > most:
            lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
        for number, text in enumerate(lines):
            line = QRect(x, where.top() + number * self._LINE, room, self._LINE)
            draw_text(painter, line, text, "soft", Role.TEXT)


class DeviceRow(DeviceItem):
    """The compact row: id, bar, used and total, utilization in one line."""

    _SIDE = 11

    def height_px(self) -> int:
        return ROW_PX

    def _show_bar(self) -> None:
        self.bar.setVisible(not self.texts.reason and self.verdict is None)  # the words need the room

    def _id_width(self) -> int:
        """Room for two digits in every row, so that the bars are aligned; a longer id is never cut off."""
        return max(text_width("vgpu:88", Role.STRONG), text_width(self.texts.id, Role.STRONG)) + 2

    def _util_width(self) -> int:
        return text_width("100 %") + 8

    def _place_bar(self) -> None:
        """A sign has its room in every row: nothing moves when a warning comes, and the bars end in line."""
        left = self._SIDE + self._id_width() + 6
        behind = SIGN_PX + 6 + text_width("88.8/88.8") + 3 + self._util_width() + self._SIDE + 8
        self.bar.setGeometry(left, (ROW_PX - HEIGHT_PX) // 2, max(self.width() - left - behind, 16), HEIGHT_PX)

    def _readings_rect(self) -> QRect:
        return self.rect().adjusted(self.bar.geometry().right() + 1, 0, 0, 0)

    def _looks(self, texts: CardTexts) -> object:
        return texts.short, texts.readings[:1]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        texts = self.texts
        self._paint_frame(painter, 5)
        line = QRect(self._SIDE, 0, self.width() - 2 * self._SIDE, ROW_PX - 1)
        if event.rect().left() < self.bar.x():
            id_room = QRect(line.left(), 0, self._id_width(), line.height())
            draw_text(painter, id_room, texts.id, self._colour(), Role.STRONG)
        rest = QRect(self.bar.geometry().left(), 0, line.right() - self.bar.geometry().left(), line.height())
        if texts.reason:
            self._sign_and_words(painter, rest, "error", texts.reason, Role.LABEL, "error", "soft")
            return
        if self.verdict is not None:
            self._paint_verdict(painter, rest)
            return
        numbers = rest.adjusted(self.bar.width() + 8, 0, 0, 0)
        if texts.alarm or texts.warning or texts.held:
            tone: Tone = "error" if texts.alarm else "warning"
            self._sign(painter, numbers.left(), numbers.center().y() + 1, tone, tone)
        util = texts.readings[0]
        draw_text(painter, numbers, f"{util.value} {util.after}", "dim", align=RIGHT)
        used = numbers.adjusted(0, 0, -self._util_width(), 0)
        draw_text(painter, used, texts.short, "text", align=RIGHT)
