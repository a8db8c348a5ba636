"""More or less room for one panel of the workbench: folded to its heading, enlarged, in a window of its own. Main
thread only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QApplication, QFrame, QSplitter, QWidget

from devexplorer.gui.shell.stage import Stage
from devexplorer.gui.shell.window_places import WindowPlaces
from devexplorer.gui.widgets import (
    HEADER_PX,
    UNLIMITED_PX,
    KeptSplitter,
    OnScreen,
    hbox,
    push_button,
    reading_order,
    vbox,
)

FOLDED_PX = 132
"""Width of a folded panel beside others, if its title has room in it."""


class PanelWindow(QWidget):
    """A window for one panel; closing it gives the panel back."""

    closed = Signal()

    def __init__(self, panel: QWidget, title: str, owner: QWidget) -> None:
        super().__init__(owner, Qt.WindowType.Window)
        self.title = title
        self.setWindowTitle(f"DevExplorer: {title}")
        self._main = owner.window()
        self.addActions(self._main.actions())  # their keys are heard here too
        size = panel.size()
        vbox(panel, margins=8, parent=self)
        self.resize(size.width() + 16, max(size.height() + 16, 300))
        self._on_screen = OnScreen(self)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._on_screen.shown()

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Digits move things from here as well."""
        QApplication.sendEvent(self._main, event)


class Heading(QFrame):
    """All that is left of a folded panel: a click on it unfolds."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.button = push_button(f"{title} ▸", look="quiet", tip="Unfold this panel", name=f"Unfold {title}")
        vbox(hbox(self.button, None), None, margins=(6, 2, 6, 2), parent=self)

    @property
    def narrow_px(self) -> int:
        """Its width beside others."""
        self.button.ensurePolished()
        return max(FOLDED_PX, self.minimumSizeHint().width())


class PanelRoom(QObject):
    """`owner`: the stage with the panels. At most one panel is enlarged; any number is folded or has a window."""

    def __init__(self, owner: Stage, places: WindowPlaces) -> None:
        super().__init__(owner)
        self._owner, self._places = owner, places
        self._hidden: list[QWidget] = []
        """What gave way to the enlarged panel."""
        self.enlarged: QWidget | None = None
        self.folded: dict[QWidget, Heading] = {}
        self.windows: dict[QWidget, PanelWindow] = {}
        """By panel, both."""
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), owner, self.restore)
        self._escape.setEnabled(False)  # Escape means other things too

    def place(self, panel: QWidget) -> QWidget:
        """What is seen of the panel: itself, or its heading."""
        return self.folded.get(panel) or panel

    def part(self, panel: QWidget) -> QWidget:
        """What stands for the panel in a splitter."""
        return self.folded.get(panel) or self._owner.placeholder(panel)

    def reveal(self, panel: QWidget) -> None:
        """Whatever gave way or was folded, the panel can be seen now."""
        if self.enlarged is not panel:
            self.restore()
        self.unfold(panel)

    # --- enlarged

    def enlarge(self, panel: QWidget) -> None:
        """Give the panel all the room; once more, or Escape, and everything is as before."""
        if self.enlarged is not None:
            self.restore()
            return
        if panel in self.windows:
            return
        self.unfold(panel)
        child = self.part(panel)
        for splitter in _around(child):
            self._hidden += [part for part in _parts(splitter) if part is not child and not part.isHidden()]
            child = splitter
        for part in self._hidden:
            part.hide()
        self.enlarged = panel
        self._escape.setEnabled(True)
        _give_keyboard(panel)

    def restore(self) -> None:
        """The panels that gave way come back."""
        for part in self._hidden:
            part.show()
        self._hidden, self.enlarged = [], None
        self._escape.setEnabled(False)

    # --- folded

    def toggle_fold(self, panel: QWidget, title: str) -> None:
        """Fold the panel to its heading, or unfold it. One that has a window stays as it is."""
        self.restore()
        if panel in self.folded:
            self.unfold(panel)
        elif panel not in self.windows:
            _give_keyboard(self.fold(panel, title))

    def fold(self, panel: QWidget, title: str) -> Heading:
        """Fold a panel that is neither folded nor in a window."""
        heading = self.folded[panel] = Heading(title)
        heading.button.clicked.connect(partial(self.unfold, panel))
        placeholder = self._owner.placeholder(panel)
        self._exchange(placeholder, heading)
        placeholder.setParent(None)
        placeholder.follow()
        heading.show()
        self.share(heading)
        return heading

    def unfold(self, panel: QWidget) -> None:
        """It has its room again."""
        heading = self.folded.pop(panel, None)
        if heading is not None:
            placeholder = self._owner.placeholder(panel)
            self._exchange(heading, placeholder)
            placeholder.stand(True)
            heading.deleteLater()
            self.share(placeholder)
            _give_keyboard(panel)

    def share(self, part: QWidget) -> None:
        """Give its splitter the sizes that follow: a row is folded when all in it are, else headings are narrow."""
        splitter = next(_around(part), None)
        if splitter is None:
            return
        parts = _parts(splitter)
        across = splitter.orientation() == Qt.Orientation.Horizontal
        whole = across and all(isinstance(each, Heading) for each in parts)
        for each in parts:
            if isinstance(each, Heading):
                each.setMaximumWidth(each.narrow_px if across and not whole else UNLIMITED_PX)
                each.setMaximumHeight(HEADER_PX if whole or not across else UNLIMITED_PX)
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
        placeholder = self._owner.placeholder(panel)
        window = self.windows[panel] = PanelWindow(panel, title, self._owner)
        placeholder.stand(False)
        window.closed.connect(partial(self.attach, panel))
        self._places.restore(window, title)
        panel.show()
        window.show()

    def attach(self, panel: QWidget) -> None:
        """Bring the panel back into the window."""
        window, placeholder = self.windows.pop(panel), self._owner.placeholder(panel)
        self._places.remember(window, window.title)
        panel.setParent(self._owner)
        placeholder.stand(True)
        window.hide()
        window.deleteLater()
        self.share(placeholder)

    def keep_windows(self) -> None:
        """The window closes, and these with it: at the next start they are there again."""
        for window in self.windows.values():
            window.blockSignals(True)

    @staticmethod
    def _exchange(old: QWidget, new: QWidget) -> None:
        splitter = old.parent()
        if isinstance(splitter, QSplitter):  # no layout has shown it yet otherwise
            splitter.replaceWidget(splitter.indexOf(old), new)


def _give_keyboard(part: QWidget) -> None:
    """What had it may be hidden now, and Qt would choose the next button anywhere."""
    focus = QApplication.focusWidget()
    if focus is None or not focus.isVisible() or not part.isAncestorOf(focus):
        next(reading_order(part), part).setFocus()


def _parts(splitter: QSplitter) -> list[QWidget]:
    return [part for at in range(splitter.count()) if (part := splitter.widget(at)) is not None]


def _around(widget: QWidget) -> Iterator[QSplitter]:
    """The splitters that it is in, the innermost first."""
    parent = widget.parentWidget()
    while isinstance(parent, QSplitter):
        yield parent
        parent = parent.parentWidget()
