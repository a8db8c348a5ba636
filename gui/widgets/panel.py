"""The frame that every panel has, with a header, a content, an empty state with the action that fills it; and texts,
which are cut short where there is no room, or never, with as many lines as they need. Main thread."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QRect, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent, QTextOption, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QFrame,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QStackedLayout,
    QTextEdit,
    QWidget,
)

from devexplorer.core.base import sentence
from devexplorer.core.session import State
from devexplorer.gui.widgets.layouts import CENTRE, UNLIMITED_PX, hbox, push_button, vbox
from devexplorer.gui.widgets.theme import Role, font

LEAST_PX = 24


class TextBlock(QTextEdit):
    """As high as its text; it can be selected and copied. `words` is one of the looks of labels in
    `gui.widgets.theme`."""

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
        """The text shown."""
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


HEADER_PX = 30
EDGE_PX = 12
"""Between a panel's border and its content."""
TIGHT_PX = 4
"""Around the sentence and the action of an empty panel that is low."""
LEAST_WORDS_PX = 60
"""Of words that can be cut short."""


NOT_IN_A_RECORDING = "This is a recording: nothing in it can be changed."
NOT_READY = "The engine is not ready yet."


def why_not_live(state: State) -> str | None:
    """Why the engine cannot be asked for anything now; None: it can."""
    return why_fixed(state) or (None if state.engine is not None else NOT_READY)


def why_fixed(state: State) -> str:
    """Why nothing of what is shown can be changed now: it is a recording, or the way to its machine is not open.
    Empty: it can."""
    return NOT_IN_A_RECORDING if state.recording is not None else state.away


def is_only_shown(state: State) -> bool:
    """It is a running script: it can be asked, and nothing but its models be moved, where it allows that."""
    engine = state.engine
    return engine is not None and bool(engine.read_only) and why_fixed(state) == sentence(engine.read_only)


def can_add_virtual(state: State) -> bool:
    """Whether the engine can make virtual GPUs."""
    return state.engine is not None and state.engine.virtual_unavailable is None


def label(
    text: str = "",
    role: Role = Role.TEXT,
    words: str = "",
    *,
    wrap: bool = False,
    selectable: bool = False,
    align: Qt.AlignmentFlag | None = None,
    tip: str = "",
) -> QLabel:
    """A label that shows `text` as it is, never as rich text; `words` is one of the looks in `gui.widgets.theme`."""
    result = QLabel(text, textFormat=Qt.TextFormat.PlainText, wordWrap=wrap)
    result.setFont(font(role))
    result.setToolTip(tip)
    if align is not None:
        result.setAlignment(align)
    if selectable:
        result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if words:
        result.setProperty("words", words)
    return result


def show_text(target: QLabel | QAbstractButton | TextBlock, text: str) -> None:
    """Show `text` there, and hide what it is on when there is none. Nothing is laid out again for the same text."""
    if target.text() != text:
        target.setText(text)
    target.setVisible(bool(text))


def set_look(target: QWidget, words: str) -> None:
    """Give text another of the looks in `gui.widgets.theme`."""
    if target.property("words") != words:
        target.setProperty("words", words)
        target.style().polish(target)


def give_room(number: QSpinBox | None) -> None:
    """Qt takes the stylesheet's padding of a spin box on the right only: the left one is the text's own."""
    if number is not None:
        number.lineEdit().setTextMargins(6, 0, 0, 0)
        number.lineEdit().setAcceptDrops(False)  # as those of `line_edit`


def spin_box(low: int, high: int, value: int = 0, *, name: str = "", tip: str = "") -> QSpinBox:
    """A whole number."""
    result = QSpinBox(minimum=low, maximum=high, value=value)
    result.setAccessibleName(name)
    result.setToolTip(tip)
    give_room(result)
    return result


def code_text(name: str, look: str = "code", **properties: Any) -> QPlainTextEdit:
    """Text in the fixed font, to be read; `properties` as of `QPlainTextEdit`."""
    result = QPlainTextEdit(readOnly=True, **properties)
    result.setProperty("look", look)
    result.setFont(font(Role.CODE))
    result.setAccessibleName(name)
    return result


MEANINGLESS = 4
"""A text that is cut to so few letters says nothing, and is left out where it has a brief form."""


class ElidedLabel(QLabel):
    """One line that is cut short where there is no room; the tooltip then has all of it."""

    def __init__(self, role: Role = Role.TEXT, words: str = "") -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self.full_text = ""
        """All of it."""
        self.cut = Qt.TextElideMode.ElideRight
        """Where it is cut: paths in the middle, because their end matters most."""
        self.brief = ""
        """What is shown in place of a text that has no room, before that is cut."""
        self.about = ""
        """What the tooltip says of it besides."""
        self.setFont(font(role))
        self.setProperty("words", words)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_full_text(self, text: str, about: str | None = None, brief: str = "") -> None:
        """Show `text`, or else `brief`, as much of it as fits; the tooltip says `about` it besides, or what it said
        before."""
        about = self.about if about is None else about
        if (text, about, brief) != (self.full_text, self.about, self.brief):
            self.full_text, self.about, self.brief = text, about, brief
            self.setAccessibleName(text)
            self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        room, metrics = self.contentsRect().width(), self.fontMetrics()
        fits = not self.brief or metrics.horizontalAdvance(self.full_text) <= room
        shown = metrics.elidedText(self.full_text if fits else self.brief, self.cut, room)
        if not fits and len(shown) <= MEANINGLESS < len(self.brief):
            shown = ""
        if shown != self.text():
            self.setText(shown)
        tip = (self.full_text if shown != self.full_text else "", self.about if self.full_text else "")
        self.setToolTip("\n".join(filter(None, tip)) if any(tip) else "")


