"""Code on screen: a block of Python with a copy button (comments are dimmed, device names have their devices' colours);
a few lines of the user's Python with their numbers, one of them marked; a patch as a diff. Main thread."""

from __future__ import annotations

import re
from typing import ClassVar

from PySide6.QtCore import QPoint, QRect, QSize, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QTextEdit, QWidget

from devexplorer.core.records import CodeLines
from devexplorer.core.session import State
from devexplorer.gui.widgets.layouts import LEFT, RIGHT, push_button
from devexplorer.gui.widgets.theme import Role, current_theme, device_colour, font, theme_changed

_TOKEN = re.compile(r"(?P<comment>#.*)|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")
_COPIED_MS = 1500
_BUTTON_PX = 7


class Colours(QSyntaxHighlighter):
    """Comments dim, strings soft, and a string that names a device in the device's colour."""

    def __init__(self, document: QTextDocument, state: State | None = None) -> None:
        super().__init__(document)
        self._state = state
        theme_changed.connect(self.rehighlight)

    def highlightBlock(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            look = QTextCharFormat()
            colour = current_theme().dim
            if token["string"] is not None:
                device = self._state.devices.get(token["string"][1:-1]) if self._state is not None else None
                colour = current_theme().soft if device is None else device_colour(device.colour)
            look.setForeground(QColor(colour))
            self.setFormat(token.start(), token.end() - token.start(), look)


class CodeBlock(QPlainTextEdit):
    """Read-only code, as high as its lines."""

    def __init__(self, name: str) -> None:
        super().__init__(readOnly=True, lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap, tabChangesFocus=True)
        self.setProperty("look", "code")
        self.setFont(font(Role.CODE))
        self.setAccessibleName(name)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(0)

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self.font())
        widest = max(metrics.horizontalAdvance(line) for line in self.toPlainText().split("\n"))
        bar = self.horizontalScrollBar().sizeHint().height() if widest > self.viewport().width() else 0
        top = self.viewportMargins().top()
        return QSize(200, max(self.blockCount(), 1) * metrics.lineSpacing() + 20 + bar + top)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.sizeHint().height())


