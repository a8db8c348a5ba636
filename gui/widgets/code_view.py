"""A block of Python with a copy button; comments are dimmed, device names have their devices' colours. Main thread."""

from __future__ import annotations

import re
from typing import ClassVar

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QGuiApplication,
    QResizeEvent,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextDocument,
)
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QWidget

from devexplorer.core.session import State
from devexplorer.gui.widgets.layouts import push_button
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
