"""Where the panels of the window lie: each over its placeholder, which is what splitters size. Main thread only.

A panel that moved into another splitter would be styled anew with everything in it, which took a third of the time of
changing the layout. So the panels stay children of the stage, and only their placeholders, which are empty, move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QEvent, QPoint, QRect, QSize
from PySide6.QtGui import QHideEvent, QMoveEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.gui.widgets import KeptSplitter, reading_order


class Placeholder(QWidget):
    """Asks a splitter for what `panel` needs. The panel follows it, unless it has a window of its own."""

    def __init__(self, panel: QWidget, stage: Stage) -> None:
        super().__init__()
        self.panel, self._stage = panel, stage
        self.setSizePolicy(panel.sizePolicy())
        self.tell()

    def stand(self, here: bool) -> None:
        """Whether it takes part in its splitter, where one has it."""
        if self.parentWidget() is not None:
            self.setVisible(here)
        self.follow()

    def tell(self) -> None:
        """Ask the splitter for what the panel needs now. It asks back hundreds of times, so not by way of Python."""
        self.setMinimumSize(self.panel.minimumSizeHint().expandedTo(self.panel.minimumSize()))

    @property
    def is_followed(self) -> bool:
        """Whether the panel is here, not in a window of its own."""
        return self.panel.parentWidget() is self._stage

    def tab_stops(self) -> Iterator[QWidget]:
        """Those of the panel."""
        return reading_order(self.panel) if self.is_followed else iter(())

    def follow(self) -> None:
        """Put the panel here, or hide it where no splitter on show has this."""
        if not self.is_followed or self._stage.arranging:
            return
        shown = self.parentWidget() is not None and self.isVisibleTo(self._stage)
        if shown:
            self.panel.setGeometry(QRect(self.mapTo(self._stage, QPoint()), self.size()))
        self.panel.setVisible(shown)

    def moveEvent(self, event: QMoveEvent) -> None:
        super().moveEvent(event)
        self.follow()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.follow()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.follow()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.follow()


class Stage(QWidget):
    """Has one splitter on show, `root`, and the panels over it."""

    def __init__(self) -> None:
        super().__init__()
        self.arranging = False
        """While placeholders move to and fro, panels stay where they are."""
        self._root: KeptSplitter | None = None
        self._told = QSize()
        self._placeholders: dict[QWidget, Placeholder] = {}

    def placeholder(self, panel: QWidget) -> Placeholder:
        """That of a panel, which comes onto the stage with it."""
        if panel not in self._placeholders:
            panel.hide()
            panel.setParent(self)
            self._placeholders[panel] = Placeholder(panel, self)
        return self._placeholders[panel]

    def take(self, splitter: KeptSplitter) -> None:
        """A splitter that was made: where it moves, the panels in it move too."""
        splitter.moved.connect(self.follow)

    @contextmanager
    def _arrange_anew(self, root: KeptSplitter) -> Iterator[None]:
        """Have `root` on show. The block puts placeholders into it; afterwards each panel gets its place, once."""
        self.arranging = True
        try:
            if self._root is not None:
                self._root.hide()  # for each part that leaves it, the others would be laid out anew
            if root.parentWidget() is not self:
                root.setParent(self)
                root.lower()  # the panels are above it
            self._root = root
            root.setGeometry(self.rect())
            self.ask()
            yield
            root.show()
        finally:
            self.arranging = False
        self._tell_window()
        self.follow()

    def follow(self) -> None:
        """Put all panels where their placeholders are."""
        if not self.arranging:
            for placeholder in self._placeholders.values():
                placeholder.follow()

    def ask(self) -> None:
        """Each panel what it needs."""
        for placeholder in self._placeholders.values():
            placeholder.tell()

    def _tell_window(self) -> None:
        if (least := self.minimumSizeHint()) != self._told:
            self._told = least
            self.updateGeometry()

    def tab_stops(self) -> Iterator[QWidget]:
        """In the order of the layout."""
        return iter(()) if self._root is None else reading_order(self._root)

    def sizeHint(self) -> QSize:
        return QSize() if self._root is None else self._root.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize() if self._root is None else self._root.minimumSizeHint()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:  # a panel or the root needs another size
            self.ask()
            self._tell_window()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._root is not None:
            self.arranging = True
            try:
                self._root.setGeometry(self.rect())
            finally:
                self.arranging = False
            self.follow()
