"""Rows and columns of widgets, and the controls in them, each made in one expression. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, SignalInstance
from PySide6.QtGui import QCursor, QHideEvent, QPalette
from PySide6.QtWidgets import (
    QBoxLayout,
    QCheckBox,
    QGridLayout,
    QHBoxLayout,
    QLayout,
    QLineEdit,
    QMenu,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QStackedWidget,
    QTabWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

Part = QWidget | QLayout | None
Item = Part | int | tuple[Part, int] | tuple[Part, int, Qt.AlignmentFlag]
Margins = int | tuple[int, int, int, int]
"""All four alike, or left, top, right and bottom."""
T = TypeVar("T", bound=QBoxLayout)
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
CENTRE = Qt.AlignmentFlag.AlignCenter
"""Places of a text, between top and bottom in the middle."""
UNLIMITED_PX = (1 << 24) - 1
"""A part may be as large as Qt lets it (QWIDGETSIZE_MAX)."""


def hbox(*items: Item, spacing: int = 8, margins: Margins = 0, parent: QWidget | None = None) -> QHBoxLayout:
    """Widgets and layouts side by side; `parent`: the widget that gets the layout.

    `(item, stretch)` gives an item its share, `(item, stretch, alignment)` its place in that. None is an empty stretch,
    a number a gap of so many pixels.
    """
    return _filled(QHBoxLayout() if parent is None else QHBoxLayout(parent), items, spacing, margins)


def vbox(*items: Item, spacing: int = 8, margins: Margins = 0, parent: QWidget | None = None) -> QVBoxLayout:
    """The same one below the other."""
    return _filled(QVBoxLayout() if parent is None else QVBoxLayout(parent), items, spacing, margins)


def lay_out(layout: QBoxLayout, *, beside: bool) -> None:
    """Have what is in it side by side, or one below the other."""
    layout.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)


def grid(across_px: int, down_px: int, parent: QWidget | None = None) -> QGridLayout:
    """Rows and columns with so many pixels between them and none around them."""
    result = QGridLayout(parent)
    result.setContentsMargins(0, 0, 0, 0)
    result.setHorizontalSpacing(across_px)
    result.setVerticalSpacing(down_px)
    return result


def _filled(layout: T, items: tuple[Item, ...], spacing: int, margins: Margins) -> T:
    layout.setSpacing(spacing)
    layout.setContentsMargins(*((margins,) * 4 if isinstance(margins, int) else margins))
    for entry in items:
        if isinstance(entry, int):
            layout.addSpacing(entry)
            continue
        item, stretch, *alignment = entry if isinstance(entry, tuple) else (entry, 0)
        if item is None:
            layout.addStretch(max(stretch, 1))
        elif isinstance(item, QWidget):
            layout.addWidget(item, stretch, *alignment)
        else:
            layout.addLayout(item, stretch)
    return layout


def push_button(
    text: str = "",
    clicked: Callable[..., object] | SignalInstance | None = None,
    *,
    look: str = "",
    tip: str = "",
    name: str = "",
    parent: QWidget | None = None,
) -> QPushButton:
    """`look` as in `gui.widgets.theme`; `name` for screen readers where the text does not say it."""
    result = QPushButton(text, parent)
    if clicked is not None:
        result.clicked.connect(clicked)
    if look:
        result.setProperty("look", look)
    result.setToolTip(tip)
    if name:
        result.setAccessibleName(name)
    return result


def check_box(text: str = "", *, tip: str = "") -> QCheckBox:
    """A check box with its tooltip."""
    result = QCheckBox(text)
    result.setToolTip(tip)
    return result


def line_edit(
    text: str = "", placeholder: str = "", name: str = "", width_px: int = 0, *, tip: str = "", clear: bool = False
) -> QLineEdit:
    """A line to type in; `clear`: with a button that empties it."""
    result = QLineEdit(text, placeholderText=placeholder, clearButtonEnabled=clear)
    result.setAccessibleName(name)
    result.setToolTip(tip)
    result.setAcceptDrops(False)  # a file that is dropped here is the window's, or the dialog's
    if width_px:
        result.setFixedWidth(width_px)
    return result


class ScrollArea(QScrollArea):
    """A frameless area whose content takes its width; `sideways`: it may scroll to the side too."""

    def __init__(self, content: QWidget | QLayout | None = None, name: str = "", *, sideways: bool = False) -> None:
        super().__init__(widgetResizable=True)
        self.setAccessibleName(name)
        if not sideways:
            self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        if content is not None:
            self.set_content(content)

    def minimumSizeHint(self) -> QSize:
        """Without the frame of the focus, which asks for no room."""
        return super().minimumSizeHint() - QSize(2, 2)

    def set_content(self, content: QWidget | QLayout) -> None:
        """Scroll this widget, or a widget with this layout."""
        self.content = content if isinstance(content, QWidget) else holder(content)
        self.content.setObjectName("scrolled")
        self.setWidget(self.content)


class ScrollColumn(ScrollArea):
    """A column that scrolls where it is low; `width_px`: where there is room for more than `least_px`."""

    def __init__(self, name: str, least_px: int, width_px: int = 0) -> None:
        super().__init__(name=name)
        self._least_px, self._width_px = least_px, width_px or least_px
        self.setMinimumWidth(least_px)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Ignored)

    def sizeHint(self) -> QSize:
        return QSize(self._width_px, 60)

    def minimumSizeHint(self) -> QSize:
        return QSize(self._least_px, 40)


def holder(layout: QLayout) -> QWidget:
    """A widget with this layout."""
    result = QWidget()
    result.setLayout(layout)
    return result


def thin_line(*, upright: bool = False) -> QWidget:
    """What sets parts apart, in the colour of the theme's border."""
    result = QWidget()
    result.setFixedWidth(1) if upright else result.setFixedHeight(1)
    result.setAutoFillBackground(True)
    result.setBackgroundRole(QPalette.ColorRole.Mid)
    return result


