"""Points at a control of the window: a ring around it, and a sentence beside it. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleEvent, QColor, QPainter, QPainterPath, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from devexplorer.gui.widgets.layouts import hbox, push_button, vbox
from devexplorer.gui.widgets.panel import label
from devexplorer.gui.widgets.theme import Role, current_theme, font

RING_PX, RADIUS_PX, ARROW_PX, GAP_PX, WIDTH_PX = 5, 8, 8, 6, 304
GRID_PX = 80
NEAR_PX = 40
"""An arrow that begins farther from the control would point at what lies between: the ring alone shows it then."""
MUST = 1000.0
"""What covering the control itself weighs; a control of a later step weighs 1."""
FAR, ASIDE = 12.0, 2.0
"""What it weighs to have the width and height of the window between, and to be so much out of line."""
LARGE = 1.0
"""What weighs so much is worth lying beside."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Weighed = Sequence[tuple[QRect, float]]


class Ring(QWidget):
    """Round a control, which stays as clickable as it was."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def surround(self, place: QRect) -> None:
        """Lie round this part of the window."""
        wanted = place.adjusted(-RING_PX, -RING_PX, RING_PX, RING_PX).intersected(self._window.rect())
        if wanted != self.geometry() or self.isHidden():
            self.setGeometry(wanted)
            self.show()
            self.raise_()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        halo = QColor(current_theme().accent)
        halo.setAlpha(70)
        for colour, width in ((halo, 6.0), (QColor(current_theme().accent), 2.0)):
            painter.setPen(QPen(colour, width))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(3, 3, -3, -3), RADIUS_PX, RADIUS_PX)
        painter.end()


class Callout(QWidget):
    """What to do, with an arrow to where. It takes no keys from the window."""

    left = Signal()
    """The user wants to be on his own."""
    passed = Signal()
    """The user has read it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._tip: QPoint | None = None
        """Where the arrow points to, in the window."""
        self.heading = label(role=Role.LABEL, words="dim")
        self.words = label(wrap=True)
        self.leave_button = push_button("Leave", self.left, look="quiet", tip="Go on without the guide (Esc)")
        self.next_button = push_button("Next", self.passed, look="primary")
        for button in (self.leave_button, self.next_button):
            button.setFont(font(Role.TEXT))
            button.setAutoDefault(True)  # Enter presses it
        edge = ARROW_PX + 12
        self._column = vbox(
            hbox((self.heading, 1), self.leave_button),
            self.words,
            hbox(None, self.next_button),
            spacing=6,
            margins=(edge, edge - 4, edge - 4, edge - 2),
            parent=self,
        )

    def say(self, heading: str, words: str, button: str) -> None:
        """Show this; `button`: the words of the button that goes on, empty where something else does."""
        self.heading.setText(heading)
        self.words.setText(words)
        self.setAccessibleName(words)
        QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.Alert))  # a screen reader says it
        self.next_button.setText(button)
        self.next_button.setVisible(bool(button))
        self._column.activate()  # the button has come or gone
        self.resize(WIDTH_PX, self._column.totalHeightForWidth(WIDTH_PX))

    def place(self, target: QRect | None, room: QRect, never: Sequence[QRect] = (), rather_not: Weighed = ()) -> None:
        """Lie beside `target`, clear of it and of `never`; as far as there is room also of the others, each with its
        weight. Without a target at the bottom."""
        size = self.size()
        where = QPoint(room.center().x() - size.width() // 2, room.bottom() - size.height() - GAP_PX)
        if target is not None:
            beside = (target, *never, *(rect for rect, weight in rather_not if weight >= LARGE))
            places = _places(size, room.adjusted(GAP_PX, GAP_PX, -GAP_PX, -GAP_PX), beside)
            far = _far(places, size, target) / (room.width() + room.height())
            covered = _covered(places, size, [*((rect, MUST) for rect in (target, *never)), *rather_not])
            where = QPoint(*map(int, places[np.argmin(covered + far)]))
        tip = None
        if target is not None and target.adjusted(-NEAR_PX, -NEAR_PX, NEAR_PX, NEAR_PX).intersects(QRect(where, size)):
            tip = target.center()
        if where != self.pos() or tip != self._tip or self.isHidden():
            self._tip = tip
            self.move(where)
            self.show()
            self.raise_()
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current_theme()
        box = QRectF(self.rect()).adjusted(ARROW_PX, ARROW_PX, -ARROW_PX, -ARROW_PX)
        path = QPainterPath()
        path.addRoundedRect(box, RADIUS_PX, RADIUS_PX)
        if self._tip is not None:
            arrow = QPainterPath()
            arrow.addPolygon(_arrow(box, QPointF(self._tip - self.pos())))
            arrow.closeSubpath()
            path = path.united(arrow)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setBrush(QColor(theme.card))
        painter.setPen(QPen(QColor(theme.accent), 1.5))
        painter.drawPath(path)
        painter.end()


def _far(places: Ints, size: QSize, target: QRect) -> Floats:
    """For each place of a box: the weighed pixels between it and its target, and between their middles."""
    first, last = (target.left(), target.top()), (target.right() + 1, target.bottom() + 1)
    between = np.maximum(first - places - (size.width(), size.height()), places - last).clip(0)
    middle = target.center() - QPoint(size.width() // 2, size.height() // 2)
    result: Floats = FAR * between.sum(axis=1) + ASIDE * np.abs(places - (middle.x(), middle.y())).sum(axis=1)
    return result


def _covered(places: Ints, size: QSize, weighed: Weighed) -> Floats:
    """For each place of a box: how much of these rectangles it covers; that it touches one counts as well."""
    rects = np.array([(rect.left(), rect.top(), rect.width(), rect.height()) for rect, _ in weighed])
    first, last = places[:, None, :], places[:, None, :] + (size.width(), size.height())
    common = np.minimum(last, rects[:, :2] + rects[:, 2:]) - np.maximum(first, rects[:, :2])
    share = common.clip(0).prod(axis=2) / np.maximum(rects[:, 2:].prod(axis=1), 1)
    result: Floats = np.where(share > 0, 0.5 + share, 0.0) @ np.array([weight for _, weight in weighed])
    return result


def _places(size: QSize, room: QRect, around: Sequence[QRect]) -> Ints:
    """Where a box of this size can be in the room: beside each of these, and on a grid."""
    right, bottom = max(room.right() - size.width(), room.left()), max(room.bottom() - size.height(), room.top())
    xs, ys = {*range(room.left(), right, GRID_PX), right}, {*range(room.top(), bottom, GRID_PX), bottom}
    for rect in around:
        xs |= {rect.left() - GAP_PX - size.width(), rect.right() + GAP_PX, rect.center().x() - size.width() // 2}
        ys |= {rect.top() - GAP_PX - size.height(), rect.bottom() + GAP_PX, rect.center().y() - size.height() // 2}
    inside = np.unique(np.clip([*xs], room.left(), right)), np.unique(np.clip([*ys], room.top(), bottom))
    return np.stack(np.meshgrid(*inside), axis=-1).reshape(-1, 2)


def _arrow(box: QRectF, tip: QPointF) -> QPolygonF:
    """The arrow on the side of `box` that faces `tip`; empty where the tip is inside."""
    keep = RADIUS_PX + ARROW_PX
    x = min(max(tip.x(), box.left() + keep), box.right() - keep)
    y = min(max(tip.y(), box.top() + keep), box.bottom() - keep)
    a = ARROW_PX
    if tip.y() < box.top():
        points = ((x - a, box.top() + 1), (x, box.top() - a + 1), (x + a, box.top() + 1))
    elif tip.y() > box.bottom():
        points = ((x - a, box.bottom() - 1), (x, box.bottom() + a - 1), (x + a, box.bottom() - 1))
    elif tip.x() < box.left():
        points = ((box.left() + 1, y - a), (box.left() - a + 1, y), (box.left() + 1, y + a))
    else:
        points = ((box.right() - 1, y - a), (box.right() + a - 1, y), (box.right() - 1, y + a))
    return QPolygonF([QPointF(*point) for point in points])
