"""The middle of the window: arranges the panels as a layout says, and the slim rail at the left that switches between
the layouts. Main thread only.

Each panel exists once and lies where the layout that is shown has its placeholder (`Stage`); the splitters of a
layout are made when it is first needed and keep the user's sizes. The panels that only Monitor and Learn have are made
then as well. In a low window some layouts have another arrangement, with splitters of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QButtonGroup,
    QFrame,
    QTabWidget,
    QToolButton,
    QWidget,
)
from shiboken6 import isValid

from devexplorer.core.session import Change, Settings, UnderWay
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.actions.layout import Layout, PanelSplit
from devexplorer.gui.objects.panel import ObjectsPanel
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.shell.bottom_dock import BottomDock
from devexplorer.gui.shell.layouts import BY_NAME, LAYOUTS, is_low
from devexplorer.gui.shell.panel_room import PanelRoom, Stage, WindowPlaces
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import (
    HEADER_PX,
    KeptSplitter,
    Role,
    after_paint,
    current_theme,
    font,
    icon,
    popup_menu,
    reading_order,
    theme_changed,
    vbox,
)

if TYPE_CHECKING:
    from devexplorer.gui.devices.monitor import MonitorPanel
    from devexplorer.gui.timelines.stack import PlotStack


WIDTH_PX = 60


class Rail(QFrame):
    """A button for each layout; the action table has the keys."""

    chosen = Signal(str)
    """Name of the layout."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        super().__init__()
        self.setObjectName("rail")
        self.setAccessibleName("Layouts")
        self.setFixedWidth(WIDTH_PX)
        self._icons = {layout.name: layout.icon for layout in layouts}
        self.buttons: dict[str, QToolButton] = {}
        self._group = QButtonGroup(self)
        for number, layout in enumerate(layouts, start=1):
            button = QToolButton()
            button.setProperty("look", "rail")
            button.setText(layout.title)
            button.setFont(font(Role.LABEL))
            button.setCheckable(True)
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setIconSize(QSize(20, 20))
            button.setFixedSize(WIDTH_PX - 8, 52)
            button.setToolTip(f"{layout.tooltip} (Alt+{number})")
            button.setAccessibleName(layout.title)
            button.clicked.connect(partial(self.chosen.emit, layout.name))
            self._group.addButton(button)
            self.buttons[layout.name] = button
        vbox(*self.buttons.values(), None, spacing=4, margins=(4, 8, 4, 8), parent=self)
        theme_changed.connect(self._draw_icons)
        self._draw_icons()

    def show_chosen(self, name: str) -> None:
        """Mark the layout that is shown. Tab goes to its button, from there the arrows to the others."""
        self.buttons[name].setChecked(True)
        for button in self.buttons.values():
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus if button.isChecked() else Qt.FocusPolicy.NoFocus)

    def _draw_icons(self) -> None:
        for name, button in self.buttons.items():
            button.setIcon(icon(self._icons[name], current_theme().soft, size=20))


GAP_PX = 8
TITLES = {"cards": "Devices", "stack": "Plots"}
"""Of panels; others are called as they are."""
OTHERS = ("cards", "stack", "exercise")
"""Panels that only some layouts have."""
DEFAULT = 0
"""In the settings: the size that the layout gives a part."""


