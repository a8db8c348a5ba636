"""More or less room for one panel of the workbench: folded to its heading, enlarged, in a window of its own. Main
thread only."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QSplitter, QWidget

from devexplorer.gui.widgets import HEADER_PX, KeptSplitter, vbox

FOLDED_PX = 132
"""Width of a folded panel beside others."""
UNLIMITED_PX = (1 << 24) - 1
"""Qt's own limit (QWIDGETSIZE_MAX)."""


class PanelWindow(QWidget):
    """A window for one panel; closing it gives the panel back."""

    closed = Signal()

    def __init__(self, panel: QWidget, title: str, owner: QWidget) -> None:
        super().__init__(owner, Qt.WindowType.Window)
        self.setWindowTitle(f"DevExplorer: {title}")
        size = panel.size()
        vbox(panel, margins=8, parent=self)
        self.resize(size.width() + 16, max(size.height() + 16, 300))

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()


class PanelRoom(QObject):
    """`owner`: the widget with the panels. At most one panel is enlarged; any number is folded or has a window."""

    def __init__(self, owner: QWidget) -> None:
        super().__init__(owner)
        self._owner = owner
        self._hidden: list[QWidget] = []
        """What gave way to the enlarged panel."""
        self.enlarged: QWidget | None = None
        self.folded: set[QWidget] = set()
        self.windows: dict[QWidget, PanelWindow] = {}
        """By panel."""
        self._places: dict[QWidget, QWidget] = {}
        """What keeps the place of a panel that has a window."""
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), owner, self.restore)
        self._escape.setEnabled(False)  # Escape means other things too

    def place(self, panel: QWidget) -> QWidget:
        """What stands in a layout for the panel: itself, or what keeps its place."""
        return self._places.get(panel, panel)

    # --- enlarged

    def enlarge(self, panel: QWidget) -> None:
        """Give the panel all the room; once more, or Escape, and everything is as before."""
        if self.enlarged is not None:
            self.restore()
            return
        if panel in self.windows:
            return
        self.unfold(panel)
        child: QWidget = panel
        for splitter in _around(panel):
            self._hidden += [part for part in _parts(splitter) if part is not child and not part.isHidden()]
            child = splitter
        for part in self._hidden:
            part.hide()
        self.enlarged = panel
        self._escape.setEnabled(True)

    def restore(self) -> None:
        """The panels that gave way come back."""
        for part in self._hidden:
            part.show()
        self._hidden, self.enlarged = [], None
        self._escape.setEnabled(False)

    # --- folded

    def toggle_fold(self, panel: QWidget) -> None:
        """Fold the panel to its heading, or unfold it."""
        self.restore()
        (self.unfold if panel in self.folded else self._fold)(panel)

    def _fold(self, panel: QWidget) -> None:
        self.folded.add(panel)
        self.share(panel)

    def unfold(self, panel: QWidget) -> None:
        """It has its room again."""
        if panel in self.folded:
            self.folded.remove(panel)
            self.share(panel)

    def share(self, panel: QWidget) -> None:
        """Give its splitter the sizes that follow: a row is folded when all in it are, else they are narrow."""
        splitter = next(_around(panel), None)
        if splitter is None:
            return
        parts = _parts(splitter)
        across = splitter.orientation() == Qt.Orientation.Horizontal
        whole = across and all(part in self.folded for part in parts)
        for part in parts:
            is_folded = part in self.folded
            part.setMaximumWidth(FOLDED_PX if is_folded and across and not whole else UNLIMITED_PX)
            part.setMaximumHeight(HEADER_PX if is_folded and (whole or not across) else UNLIMITED_PX)
        for outer in (splitter, *_around(splitter)):
            if isinstance(outer, KeptSplitter):
                outer.keep(outer.kept)

    # --- in a window

    def detach(self, panel: QWidget, title: str) -> None:
        """Put the panel into a window of its own, or bring that to the front."""
        if panel in self.windows:
            self.windows[panel].activateWindow()
            return
        self.restore()
        self.unfold(panel)
        splitter = next(_around(panel))
        keeper = self._places[panel] = QWidget()
        splitter.replaceWidget(splitter.indexOf(panel), keeper)
        keeper.hide()
        window = self.windows[panel] = PanelWindow(panel, title, self._owner)
        window.closed.connect(lambda: self.attach(panel))
        panel.show()
        window.show()

    def attach(self, panel: QWidget) -> None:
        """Bring the panel back into the window."""
        window, keeper = self.windows.pop(panel), self._places.pop(panel)
        splitter = keeper.parent()
        assert isinstance(splitter, QSplitter)
        splitter.replaceWidget(splitter.indexOf(keeper), panel)
        panel.show()
        keeper.deleteLater()
        window.hide()
        window.deleteLater()
        self.share(panel)


def _parts(splitter: QSplitter) -> list[QWidget]:
    return [part for at in range(splitter.count()) if (part := splitter.widget(at)) is not None]


def _around(widget: QWidget) -> Iterator[QSplitter]:
    """The splitters that it is in, the innermost first."""
    parent = widget.parentWidget()
    while isinstance(parent, QSplitter):
        yield parent
        parent = parent.parentWidget()
