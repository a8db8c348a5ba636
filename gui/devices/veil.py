"""What lies over readings that are not of now. Main thread only."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.gui.widgets import current_theme

VEIL = 150
"""Opacity of what lies over readings that are not of now, of 255."""


class Veil(QWidget):
    """Makes what is below it pale; clicks go through."""

    def __init__(self, below: QWidget) -> None:
        super().__init__(below)
        self._below = below
        below.installEventFilter(self)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def paintEvent(self, _event: QPaintEvent) -> None:
        colour = QColor(current_theme().panel)
        colour.setAlpha(VEIL)
        QPainter(self).fillRect(self.rect(), colour)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.setGeometry(self._below.rect())
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """As large as what it covers."""
        if event.type() == QEvent.Type.Resize:
            self.setGeometry(self._below.rect())
        return False
