"""The tree view of the objects panel: arrows, hover, focus, how a row is painted, and the picture that a drag carries.
Main thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import (
    QEvent,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QDrag,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHeaderView,
    QLabel,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTreeView,
)

from devexplorer.core.base import objects_text
from devexplorer.core.records import Finding
from devexplorer.core.session.findings import place_text
from devexplorer.gui.actions import encode
from devexplorer.gui.objects.item_model import (
    BADGES_ROLE,
    DEVICES_ROLE,
    FINDING_ROLE,
    PROGRESS_ROLE,
    Index,
    ObjectsModel,
    TreeColumn,
)
from devexplorer.gui.widgets import (
    RIGHT,
    Look,
    Role,
    Tone,
    colour_of,
    current_theme,
    draw_text,
    font,
    keep_gutter,
    paint_chips,
    paint_device,
    paint_progress,
    pixmap,
    press_in_place,
    severity_tone,
    text_width,
)

_NARROW = {TreeColumn.TYPE: 88, TreeColumn.SHAPE: 90, TreeColumn.DTYPE: 62, TreeColumn.DEVICE: 112, TreeColumn.MIB: 62}
_LOW = {TreeColumn.TYPE: 132, TreeColumn.SHAPE: 86, TreeColumn.DTYPE: 62, TreeColumn.DEVICE: 106, TreeColumn.MIB: 58}
"""In a low window the tree is narrower; `AdaptiveAvgPool2d` has room all the same."""
_WIDTHS = {
    TreeColumn.TYPE: 136,
    TreeColumn.SHAPE: 108,
    TreeColumn.DTYPE: 74,
    TreeColumn.DEVICE: 122,
    TreeColumn.MIB: 66,
}
_WIDE = {TreeColumn.TYPE: 220, TreeColumn.SHAPE: 160, TreeColumn.DTYPE: 110, TreeColumn.DEVICE: 240, TreeColumn.MIB: 92}
_WIDEST = {
    TreeColumn.TYPE: 360,
    TreeColumn.SHAPE: 260,
    TreeColumn.DTYPE: 180,
    TreeColumn.DEVICE: 420,
    TreeColumn.MIB: 120,
}
_TIERS = ((1700, _WIDEST), (1150, _WIDE), (720, _WIDTHS), (540, _LOW), (0, _NARROW))
"""Widths of the columns in a tree that is at least so wide: the eye has to find its way from a name to its size."""
_SPARE_BELOW_PX = {TreeColumn.TYPE: 520, TreeColumn.SHAPE: 600, TreeColumn.DTYPE: 376}
"""Columns that are hidden in a very narrow tree: the inspector says the same of what is selected, and the device has to
be in sight."""
_NAME_PX = 132
"""What the name keeps: where the other columns leave it less, the tree scrolls to the side."""
_INDENT = 16


class ObjectsTree(QTreeView):
    """A `QTreeView` for `ObjectsModel`, with several rows selectable at once and nothing to edit."""

    drag_started = Signal(object)
    """The targets that are dragged now (tuple of str)."""
    drag_ended = Signal()
    finding_opened = Signal(object, int)
    """Double-click or Return on a finding: name of the object (str), number of the finding in its diagnosis."""

    def __init__(self) -> None:
        super().__init__(uniformRowHeights=True, indentation=_INDENT)
        self._hovered = QPersistentModelIndex()
        self._widths = _WIDTHS
        self._waits = False
        self._pressed: QPoint | None = None
        """Where the left button went down on a row."""
        self._has_dragged = False
        self.nothing = ""
        """Shown where there is no row."""
        self.setAccessibleName("objects")
        keep_gutter(self)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)  # the first row is never cut off
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setMouseTracking(True)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.activated.connect(self._open_finding)

    def fit_columns(self) -> None:
        """Give the columns their widths; the name takes what is left. After the model is set."""
        header = self.header()
        header.setFont(font(Role.LABEL))
        header.setFixedHeight(24)
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(40)
        header.setSectionsMovable(False)
        header.setHighlightSections(False)
        header.setSectionsClickable(True)
        header.setSectionResizeMode(TreeColumn.NAME, QHeaderView.ResizeMode.Stretch)
        self._set_widths(_WIDTHS)

    def _set_widths(self, widths: dict[TreeColumn, int]) -> None:
        self._widths = widths
        for column, width in widths.items():
            self.header().resizeSection(column, width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = self.viewport().width()
        fitting = next(widths for least_px, widths in _TIERS if width >= least_px)
        if self.model() is not None and fitting is not self._widths:  # only then: in between the user's own widths stay
            self._set_widths(fitting)
        if self.model() is not None:
            for column, least_px in _SPARE_BELOW_PX.items():
                self.setColumnHidden(column, width < least_px)
            self._fit_name(width)
        super().resizeEvent(event)

    def _fit_name(self, width: int) -> None:
        header = self.header()
        others = sum(header.sectionSize(column) for column in TreeColumn if column != TreeColumn.NAME)  # 0 where hidden
        stretches = width - others >= _NAME_PX
        header.setSectionResizeMode(
            TreeColumn.NAME, QHeaderView.ResizeMode.Stretch if stretches else QHeaderView.ResizeMode.Interactive
        )
        if not stretches:
            header.resizeSection(TreeColumn.NAME, _NAME_PX)

    @contextmanager
    def laid_out_once(self) -> Iterator[None]:
        """Rows that come, go, move and are opened meanwhile are laid out once, at the end: with 10,000 rows
        that takes a while."""
        self._waits = True
        self.scheduleDelayedItemsLayout()
        try:
            yield
        finally:
            self._waits = False
            self.executeDelayedItemsLayout()

    def doItemsLayout(self) -> None:
        if not self._waits:
            super().doItemsLayout()

    def selectAll(self) -> None:
        """Every row that could be scrolled to. Qt would ask for the parent of each of them some 30 times."""
        model = self.model()
        assert isinstance(model, ObjectsModel)
        self.selectionModel().select(
            model.everything(self.isExpanded), QItemSelectionModel.SelectionFlag.ClearAndSelect
        )

    def currentChanged(self, current: Index, previous: Index) -> None:
        super().currentChanged(current, previous)
        self.viewport().update()  # the frame is round a whole row, and Qt repaints the cell alone

    def _open_finding(self, index: QModelIndex) -> None:
        model = self.model()
        assert isinstance(model, ObjectsModel)
        result = model.finding_at(index)
        if result is not None:
            self.finding_opened.emit(*result)

    def drawRow(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        where: QRect = option.rect
        if self.selectionModel().isSelected(index):
            painter.fillRect(where, current_theme().selection)
        elif _same_row(self._hovered, index):
            painter.fillRect(where, current_theme().hover)
        super().drawRow(painter, option, index)
        if self.hasFocus() and _same_row(self.currentIndex(), index):
            painter.save()
            painter.setPen(current_theme().focus)
            painter.drawRect(where.adjusted(0, 0, -1, -1))
            painter.restore()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.nothing and self.model().rowCount() == 0:
            painter = QPainter(self.viewport())
            painter.setFont(font(Role.TEXT))
            painter.setPen(current_theme().dim)
            painter.drawText(
                self.viewport().rect().adjusted(12, 24, -12, 0), Qt.AlignmentFlag.AlignHCenter, self.nothing
            )
            painter.end()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        press_in_place(self, super().mousePressEvent, event)
        where = event.position().toPoint()
        is_row = event.button() == Qt.MouseButton.LeftButton and self.indexAt(where).isValid()
        self._pressed, self._has_dragged = where if is_row else None, False

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pressed = None
        super().mouseReleaseEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is not None and event.buttons() & Qt.MouseButton.LeftButton:
            far = (event.position().toPoint() - self._pressed).manhattanLength() >= QApplication.startDragDistance()
            if far and not self._has_dragged:
                self._has_dragged = True
                self.setState(QAbstractItemView.State.DraggingState)
                self.startDrag(Qt.DropAction.MoveAction | Qt.DropAction.CopyAction)
                self.setState(QAbstractItemView.State.NoState)
            return
        self._hover(self.indexAt(event.position().toPoint()))
        super().mouseMoveEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(QModelIndex())
        super().leaveEvent(event)

    def _hover(self, index: QModelIndex) -> None:
        now = QPersistentModelIndex(index.siblingAtColumn(0))
        if now != self._hovered:
            self._hovered = now
            self.viewport().update()

    def startDrag(self, supported: Qt.DropAction) -> None:
        model = self.model()
        assert isinstance(model, ObjectsModel)
        targets = model.targets(self.selectionModel().selection())
        if not targets:
            return
        drag = QDrag(self)
        drag.setMimeData(encode(targets))
        drag.setPixmap(self.drag_picture(targets))
        drag.setHotSpot(QPoint(-12, -8))
        self.drag_started.emit(targets)
        drag.exec(supported, Qt.DropAction.MoveAction)
        self.drag_ended.emit()

    def drag_picture(self, targets: tuple[str, ...]) -> QPixmap:
        """What hangs at the pointer: the name, or how many."""
        picture = QLabel(objects_text(targets), textFormat=Qt.TextFormat.PlainText)
        picture.setStyleSheet(
            f"color: {current_theme().text}; background: {current_theme().selection}; padding: 4px 10px;"
            f" border: 1px solid {current_theme().accent};"
        )
        return picture.grab()


def _same_row(one: Index, other: Index) -> bool:
    return one.row() == other.row() and one.parent() == other.parent()


ROW_PX = 26
_PAD = 12
"""Right of a column of numbers."""


class ChipsDelegate(QStyledItemDelegate):
    """Paints every column of the tree; the view paints selection and hover."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def sizeHint(self, _option: QStyleOptionViewItem, _index: Index) -> QSize:
        return QSize(40, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        where: QRect = option.rect
        model = index.model()
        finding = index.data(FINDING_ROLE) if isinstance(model, ObjectsModel) and model.has_findings else None
        painter.save()
        match index.column():
            case TreeColumn.MIB if finding is not None:  # the last one: its words may go across all the others
                assert isinstance(option.widget, QTreeView)
                left = option.widget.visualRect(index.sibling(index.row(), TreeColumn.NAME)).left()
                self._paint_finding(painter, where.adjusted(left - where.left(), 0, 0, 0), finding)
            case _ if finding is not None:
                pass
            case TreeColumn.DEVICE:
                devices = index.data(DEVICES_ROLE) or ()
                paint_chips(
                    painter, where, devices,
                    lambda box, device: paint_device(painter, box, device, self._look),
                )  # fmt: skip
            case TreeColumn.NAME:
                self._paint_name(painter, where, index)
                if isinstance(model, ObjectsModel) and model.working:
                    paint_progress(painter, where.adjusted(4, 0, -8, 0), index.data(PROGRESS_ROLE))
            case TreeColumn.SHAPE | TreeColumn.MIB:
                tone: Tone = "text" if index.column() == TreeColumn.MIB else "dim"
                # The left end of a shape is its batch, the right end its image: the middle can go.
                room, cut = where.adjusted(0, 0, -_PAD, 0), Qt.TextElideMode.ElideMiddle
                draw_text(painter, room, index.data(), tone, Role.TEXT, RIGHT, cut)
            case _:
                draw_text(painter, where.adjusted(0, 0, -6, 0), index.data(), "dim", Role.TEXT)
        painter.restore()

    def _paint_name(self, painter: QPainter, where: QRect, index: Index) -> None:
        where = where.adjusted(4, 0, -8, 0)
        x = where.left() + draw_text(painter, where, index.data(), "text", Role.TEXT) + 10
        for badge in index.data(BADGES_ROLE) or ():
            words, warning = badge.words, badge.warning
            if where.right() - x < 12:
                return
            tone: Tone = "dim"
            if badge.error:
                tone = "error"
            elif warning:
                tone = "warning"
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