class Workbench(Stage):
    """`panels`: those of Explore by name. `refresh` and `refresh_texts` like the window."""

    arranged = Signal()
    """Another layout is shown."""

    def __init__(
        self,
        context: WindowContext,
        pages: BottomDock,
        axis: TimeAxis,
        panels: Mapping[str, QWidget],
        settings: Settings,
    ) -> None:
        super().__init__()
        self._context, self._pages, self._axis, self._panels = context, pages, axis, panels
        self._sizes = dict(settings.splitters)
        """What is remembered of splitters that are not made yet."""
        self.splitters: dict[str, KeptSplitter] = {}
        """Those that were made, by `key`."""
        self._places = WindowPlaces(settings.places, settings.geometry)
        self.restore_window = self._places.restore
        self.room = PanelRoom(self, self._places)
        self._to_fold = set(settings.folded)
        """Names of panels that were folded at the end of the last session, and are not shown yet."""
        self._to_detach = set(settings.detached)
        """Names of panels that had a window of their own then, until the window is shown."""
        self.rail = Rail(LAYOUTS)
        self.rail.chosen.connect(self.show_layout)
        pages.wanted.connect(self._show_pages)
        self._low = self._measured = False
        """Whether panels stand as in a low window, and whether the plot of throughput had something to show when the
        layout appeared: it comes and goes with a layout, never by itself."""
        self.layout_shown = LAYOUTS[0]
        self.show_layout(settings.layout if settings.layout in BY_NAME else LAYOUTS[0].name)

    # --- panels

    def _panel(self, name: str) -> QWidget:
        if name in self._panels:
            return self._panels[name]
        made: QWidget = getattr(self, name)
        return made

    def _panel_of(self, widget: QWidget | None) -> tuple[QWidget, str] | None:
        """The panel that a widget is in, or its heading, with its title."""
        for name in self.arrangement.panels:
            panel = self._panel(name)
            place = self.room.folded.get(panel, panel)
            if widget is not None and (place is widget or place.isAncestorOf(widget)):
                return panel, _title(name)
        return None

    def place_of(self, widget: QWidget) -> QWidget | None:
        """The panel that a widget is in, or its heading while it is folded."""
        found = self._panel_of(widget)
        return None if found is None else self.room.place(found[0])

    def _names(self, waiting: Iterable[str], panels: Collection[QWidget]) -> tuple[str, ...]:
        made = {**self._panels, **vars(self)}  # `cached_property` keeps those of only some layouts there
        return tuple(sorted({*waiting, *(name for name, part in made.items() if any(part is one for one in panels))}))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        after_paint(self, self._bring_windows)

    def _bring_windows(self) -> None:
        """The panels that had windows of their own have them again."""
        names, self._to_detach = self._to_detach & {*self._panels, *OTHERS}, set()
        if "learn" not in self._pages.areas:
            names.discard("exercise")
        for name in sorted(names):
            if name == "exercise":
                self._pages.page("learn")
            self.room.detach(self._panel(name), _title(name))
        if names:
            self.window().activateWindow()

    def give_room(self, how: Callable[[QWidget, str], None]) -> None:
        """Do this with the panel that has the keyboard: one of the ways of `PanelRoom`."""
        if (found := self._panel_of(QApplication.focusWidget())) is not None:
            how(*found)

    def reset_layout(self) -> None:
        """Give the panels of this layout their first sizes; none of them is folded or in a window of its own."""
        self.room.restore()
        for name in self.arrangement.panels:
            panel = self._panel(name)
            if panel in self.room.windows:
                self.room.windows[panel].close()
            self.room.unfold(panel)
        for splitter in (self.root, *self.root.findChildren(KeptSplitter)):
            splitter.keep(splitter.shares)
        self._context.banner.say("The panels have their first places and sizes.", passing=True)

    def go_to_panel(self, step: int) -> None:
        """Give the keyboard to the next panel (1), or to the one before (-1), round and round.

        Nothing happens where no panel is to be seen: all can have windows of their own.
        """
        places = [self.room.place(self._panel(name)) for name in self.arrangement.panels]
        seen = [place for place in places if place.isVisible() and place.window() is self.window()]
        if not seen:
            return
        focus = QApplication.focusWidget()
        inside = (at for at, place in enumerate(seen) if focus is not None and place.isAncestorOf(focus))
        place = seen[(next(inside, -1 if step > 0 else 0) + step) % len(seen)]
        if place is self._panels["objects"]:
            self.take_focus()
        else:
            stops = (stop for stop in reading_order(place) if stop.isVisible() and stop.isEnabled())
            next(stops, place).setFocus(Qt.FocusReason.TabFocusReason)

    def _heading(self, where: QPoint) -> tuple[QWidget, str] | None:
        """The panel whose heading is there, with its title."""
        found = self._panel_of(self.childAt(where))
        if found is None or self.room.place(found[0]).mapFrom(self, where).y() >= HEADER_PX:
            return None
        return found

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if (found := self._heading(event.position().toPoint())) is not None:
            self.room.enlarge(*found)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        found = self._heading(event.pos())
        if found is None:
            return
        panel = found[0]
        menu = popup_menu(self)
        enlarged, folded = self.room.enlarged is not None, panel in self.room.folded
        menu.addAction("Bring the others back" if enlarged else "Enlarge", partial(self.room.enlarge, *found))
        menu.addAction("Unfold" if folded else "Fold to the heading", partial(self.room.toggle_fold, *found))
        menu.addAction("In a separate window", partial(self.room.detach, *found))
        menu.addSeparator()
        menu.addAction("Reset the layout", self.reset_layout)
        menu.popup(event.globalPos())

    @cached_property
    def cards(self) -> MonitorPanel:
        """A table of all devices."""
        from devexplorer.gui.devices.monitor import MonitorPanel

        context = self._context
        cards = MonitorPanel(context.state)
        cards.selected.connect(context.device_requested)
        cards.selected.connect(context.select_device)
        cards.opened.connect(partial(context.show_tab, "device"))
        context.device_selected.connect(cards.choose)
        cards.needs.connect(partial(self._on_need, cards))
        return cards

    def _on_need(self, panel: QWidget, pixels: int) -> None:
        placeholder = self.placeholder(panel)
        splitter = placeholder.parentWidget()
        if isinstance(splitter, KeptSplitter):
            splitter.need(splitter.indexOf(placeholder), pixels)

    @cached_property
    def stack(self) -> PlotStack:
        """Any quantities over time."""
        from devexplorer.gui.timelines.stack import PlotStack

        context = self._context
        stack = PlotStack(context.state, self._axis, context.settings.monitor_plots)
        stack.choices_changed.connect(lambda choices: context.save_settings(monitor_plots=choices))
        return stack

    @property
    def stack_slots(self) -> Sequence[PlotSlot]:
        """Its plots, where it was made."""
        return self.stack.slots if "stack" in vars(self) else ()

    @cached_property
    def exercise(self) -> QWidget:
        """The exercise that is under way."""
        frame = QFrame()
        frame.setObjectName("panel")
        vbox(self._pages.areas["learn"], margins=1, parent=frame)
        return frame

    # --- layouts

    def show_layout(self, name: str) -> None:
        """Arrange the panels for a kind of work."""
        self.rail.show_chosen(name)
        layout = self.layout_shown = BY_NAME[name]
        throughput = self._panels["throughput"]
        assert isinstance(throughput, PlotSlot)
        self._measured = throughput.has_curves
        split = self.arrangement
        root = self._splitter(split, layout)
        if root is self._root:
            return
        self.room.restore()
        focus = QApplication.focusWidget()
        if focus is not None and self.isAncestorOf(focus):
            focus.clearFocus()  # Qt would look for another place for the keyboard
        with self._arrange_anew(root):
            self._arrange(split, layout)
        self._pages.offer(layout)
        if self.shows("exercise"):
            after_paint(self, self._make_exercise)
        for name in self._to_fold & set(split.panels):
            self._to_fold.discard(name)
            self.room.fold(self._panel(name), _title(name))
        for heading in self.room.folded.values():
            self.room.share(heading)
        self.arranged.emit()
        if self.isVisible():
            if focus is not None and focus.isVisible():
                focus.setFocus()
            else:
                self.take_focus()

    def _make_exercise(self) -> None:
        if self.shows("exercise"):
            self._pages.page("learn")

    def _show_pages(self, layout: str) -> None:
        """A page is wanted: in that layout, or in the present one."""
        if layout:
            self.show_layout(layout)
        self.room.reveal(self._pages)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The window may be low now, or is no longer. Its own size counts: a banner moves no panels."""
        super().resizeEvent(event)
        low = is_low(self.window().size(), before=self._low)
        if low != self._low:
            self._low, enlarged = low, self.room.enlarged
            self.show_layout(self.layout_shown.name)
            if enlarged is not None and self.room.enlarged is None:
                self.room.enlarge(enlarged)

    @property
    def arrangement(self) -> PanelSplit:
        """How the panels of the layout stand now."""
        return self.layout_shown.arrangement(low=self._low, measured=self._measured)

    @property
    def root(self) -> KeptSplitter:
        """The outermost splitter of the layout."""
        return self.splitters[key(self.layout_shown, self.arrangement)]

    def take_focus(self) -> None:
        """Put the keyboard where work begins."""
        objects = self._panels["objects"]
        assert isinstance(objects, ObjectsPanel)
        if self.shows("objects"):
            objects.take_focus()
        else:
            self._pages.tabs.tabBar().setFocus()

    def shows(self, panel: str) -> bool:
        """Whether the layout has that panel."""
        return panel in self.arrangement.panels

    def _seen(self, panel: str) -> bool:
        """Whether a panel of only some layouts was made (`cached_property` keeps it here then), and can be seen."""
        made = vars(self).get(panel)
        return made is not None and made.isVisible()

    def share_again(self) -> None:
        """The style is known now, which says how small each part can be."""
        self.ask()
        for splitter in self.splitters.values():
            splitter.keep(splitter.kept)

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        """Redraw what only some layouts have."""
        if self._seen("stack"):
            self.stack.refresh(now_unix_s)
        if changes & Change.DEVICES and self._seen("cards"):
            self.cards.refresh_devices()

    def set_age(self, words: str, about: str = "") -> None:
        """The readings in the table of Monitor are so old."""
        if self._seen("cards"):
            self.cards.set_age(words, about)

    def show_progress(self, work: UnderWay) -> None:
        """Show long work in the table of Monitor."""
        if "cards" in vars(self):  # also while it cannot be seen: it is told once that work is over
            self.cards.show_progress(work)

    def refresh_texts(self) -> None:
        """Live numbers, once or twice a second."""
        if self._seen("cards"):
            self.cards.refresh_texts()

    def sizes(self) -> dict[str, list[int]]:
        """What to remember for the next start."""
        made = {
            name: [int(size) if size >= 1 else DEFAULT for size in splitter.kept]
            for name, splitter in self.splitters.items()
        }
        return self._sizes | made

    def remembered(self) -> dict[str, Any]:
        """Fields of the settings, as they are now."""
        self._places.remember(self.window())
        for window in self.room.windows.values():
            self._places.remember(window, window.title)
        return {
            "layout": self.layout_shown.name,
            "splitters": self.sizes(),
            "folded": self._names(self._to_fold, self.room.folded),
            "detached": self._names(self._to_detach, self.room.windows),
            "places": self._places.places,
        }

    def _keep_remembered(self, name: str) -> None:
        splitter, wanted = self.splitters[name], self._sizes.get(name, [])
        if len(wanted) == len(splitter.shares) and all(size >= 0 for size in wanted):
            splitter.keep([size or share for size, share in zip(wanted, splitter.shares, strict=True)])

    def show_saved(self, settings: Settings) -> None:
        """Arrange everything as it was when a workspace was saved."""
        self._sizes = self.sizes() | settings.splitters
        self.room.restore()
        for name in self.splitters:
            self._keep_remembered(name)
        self._context.save_settings(monitor_plots=settings.monitor_plots)
        if "stack" in vars(self):
            self.stack.show_choices(settings.monitor_plots)
        if settings.layout in BY_NAME:
            self.show_layout(settings.layout)

    def _arrange(self, split: PanelSplit, layout: Layout) -> None:
        """Put what stands for the panels into the splitter of `split`: another layout may have had it."""
        splitter = self._splitter(split, layout)
        for at, part in enumerate(split.parts):
            child = self._splitter(part, layout) if isinstance(part, PanelSplit) else self.room.part(self._panel(part))
            if splitter.widget(at) is not child:
                splitter.insertWidget(at, child)
            if isinstance(part, PanelSplit):
                self._arrange(part, layout)
            else:
                child.setVisible(self._panel(part) not in self.room.windows)
        if "cards" in split.parts:
            self.cards.refresh_devices()  # it says how high it has to be
        splitter.keep(splitter.kept)

    def _splitter(self, split: PanelSplit, layout: Layout) -> KeptSplitter:
        name = key(layout, split)
        if name not in self.splitters:
            made = KeptSplitter(split.orientation, split.shares, split.least, split.flexible)
            made.setHandleWidth(GAP_PX)
            made.moved.connect(self.follow)  # where it moves, the panels in it move too
            self.splitters[name] = made
            self._keep_remembered(name)
        return self.splitters[name]


def key(layout: Layout, split: PanelSplit) -> str:
    """Under which the sizes of a splitter are remembered."""
    return split.name if layout is LAYOUTS[0] else f"{layout.name} {split.name}"


def _title(panel: str) -> str:
    return TITLES.get(panel, panel.capitalize())


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
        if last is None or not isValid(last) or _usable(last) or QApplication.mouseButtons():
            return  # a button that loses the keyboard while the mouse holds it down is not clicked
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
