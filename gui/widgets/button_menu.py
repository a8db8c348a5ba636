"""The menu of a button that can be disabled: it closes when that happens. Main thread.

Qt disables a menu together with its button. An open menu that is disabled takes every key and click of the window,
Escape too, and does nothing with them.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QMenu


class ButtonMenu(QMenu):
    """A menu for `setMenu` of a button."""

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange and not self.isEnabled():
            self.close()
