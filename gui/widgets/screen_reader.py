"""What painted widgets are to a screen reader: their role, whether they are chosen, what they show. Main thread;
nothing of it is made before something asks.

A class of painted widgets has an `accessible_role`; `is_selected` and `spoken()` where they apply. Names and
descriptions are Qt's own.
"""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QAccessibleStateChangeEvent
from PySide6.QtWidgets import QAccessibleWidget, QWidget


class Painted(QAccessibleWidget):
    """The interface of one painted widget."""

    def state(self) -> QAccessible.State:
        """With `checked`, where the widget can be chosen."""
        state = super().state()
        chosen = getattr(self.object(), "is_selected", None)
        if chosen is not None:
            state.checkable, state.checked = True, chosen
        return state

    def text(self, which: QAccessible.Text) -> str:
        """With what the widget shows now as its description."""
        spoken = getattr(self.object(), "spoken", None)
        if which == QAccessible.Text.Description and spoken is not None:
            return str(spoken())
        return super().text(which)


@cache  # once for the application
def install() -> None:
    """Have Qt ask here for the interfaces of painted widgets."""
    QAccessible.installFactory(_interface)


def _interface(_kind: str, found: QObject) -> Painted | None:
    role = getattr(found, "accessible_role", None)
    return Painted(found, role) if role is not None and isinstance(found, QWidget) else None


def tell_chosen(widget: QWidget) -> None:
    """The widget was chosen, or is no longer."""
    if QAccessible.isActive():
        changed = QAccessible.State()
        changed.checked = True
        QAccessible.updateAccessibility(QAccessibleStateChangeEvent(widget, changed))


def announce(widget: QWidget, words: str) -> None:
    """Have a screen reader say it: what the keys have just reached inside a painted widget."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, words))
