"""The windows that open during a test: every top-level widget that is shown, even briefly."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QWidget


class OpenedWindows(QObject):
    """Watches the application from creation until `stop`; `titles` are in the order of opening."""

    def __init__(self, app: QApplication, *expected: QWidget) -> None:
        super().__init__()
        self._app, self._expected = app, expected
        self.titles: list[str] = []
        app.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.Show
            and isinstance(watched, QWidget)
            and watched.isWindow()
            and watched not in self._expected
        ):
            self.titles.append(watched.windowTitle() or f"{type(watched).__name__} {watched.accessibleName()}".strip())
        return False

    def take(self) -> list[str]:
        """Titles opened since the last call."""
        titles, self.titles = self.titles, []
        return titles

    def stop(self) -> None:
        """Stop watching."""
        self._app.removeEventFilter(self)
