"""How a row of the object tree is painted: device chips, badges, numbers at the right. Main thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPixmap
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem, QTreeView, QWidget

from devexplorer.core.records.doctor import Finding
from devexplorer.gui.objects.cells import BADGES_ROLE, DEVICES_ROLE, FINDING_ROLE, Column
from devexplorer.gui.objects.findings import place_text
from devexplorer.gui.objects.item_model import ObjectsModel
from devexplorer.gui.widgets.icons import pixmap
from devexplorer.gui.widgets.layouts import CENTRE, RIGHT
from devexplorer.gui.widgets.theme import Role, Theme, device_colour, device_pen, font, severity_colour

ROW_PX = 26
_CHIP_PX = 18
_GAP = 4
_PAD = 12
"""Right of a column of numbers."""


class ChipsDelegate(QStyledItemDelegate):
    """Paints every column of the tree; the view paints selection and hover."""

    def __init__(self, theme: Theme, look: Callable[[str], tuple[int, bool]], parent: QWidget | None = None) -> None:
        """`look`: the palette index of a device, and whether it is simulated."""
        super().__init__(parent)
        self._look = look
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self._text, self._label = font(Role.TEXT), font(Role.LABEL)
        self._text_metrics, self._label_metrics = QFontMetrics(self._text), QFontMetrics(self._label)
        self._signs: dict[tuple[str, float], QPixmap] = {}

    def sizeHint(self, _option: QStyleOptionViewItem, _index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(40, ROW_PX)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        where: QRect = option.rect
        model = index.model()
        finding = index.data(FINDING_ROLE) if isinstance(model, ObjectsModel) and model.has_findings else None
        painter.save()
        match index.column():
            case Column.MIB if finding is not None:  # the last one: its words may go across all the others
                assert isinstance(option.widget, QTreeView)
                left = option.widget.visualRect(index.sibling(index.row(), Column.NAME)).left()
                self._paint_finding(painter, where.adjusted(left - where.left(), 0, 0, 0), finding)
            case _ if finding is not None:
                pass
            case Column.DEVICE:
                self._paint_chips(painter, where, index.data(DEVICES_ROLE) or ())
            case Column.NAME:
                self._paint_name(painter, where, index)
            case Column.SHAPE | Column.MIB:
                colour = self._theme.text if index.column() == Column.MIB else self._theme.dim
                self._words(painter, where.adjusted(0, 0, -_PAD, 0), index.data(), colour, right=True)
            case _:
                self._words(painter, where.adjusted(0, 0, -6, 0), index.data(), self._theme.dim)
        painter.restore()

    def _words(self, painter: QPainter, where: QRect, text: str, colour: str, *, right: bool = False) -> int:
        painter.setFont(self._text)
        painter.setPen(QColor(colour))
        # The left end of a shape is its batch, the right end its image: the middle can go.
        how = Qt.TextElideMode.ElideMiddle if right else Qt.TextElideMode.ElideRight
        text = self._text_metrics.elidedText(text, how, where.width())
        side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
        painter.drawText(where, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text)
        return self._text_metrics.horizontalAdvance(text)

    def _paint_name(self, painter: QPainter, where: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
        where = where.adjusted(4, 0, -8, 0)
        x = where.left() + self._words(painter, where, index.data(), self._theme.text) + 10
        for badge in index.data(BADGES_ROLE) or ():
            words, warning = badge.words, badge.warning
            if where.right() - x < 12:
                return
            colour = self._theme.error if badge.error else self._theme.warning if warning else self._theme.dim
            if warning or badge.error:
                painter.drawPixmap(
                    x, where.center().y() - 5, self._sign(painter, "error" if badge.error else "warning")
                )
                x += 15
            painter.setFont(self._label)
            painter.setPen(QColor(colour))
            text = self._label_metrics.elidedText(words, Qt.TextElideMode.ElideRight, where.right() - x)
            painter.drawText(
                QRect(x, where.top(), where.right() - x, where.height()), Qt.AlignmentFlag.AlignVCenter, text
            )
            x += self._label_metrics.horizontalAdvance(text) + 8

    def _sign(self, painter: QPainter, severity: str) -> QPixmap:
        key = severity, painter.device().devicePixelRatio()
        if key not in self._signs:
            self._signs[key] = pixmap(severity, severity_colour(severity, self._theme), 12, key[1])
        return self._signs[key]

    def _paint_finding(self, painter: QPainter, where: QRect, finding: Finding) -> None:
        """Its sign, what is wrong, and at the right the line."""
        painter.drawPixmap(where.left() + 4, where.center().y() - 5, self._sign(painter, finding.severity))
        place = place_text(finding)
        width = self._label_metrics.horizontalAdvance(place)
        words = where.adjusted(22, 0, -_PAD - (width + 16 if place else 0), 0)
        self._words(painter, words, str(finding.message), self._theme.soft)
        painter.setFont(self._label)
        painter.setPen(QColor(self._theme.dim))
        side = RIGHT
        painter.drawText(where.adjusted(0, 0, -_PAD, 0), side | Qt.TextFlag.TextSingleLine, place)

    def _paint_chips(self, painter: QPainter, where: QRect, devices: tuple[str, ...]) -> None:
        """One chip per device; those that have no room are counted behind the last: `+3`."""
        painter.setFont(self._label)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        x, right = float(where.left()), where.right() - 2.0
        for at, device in enumerate(devices):
            width = self._label_metrics.horizontalAdvance(device) + 12
            rest = len(devices) - at
            more = self._label_metrics.horizontalAdvance(f"+{rest - 1}") + _GAP if rest > 1 else 0
            if at and x + width + more > right:
                painter.setPen(QColor(self._theme.dim))
                place = QRectF(x, where.top(), right - x + 2, where.height())
                painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, f"+{rest}")
                return
            index, simulated = self._look(device)
            box = QRectF(x + 0.5, where.center().y() - _CHIP_PX / 2 + 1.5, width, _CHIP_PX - 1)
            pen = device_pen(index, self._theme, simulated=simulated)
            painter.setPen(pen)
            painter.setBrush(QColor(self._theme.panel))  # so that the name keeps its contrast in a selected row
            painter.drawRoundedRect(box, 4, 4)
            painter.setPen(QColor(device_colour(index, self._theme)))
            painter.drawText(box, CENTRE, device)
            x += width + _GAP