def stack(*pages: QWidget) -> QStackedWidget:
    """Pages of which one is shown, the first at first."""
    result = QStackedWidget()
    for page in pages:
        result.addWidget(page)
    return result


def tab_widget(name: str) -> QTabWidget:
    """Tabs without a frame; `name` for screen readers."""
    result = QTabWidget(documentMode=True, usesScrollButtons=True)
    result.setFocusProxy(None)  # type: ignore[arg-type]  # it stands for its bar: Tab would go round between the two
    result.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    result.tabBar().setDrawBase(False)
    for part in (result, result.tabBar()):
        part.setAccessibleName(name)
    return result


def splitter(
    *parts: QWidget,
    sizes: Sequence[int] = (),
    stretches: Sequence[int] = (),
    handle_px: int = 8,
    orientation: Qt.Orientation = Qt.Orientation.Horizontal,
) -> QSplitter:
    """Parts side by side, or one below the other, whose borders can be dragged, but not so far that a part
    disappears."""
    result = QSplitter(orientation, childrenCollapsible=False, handleWidth=handle_px)
    for part in parts:
        result.addWidget(part)
    for index, stretch in enumerate(stretches):
        result.setStretchFactor(index, stretch)
    if sizes:
        result.setSizes(list(sizes))
    return result


class ButtonMenu(QMenu):
    """A menu for `setMenu` of a button."""

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange and not self.isEnabled():
            self.close()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if (button := self.parentWidget()) is not None:
            QTimer.singleShot(0, button, partial(_look_for_the_mouse, button))  # when Qt has ended the menu


def menu_button(text: str = "", *, tip: str = "") -> QToolButton:
    """A button that opens its menu."""
    result = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
    result.setText(text)
    result.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    result.setToolTip(tip)
    result.setMenu(ButtonMenu(result, toolTipsVisible=True))
    return result


def popup_menu(parent: QWidget) -> QMenu:
    """A menu for one time."""
    result = QMenu(parent, toolTipsVisible=True)
    result.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return result


def _look_for_the_mouse(button: QWidget) -> None:
    if button.underMouse() and not button.rect().contains(button.mapFromGlobal(QCursor.pos())):
        button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, False)
        button.update()
