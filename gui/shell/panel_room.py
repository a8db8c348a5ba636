"""Where the panels of the workbench lie, and more or less room for one of them: folded to its heading, enlarged, in a
window of its own. Main thread only.

A panel that moved into another splitter would be styled anew with everything in it, which took a third of the time of
changing the layout. So the panels stay children of the `Stage`, and only their placeholders, which are empty and which
splitters size, move.

Qt's `saveGeometry` counts screens by number, and the numbers change when one is plugged in. So the place of a window is
kept by name and size of its screen, from that screen's corner on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from PySide6.QtCore import QByteArray, QEvent, QObject, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QGuiApplication,
    QHideEvent,
    QKeyEvent,
    QKeySequence,
    QMoveEvent,
    QResizeEvent,
    QScreen,
    QShortcut,
    QShowEvent,
)
from PySide6.QtWidgets import QApplication, QFrame, QSplitter, QWidget

from devexplorer.core.session import Place
from devexplorer.gui.widgets import (
    HEADER_PX,
    UNLIMITED_PX,
    KeptSplitter,
    OnScreen,
    fitted,
    hbox,
    push_button,
    reading_order,
    vbox,
)

MAIN = "main"
"""The window itself; the others are called as their panels."""
MOST = 8
"""Screens that are remembered for a window."""


class WindowPlaces:
    """`restore` before a window is shown, `remember` before it is gone."""

    def __init__(self, places: Mapping[str, Mapping[str, Place]], earlier: str = "") -> None:
        """`earlier`: what Qt kept of the main window in an earlier version."""
        self.places = {name: dict(known) for name, known in places.items()}
        """By window and screen; the screen that a window was on last comes last."""
        self._earlier = QByteArray.fromBase64(earlier.encode())

    def remember(self, window: QWidget, name: str = MAIN) -> None:
        """Where the window is now, or is when it is no longer maximized."""
        screen = window.screen()
        rect = window.normalGeometry().translated(-screen.geometry().topLeft())
        known = self.places.setdefault(name, {})
        known.pop(_key(screen), None)
        known[_key(screen)] = Place(rect.x(), rect.y(), rect.width(), rect.height(), window.isMaximized())
        for old in list(known)[:-MOST]:
            del known[old]

    def restore(self, window: QWidget, name: str = MAIN) -> None:
        """Put it on the screen that it was on last, where it was there; without that screen, on the main one."""
        known = self.places.get(name)
        if not known:
            if name == MAIN and not self._earlier.isEmpty():
                window.restoreGeometry(self._earlier)
            return
        last, screens, main = next(reversed(known)), QGuiApplication.screens(), QGuiApplication.primaryScreen()
        screen = next((one for one in screens if _key(one) == last), main)
        place = known.get(_key(screen), known[last])
        rect = QRect(place.left, place.top, place.width, place.height).translated(screen.geometry().topLeft())
        if _key(screen) != last:
            screens = [main]
        window.setGeometry(fitted(rect, [one.availableGeometry() for one in screens], screens.index(screen)))
        if place.maximised:
            window.setWindowState(window.windowState() | Qt.WindowState.WindowMaximized)


def _key(screen: QScreen) -> str:
    return f"{screen.name()} {screen.size().width()}x{screen.size().height()}"


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
        """Put the panel here, or hide it where no splitter shown has this."""
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
    """Has one splitter shown, `root`, and the panels over it."""

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

    @contextmanager
    def _arrange_anew(self, root: KeptSplitter) -> Iterator[None]:
        """Have `root` shown. The block puts placeholders into it; afterwards each panel gets its place, once."""
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

    def enlarge(self, panel: QWidget, _title: str = "") -> None:
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
