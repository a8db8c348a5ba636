"""The menu of a button. Main thread.

It closes when the button is disabled: Qt disables a menu together with its button, and an open menu that is disabled
takes every key and click of the window, Escape too, and does nothing with them. And when it closes, the button knows
that the mouse has left: that happened while the menu had all events.
"""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, Qt, QTimer
from PySide6.QtGui import QCursor, QHideEvent
from PySide6.QtWidgets import QMenu, QWidget


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


def _look_for_the_mouse(button: QWidget) -> None:
    if button.underMouse() and not button.rect().contains(button.mapFromGlobal(QCursor.pos())):
        button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, False)
        button.update()