class ShrinkingLabel(ElidedLabel):
    """As wide as its words where there is room, shorter where there is not: no name makes the window wider."""

    def __init__(self, role: Role = Role.TEXT, words: str = "", least_px: int = LEAST_WORDS_PX) -> None:
        super().__init__(role, words)
        self._least_px = least_px
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def set_full_text(self, text: str, about: str | None = None, brief: str = "") -> None:
        """See `ElidedLabel`. The layout is told: as long as nothing fits, the text shown does not change."""
        before = self.full_text
        super().set_full_text(text, about, brief)
        if text != before:
            self.updateGeometry()

    def say(self, text: str, brief: str = "") -> None:
        """Show `text`; nothing where it is empty."""
        if text == self.full_text and self.isHidden() != bool(text):
            return  # else the window would be laid out again
        self.set_full_text(text, brief=brief)
        self.setVisible(bool(text))

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self.full_text) + 2, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(min(self._least_px, self.sizeHint().width()), super().minimumSizeHint().height())


class EmptyState(QWidget):
    """One sentence and the one action that fills the panel; without words for it there is no button."""

    chosen = Signal()

    def __init__(self, sentence: str, action: str) -> None:
        super().__init__()
        self.sentence = label(sentence, words="dim", wrap=True, align=CENTRE)
        self.button = push_button(action, self.chosen)
        if not action:
            self.button.hide()
        self._column = vbox(
            (None, 2),
            self.sentence,
            (self.button, 0, Qt.AlignmentFlag.AlignHCenter),
            (None, 3),
            spacing=EDGE_PX,
            margins=(2 * EDGE_PX, EDGE_PX, 2 * EDGE_PX, EDGE_PX),
            parent=self,
        )

    def event(self, event: QEvent) -> bool:
        """Keep room for all lines of the sentence: a page that scrolls asks no layout for the height at its width."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            room = QRect(0, 0, max(self.width() - 4 * EDGE_PX, 1), UNLIMITED_PX)
            words = self.sentence.fontMetrics()  # a label's own heightForWidth never gets less than it once was
            lines = words.boundingRect(room, Qt.TextFlag.TextWordWrap, self.sentence.text()).height()
            self.sentence.setMinimumHeight(lines)
            roomy = self.height() >= lines + self.button.sizeHint().height() + 3 * EDGE_PX
            edge = EDGE_PX if roomy else TIGHT_PX
            if edge != self._column.spacing():
                self._column.setSpacing(edge)
                self._column.setContentsMargins(2 * EDGE_PX, edge, 2 * EDGE_PX, edge)
        return super().event(event)

    def follow(self, state: State) -> None:
        """Enable the button while the engine can be asked."""
        reason = why_not_live(state)
        self.button.setEnabled(reason is None)
        if self.button.toolTip() != (reason or ""):
            self.button.setToolTip(reason or "")


class Panel(QFrame):
    """A titled frame. Subclasses give it a content and, where it can be empty, something like an `EmptyState`."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setAccessibleName(title)
        self._title = label(title, Role.STRONG)
        self._subtitle = ElidedLabel(words="dim")
        self._subtitle.set_full_text(subtitle)
        header = QWidget()
        header.setObjectName("panelHeader")
        header.setFixedHeight(HEADER_PX)
        self._header = hbox(self._title, (self._subtitle, 1), margins=(EDGE_PX, 0, 6, 0), parent=header)
        self._stack = QStackedLayout()
        self._empty: QWidget | None = None
        self._rows = vbox(header, (self._stack, 1), spacing=0, margins=1, parent=self)

    @property
    def subtitle(self) -> str:
        """The dimmed words behind the title."""
        return self._subtitle.full_text

    def set_subtitle(self, text: str, about: str = "", brief: str = "") -> None:
        """Change the dimmed words behind the title, what their tooltip says besides, and what is shown where they have
        no room."""
        self._subtitle.set_full_text(text, about, brief)

    def add_to_header(self, widget: QWidget) -> None:
        """Put `widget` at the right end of the header row."""
        self._header.addWidget(widget)

    def set_content(self, widget: QWidget) -> None:
        """Show `widget` below the header."""
        self._stack.addWidget(widget)
        self._stack.setCurrentWidget(widget)

    def set_empty_state(self, empty: QWidget) -> None:
        """Have `empty` ready for when there is nothing to show; switch with `show_empty`."""
        self._empty = empty
        self._stack.addWidget(empty)

    def show_empty(self, is_empty: bool) -> None:
        """Show the empty state, or the content."""
        if is_empty != self.is_empty and self._empty is not None:  # plots ask with every beat
            self._stack.setCurrentIndex(self._stack.indexOf(self._empty) if is_empty else 0)

    @property
    def is_empty(self) -> bool:
        """Whether the empty state is shown."""
        return self._empty is not None and self._stack.currentWidget() is self._empty
