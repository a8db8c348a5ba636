"""How a row of the object tree is painted: device chips, badges, numbers at the right. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem, QTreeView

from devexplorer.core.records import Finding
from devexplorer.gui.objects.cells import BADGES_ROLE, DEVICES_ROLE, FINDING_ROLE, PROGRESS_ROLE, Column
from devexplorer.gui.objects.findings import place_text
from devexplorer.gui.objects.item_model import ObjectsModel
from devexplorer.gui.widgets import (
    RIGHT,
    Look,
    Role,
    Tone,
    colour_of,
    draw_text,
    paint_chips,
    paint_device,
    paint_progress,
    pixmap,
    severity_tone,
    text_width,
)

ROW_PX = 26
_PAD = 12
"""Right of a column of numbers."""


class ChipsDelegate(QStyledItemDelegate):
    """Paints every column of the tree; the view paints selection and hover."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

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
                devices = index.data(DEVICES_ROLE) or ()
                paint_chips(
                    painter, where, devices,
                    lambda box, device: paint_device(painter, box, device, self._look),
                )  # fmt: skip
            case Column.NAME:
                self._paint_name(painter, where, index)
                if isinstance(model, ObjectsModel) and model.working:
                    paint_progress(painter, where.adjusted(4, 0, -8, 0), index.data(PROGRESS_ROLE))
            case Column.SHAPE | Column.MIB:
                tone: Tone = "text" if index.column() == Column.MIB else "dim"
                # The left end of a shape is its batch, the right end its image: the middle can go.
                room, cut = where.adjusted(0, 0, -_PAD, 0), Qt.TextElideMode.ElideMiddle
                draw_text(painter, room, index.data(), tone, Role.TEXT, RIGHT, cut)
            case _:
                draw_text(painter, where.adjusted(0, 0, -6, 0), index.data(), "dim", Role.TEXT)
        painter.restore()

    def _paint_name(self, painter: QPainter, where: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
        where = where.adjusted(4, 0, -8, 0)
        x = where.left() + draw_text(painter, where, index.data(), "text", Role.TEXT) + 10
        for badge in index.data(BADGES_ROLE) or ():
            words, warning = badge.words, badge.warning
            if where.right() - x < 12:
                return
            tone: Tone = "error" if badge.error else "warning" if warning else "dim"
            if warning or badge.error:
                painter.drawPixmap(
                    x, where.center().y() - 5, self._sign(painter, "error" if badge.error else "warning")
                )
                x += 15
            x += draw_text(painter, QRect(x, where.top(), where.right() - x, where.height()), words, tone) + 8

    def _sign(self, painter: QPainter, severity: str) -> QPixmap:
        return pixmap(severity, colour_of(severity_tone(severity)), 12, painter.device().devicePixelRatio())

    def _paint_finding(self, painter: QPainter, where: QRect, finding: Finding) -> None:
        """Its sign, what is wrong, and at the right the line."""
        painter.drawPixmap(where.left() + 4, where.center().y() - 5, self._sign(painter, finding.severity))
        place = place_text(finding)
        words = where.adjusted(22, 0, -_PAD - (text_width(place) + 16 if place else 0), 0)
        draw_text(painter, words, str(finding.message), "soft", Role.TEXT)
        draw_text(painter, where.adjusted(0, 0, -_PAD, 0), place, "dim", align=RIGHT)
