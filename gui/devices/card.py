"""One device as a card or, where there are many, as a compact row. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent, QPen

from devexplorer.gui.devices.card_text import CardTexts
from devexplorer.gui.devices.item import SIGN_PX, DeviceItem
from devexplorer.gui.widgets import CENTRE, HEIGHT_PX, RIGHT, Role, current_theme, draw_text, font, text_width

CARD_PX, WARNING_PX, ROW_PX = 91, 19, 24
"""Heights of a card, of the line more where it carries a warning or an alarm, and of a compact row."""


class DeviceCard(DeviceItem):
    """The full card: name, the one number, the bar, the readings."""

    _LINE, _NUMBER_LINE, _TOP, _SIDE = 17, 26, 8, 14

    def height_px(self) -> int:
        return CARD_PX + WARNING_PX * (bool(self.texts.warning) + bool(self.texts.alarm))

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
            self._paint_alarm(painter, QRect(left, self.height() - self._LINE - 6, right - left, self._LINE))
            return
        line = QRect(left, self._TOP + self._LINE, right - left, self._NUMBER_LINE)
        taken = draw_text(painter, line, texts.used, "text", Role.NUMBER)
        taken += 6 + draw_text(painter, line.adjusted(taken + 6, 2, 0, 2), texts.of_total, "dim", Role.TEXT)
        self._paint_held(painter, line.adjusted(taken + 12, 2, 0, 2))
        bottom = QRect(left, self.bar.geometry().bottom() + 6, right - left, self._LINE)
        if self.verdict is not None:
            self._paint_verdict(painter, bottom)
        else:
            self._paint_readings(painter, bottom)
        if texts.warning:
            bottom = bottom.translated(0, self._LINE + 2)
            self._sign_and_words(painter, bottom, "warning", texts.warning, Role.LABEL, "warning")
        if texts.alarm:
            self._paint_alarm(painter, bottom.translated(0, self._LINE + 2))

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

    def _paint_held(self, painter: QPainter, where: QRect) -> None:
        """What holds the clocks down, at the right end of the line of the big number, where there is always room for
        the sign."""
        held = self.texts.held
        if not held:
            if self.progress is not None:
                draw_text(painter, where, self.progress.words, "dim", align=RIGHT)
            return
        x = max(where.right() - text_width(held) - SIGN_PX - 6, where.left())
        x = self._sign(painter, x, where.center().y(), "warning", "warning")
        draw_text(painter, QRect(x, where.top(), where.right() - x + 1, where.height()), held, "warning")

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
                (reading.before, plain, current_theme().dim),
                (reading.value, strong, current_theme().text),
                (reading.after, plain, current_theme().dim),
            ):
                if text:
                    painter.setFont(which)
                    painter.setPen(colour)
                    advance = QFontMetrics(which).horizontalAdvance(text)
                    painter.drawText(
                        QRectF(inner, line.top(), advance + 2, line.height()), Qt.AlignmentFlag.AlignVCenter, text
                    )
                    inner += advance + 4
            x += width + gap

    def _reading_width(self, reading: tuple[str, str, str]) -> int:
        words = [text for text in reading if text]
        return sum(text_width(text, Role.TEXT) for text in words) + 4 * (len(words) - 1) + 1

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
        return ROW_PX + (WARNING_PX if self.texts.alarm else 0)

    def _show_bar(self) -> None:
        self.bar.setVisible(not self.texts.reason and self.verdict is None)  # the words need the room

    def _id_width(self) -> int:
        """Room for two digits in every row, so that the bars are aligned; a longer id is never cut off."""
        return max(text_width("vgpu:88", Role.STRONG), text_width(self.texts.id, Role.STRONG)) + 2

    def _numbers_width(self) -> int:
        return text_width("88.8/88.8") + 3

    def _util_width(self) -> int:
        return text_width("100 %") + 8

    def _beside_bar_px(self) -> int:
        """Width of all but the bar. A sign has its room in every row: nothing moves when a warning comes, and the
        bars end in line."""
        left, sign = self._SIDE + self._id_width() + 6, SIGN_PX + 6
        return left + sign + self._numbers_width() + self._util_width() + self._SIDE + 8

    def _place_bar(self) -> None:
        left, width = self._SIDE + self._id_width() + 6, self.width() - self._beside_bar_px()
        self.bar.setGeometry(left, (ROW_PX - HEIGHT_PX) // 2, max(width, 16), HEIGHT_PX)

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
        self._paint_alarm(painter, QRect(line.left(), ROW_PX - 3, line.width(), WARNING_PX))
        rest = QRect(self.bar.geometry().left(), 0, line.right() - self.bar.geometry().left(), line.height())
        if texts.reason:
            self._sign_and_words(painter, rest, "error", texts.reason, Role.LABEL, "error", "soft")
            return
        if self.verdict is not None:
            self._paint_verdict(painter, rest)
            return
        numbers = rest.adjusted(self.bar.width() + 8, 0, 0, 0)
        if texts.warning or texts.held:
            self._sign(painter, numbers.left(), numbers.center().y() + 1, "warning", "warning")
        util = texts.readings[0]
        draw_text(painter, numbers, f"{util.value} {util.after}", "dim", align=RIGHT)
        used = numbers.adjusted(0, 0, -self._util_width(), 0)
        draw_text(painter, used, texts.short, "text", align=RIGHT)