class CodeView(CodeBlock):
    """Code with a button that copies it."""

    highlighter: ClassVar[type[Colours]] = Colours

    def __init__(self, state: State | None = None) -> None:
        super().__init__("Python that does the same")
        self._colours = self.highlighter(self.document(), state)
        self.copy_button = push_button("copy", self._copy, parent=self, look="copy", name="copy the code")
        self.copy_button.setFont(font(Role.LABEL))
        self.copy_button.setCursor(Qt.CursorShape.PointingHandCursor)
        self._reset = QTimer(self, singleShot=True, interval=_COPIED_MS)
        self._reset.timeout.connect(lambda: self.copy_button.setText("copy"))

    def tab_stops(self) -> tuple[QWidget, ...]:
        """See `reading_order`: the button lies over the code, in no layout."""
        return (self.copy_button,)

    def set_code(self, code: str) -> None:
        """Show `code`."""
        if code != self.toPlainText():
            self.setPlainText(code)
            self.updateGeometry()

    def recolour(self) -> None:
        """Colour again, after theme or devices changed."""
        self._colours.rehighlight()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The button is in the top right corner, in a row of its own: it never covers code."""
        super().resizeEvent(event)
        size = self.copy_button.sizeHint()
        self.copy_button.setGeometry(self.width() - size.width() - _BUTTON_PX, _BUTTON_PX, size.width(), size.height())
        edge = self.viewport().y() - self.viewportMargins().top()
        self.setViewportMargins(0, _BUTTON_PX + size.height() - edge, 0, 0)
        self.updateGeometry()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.toPlainText())
        self.copy_button.setText("copied")
        self._reset.start()
        self.resizeEvent(QResizeEvent(self.size(), self.size()))


_GUTTER_PX = 10
"""Left of the numbers, and right of them."""
_MARK = "▸"


class SourceView(CodeBlock):
    """Read-only lines without a scroll bar; the marked one has a band and an arrow."""

    def __init__(self) -> None:
        super().__init__("The code around the line")
        self._lines: CodeLines | None = None
        self.line = 0
        """Number of the marked line; 0: none is shown."""
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._gutter = _Gutter(self)
        self._colours = Colours(self.document())
        theme_changed.connect(self._mark)
        self.updateRequest.connect(lambda _where, _dy: self._gutter.update())

    @property
    def marked(self) -> str:
        """The text of the marked line."""
        if self._lines is None or not 0 <= self.line - self._lines.first < len(self._lines.lines):
            return ""
        return self._lines.lines[self.line - self._lines.first]

    def set_lines(self, lines: CodeLines | None, line: int) -> None:
        """Show these lines and mark the one with this number."""
        if (lines, line) == (self._lines, self.line):
            return
        self._lines, self.line = lines, line if lines is not None else 0
        self.setPlainText("" if lines is None else "\n".join(lines.lines))
        self.setAccessibleDescription(f"line {line}: {self.marked.strip()}" if self.marked else "")
        self._make_room()
        self._mark()

    def show_line(self) -> None:
        """Scroll to the beginning of the marked line and put the cursor there."""
        if self._lines is not None:
            self.setTextCursor(self._cursor())
            self.horizontalScrollBar().setValue(0)
            self.ensureCursorVisible()

    def line_rect(self) -> QRect:
        """Where the marked line is, in pixels of this widget."""
        where = self.cursorRect(self._cursor())
        return QRect(self.viewport().mapTo(self, where.topLeft()), where.size())

    def _cursor(self) -> QTextCursor:
        assert self._lines is not None
        return QTextCursor(self.document().findBlockByNumber(self.line - self._lines.first))

    def _mark(self) -> None:
        band = QTextEdit.ExtraSelection()
        if self.marked or self.line:
            band.cursor = self._cursor()
            look = QTextCharFormat()
            look.setBackground(QColor(current_theme().selection))
            look.setProperty(QTextFormat.Property.FullWidthSelection, True)
            band.format = look
            self.setExtraSelections([band])
        else:
            self.setExtraSelections([])

    # --- the numbers

    @property
    def gutter_px(self) -> int:
        """Width of the numbers."""
        last = 0 if self._lines is None else self._lines.first + len(self._lines.lines)
        metrics = QFontMetrics(self.font())
        return metrics.horizontalAdvance(f"{_MARK} {last}") + _GUTTER_PX if last else 0

    def _make_room(self) -> None:
        self.setViewportMargins(self.gutter_px, 0, 0, 0)
        self.updateGeometry()
        self._place_gutter()

    def _place_gutter(self) -> None:
        inside = self.contentsRect()
        self._gutter.setGeometry(
            QRect(inside.left() + 1, self.viewport().y(), self.gutter_px, self.viewport().height())
        )

    def paint_numbers(self, painter: QPainter) -> None:
        """Every line's number beside it."""
        if self._lines is None:
            return
        painter.setFont(self.font())
        block, offset = self.firstVisibleBlock(), self.contentOffset()
        while block.isValid():
            where = self.blockBoundingGeometry(block).translated(offset).toRect()
            number = self._lines.first + block.blockNumber()
            here = number == self.line
            row = QRect(QPoint(0, where.top()), QSize(self.gutter_px - _GUTTER_PX, where.height()))
            if here:
                painter.fillRect(
                    QRect(0, where.top(), self.gutter_px, where.height()), QColor(current_theme().selection)
                )
                painter.setPen(current_theme().text)
                painter.drawText(row, LEFT, _MARK)
            painter.setPen(current_theme().text if here else current_theme().dim)
            painter.drawText(row, RIGHT, str(number))
            block = block.next()

    # --- Qt

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_gutter()
        self.updateGeometry()


class _Gutter(QWidget):
    """The numbers of a `SourceView`."""

    def __init__(self, view: SourceView) -> None:
        super().__init__(view)
        self._view = view

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        self._view.paint_numbers(painter)
        painter.end()


class _DiffColours(Colours):
    """Removed lines are red, added ones green, and both keep their signs."""

    def highlightBlock(self, text: str) -> None:
        look, theme = QTextCharFormat(), current_theme()
        is_head = text.startswith(("---", "+++", "@@"))
        signs = {"-": theme.error, "+": theme.added}
        colour = theme.dim if is_head else signs.get(text[:1], theme.soft)
        look.setForeground(QColor(colour))
        if text.startswith("+") and not is_head:
            look.setFontWeight(600)
        self.setFormat(0, len(text), look)


class DiffView(CodeView):
    """A patch to read and to copy; long lines are wrapped, because they often differ at their ends."""

    highlighter = _DiffColours

    def __init__(self) -> None:
        super().__init__()
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.WidgetWidth)
        # Qt counts the space at which a line is wrapped as part of its width: there would be a bar for nothing.
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("The fix as a patch")
        self.copy_button.setAccessibleName("copy the patch")

    def sizeHint(self) -> QSize:
        lines, block = 0, self.document().begin()
        while block.isValid():
            self.blockBoundingRect(block)  # lays it out
            lines += block.layout().lineCount()
            block = block.next()
        height = lines * QFontMetrics(self.font()).lineSpacing() + 20 + self.viewportMargins().top()
        return QSize(super().sizeHint().width(), height)
