"""Keeps the keyboard in its panel when what had it is disabled or hidden. Main thread.

Qt gives it to the next widget in the order of Tab then, anywhere in the window: a button that is disabled by its own
click would hand it to Record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QAbstractItemView, QApplication, QTabWidget, QWidget
from shiboken6 import isValid

from devexplorer.gui.widgets.accessibility.reading_order import reading_order

if TYPE_CHECKING:
    from devexplorer.gui.shell.workbench import Workbench


class KeptFocus(QObject):
    """Watches the keyboard in the window of a `Workbench`."""

    def __init__(self, workbench: Workbench, parent: QObject) -> None:
        super().__init__(parent)
        self._workbench = workbench
        self._last: QWidget | None = None
        """What had the keyboard last in this window: a dialog may have it meanwhile."""
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._focus_changed)

    def _focus_changed(self, _old: QWidget | None, new: QWidget | None) -> None:
        if new is None or not isValid(self._workbench) or new.window() is not self._workbench.window():
            return
        last = self._last
        if _usable(new):  # Qt gives the keyboard to hidden ones too, when it is told to
            self._last = new
        if last is None or not isValid(last) or _usable(last):
            return
        panel = self._workbench.place_of(last) or last.parentWidget()  # of the toolbar
        if panel is None or panel is last.window() or panel.isAncestorOf(new):
            return
        near = last.parentWidget()
        while near is not None and near is not panel and not near.isVisible():
            near = near.parentWidget()
        if near is None or not near.isVisible() or isinstance(near.parentWidget(), QTabWidget):
            return  # its page was left
        while near is not None:
            stops = [stop for stop in reading_order(near) if _usable(stop)]
            if stops:
                results = (stop for stop in stops if isinstance(stop, QAbstractItemView))
                next(results, stops[0]).setFocus(Qt.FocusReason.OtherFocusReason)
                return
            near = None if near is panel else near.parentWidget()
        self._workbench.take_focus()


def _usable(widget: QWidget) -> bool:
    return widget.isVisible() and widget.isEnabled()
