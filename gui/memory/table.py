"""The table of the memory breakdown: a swatch before each part, rows that expand. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter

from devexplorer.gui.memory.rows import COLUMNS, Key
from devexplorer.gui.widgets import CPU, Role, Tone, current_theme, draw_text, paint_part
from devexplorer.gui.widgets.table import PAD_PX, Index, Padded, RowsModel, RowsTable

SWATCH_PX, ARROW_PX, GAP_PX = 12, 8, 8


class PartDelegate(Padded):
    """Paints the first column: an arrow where there is more, the part's look as in the bar, its name."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__()
        self._model = model
        self.openable: frozenset[str] = frozenset()
        self.opened: frozenset[str] = frozenset()
        self.device = CPU

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        key = self._model.rows[index.row()].key
        assert isinstance(key, Key)
        where = QRectF(cell)
        x, middle = where.left() + PAD_PX, where.center().y()
        if not key.child and key.part in self.openable:
            arrow = "▾" if key.part in self.opened else "▸"
            draw_text(painter, QRectF(x, where.top(), ARROW_PX, where.height()), arrow, "dim", Role.TEXT)
        x += ARROW_PX + GAP_PX
        if key.part and not key.child:
            swatch = QRectF(x, middle - SWATCH_PX / 2, SWATCH_PX, SWATCH_PX)
            paint_part(painter, key.part, swatch, self.device)
            painter.setPen(current_theme().border_strong)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(swatch.adjusted(0.5, 0.5, -0.5, -0.5))
        x += SWATCH_PX + GAP_PX
        room = QRectF(x, where.top(), where.right() - x - PAD_PX, where.height())
        tone: Tone = "soft" if key.child else "text"
        role = Role.TEXT if key.part else Role.STRONG
        draw_text(painter, room, index.data(), tone, role, cut=Qt.TextElideMode.ElideMiddle)
        return True


class PartsTable(RowsTable):
    """`toggled` asks to open or close a part: by a click on its row, Right and Left, Enter and Space."""

    toggled = Signal(str)

    def __init__(self) -> None:
        self.rows_model = RowsModel(COLUMNS)
        super().__init__(self.rows_model, "Parts of the memory", [250, 92, 128, 76, 180], gives_up=(2, 4))
        self.rows_model.setParent(self)
        self.delegate = PartDelegate(self.rows_model)
        self.setItemDelegateForColumn(0, self.delegate)
        self.clicked.connect(self._clicked)

    def key_at(self, row: int) -> Key:
        """What a row is about."""
        key = self.rows_model.rows[row].key
        assert isinstance(key, Key)
        return key

    def select_part(self, part: str) -> None:
        """Select the row of a part."""
        self.select_key(Key(part))

    def _clicked(self, index: QModelIndex) -> None:
        self._toggle(self.key_at(index.row()))

    def _toggle(self, key: Key) -> None:
        if not key.child and key.part in self.delegate.openable:
            self.toggled.emit(key.part)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row = self.currentIndex().row()
        if row >= 0:
            key = self.key_at(row)
            is_open = key.part in self.delegate.opened
            wanted = {Qt.Key.Key_Right: not is_open, Qt.Key.Key_Left: is_open}
            press = Qt.Key(event.key())
            if press in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) or wanted.get(press, False):
                self._toggle(Key(key.part))
                return
        super().keyPressEvent(event)
