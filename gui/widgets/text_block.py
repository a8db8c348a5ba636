"""Text that is never cut off, at any width: blocks break a word that is too long for a line, buttons shorten their
words. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent, QTextOption, QWheelEvent
from PySide6.QtWidgets import QFrame, QPushButton, QSizePolicy, QTextEdit

from devexplorer.gui.widgets.theme import Role, font

LEAST_PX = 24


class TextBlock(QTextEdit):
    """As high as its text; it can be selected and copied. `words` is one of the looks of labels in
    `gui.widgets.style`."""

    def __init__(self, role: Role = Role.TEXT, words: str = "") -> None:
        super().__init__(
            readOnly=True, undoRedoEnabled=False, textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse
        )
        self._heights: dict[int, int] = {}
        """Width -> height of the present text: layouts ask for the same again and again."""
        self.setProperty("look", "block")
        self.setProperty("words", words)
        self.setFont(font(role))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def text(self) -> str:
        """The text on show."""
        return self.toPlainText()

    def setText(self, text: str) -> None:
        """Show `text` as it is, never as markup."""
        if text != self.toPlainText():
            self.setPlainText(text)
            self.setAccessibleName(text)
            self._heights.clear()
            self.updateGeometry()

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        if width not in self._heights:
            if len(self._heights) > 50:
                self._heights.clear()
            document = self.document()
            shown = document.textWidth()
            document.setTextWidth(max(width, LEAST_PX))
            self._heights[width] = round(document.size().height())
            document.setTextWidth(shown)
        return self._heights[width]

    def sizeHint(self) -> QSize:
        width = max(self.width(), LEAST_PX)
        return QSize(width, self.heightForWidth(width))

    def minimumSizeHint(self) -> QSize:
        return QSize(LEAST_PX, self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange, QEvent.Type.Polish):
            self._heights.clear()  # lines may be higher now
            self.updateGeometry()
        return super().event(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # what it lies in scrolls


class ElidedButton(QPushButton):
    """As wide as its words where there is room; otherwise they are cut short, and the tooltip has all of them."""

    def __init__(self, words: str) -> None:
        self._words = words
        super().__init__(words.replace("&", "&&"))
        self.setAccessibleName(words)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def _padding(self) -> int:
        """What the style adds to the words at both sides."""
        return super().sizeHint().width() - self.fontMetrics().size(Qt.TextFlag.TextShowMnemonic, self.text()).width()

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(self.fontMetrics().horizontalAdvance(self._words) + 2 + self._padding(), hint.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(LEAST_PX, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        shown = self.fontMetrics().elidedText(self._words, Qt.TextElideMode.ElideRight, self.width() - self._padding())
        if shown.replace("&", "&&") != self.text():
            self.setText(shown.replace("&", "&&"))
        self.setToolTip(self._words if shown != self._words else "")
