"""The middle of the window: arranges the panels as a layout says. Main thread only.

Each panel exists once and lies where the layout that is on show has its placeholder (`Stage`); the splitters of a
layout are made when it is first needed and keep the user's sizes. The panels that only Monitor and Learn have are made
then as well. In a low window some layouts have another arrangement, with splitters of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QFrame, QMenu, QWidget

from devexplorer.core.session import Change, Place, Settings, UnderWay
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.objects.panel import ObjectsPanel
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.shell.bottom_dock import BottomDock
from devexplorer.gui.shell.layouts import BY_NAME, LAYOUTS, Layout, Split, is_low
from devexplorer.gui.shell.panel_room import PanelRoom
from devexplorer.gui.shell.rail import Rail
from devexplorer.gui.shell.stage import Stage
from devexplorer.gui.shell.window_places import WindowPlaces
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import HEADER_PX, KeptSplitter, after_paint, reading_order, vbox

if TYPE_CHECKING:
    from devexplorer.gui.devices.monitor import MonitorPanel
    from devexplorer.gui.timelines.stack import PlotStack

GAP_PX = 8
TITLES = {"cards": "Devices at a glance", "stack": "Plots"}
"""Of panels; others are called as they are."""
OTHERS = ("cards", "stack", "exercise")
"""Panels that only some layouts have."""
DEFAULT = 0
"""In the settings: the size that the layout gives a part."""


class Workbench(Stage):
    """`panels`: those of Explore by name. `refresh` and `refresh_texts` like the window."""

    arranged = Signal()
    """Another layout is on show."""

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
        """Names of panels that were folded at the end of the last session, and are not on show yet."""
        self._to_detach = set(settings.detached)
        """Names of panels that had a window of their own then, until the window is on show."""
        self.rail = Rail(LAYOUTS)
        self.rail.chosen.connect(self.show_layout)
        pages.wanted.connect(self._show_pages)
        self._low = False
        """Whether panels stand as in a low window."""
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

    @property
    def folded(self) -> tuple[str, ...]:
        """Names of the folded panels, to be remembered."""
        return self._names(self._to_fold, self.room.folded)

    @property
    def detached(self) -> tuple[str, ...]:
        """Names of the panels in windows of their own, to be remembered."""
        return self._names(self._to_detach, self.room.windows)

    @property
    def places(self) -> dict[str, dict[str, Place]]:
        """Where all windows are, to be remembered."""
        self._places.remember(self.window())
        for window in self.room.windows.values():
            self._places.remember(window, window.title)
        return self._places.places

    def _names(self, waiting: Iterable[str], panels: Collection[QWidget]) -> tuple[str, ...]:
        made = {**self._panels, **vars(self)}  # `cached_property` keeps those of only some layouts there
        return tuple(sorted({*waiting, *(name for name, part in made.items() if any(part is one for one in panels))}))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        after_paint(self, self._bring_windows)

    def _bring_windows(self) -> None:
        """The panels that had windows of their own have them again."""
        names, self._to_detach = self._to_detach & {*self._panels, *OTHERS}, set()
        for name in sorted(names):
            if name == "exercise":
                self._pages.page("learn")
            self.room.detach(self._panel(name), _title(name))
        if names:
            self.window().activateWindow()

    def enlarge(self) -> None:
        """Give the panel with the keyboard all the room, or bring the others back."""
        if (found := self._panel_of(QApplication.focusWidget())) is not None:
            self.room.enlarge(found[0])

    def fold(self) -> None:
        """Fold the panel with the keyboard, or unfold it."""
        if (found := self._panel_of(QApplication.focusWidget())) is not None:
            self.room.toggle_fold(*found)

    def detach(self) -> None:
        """Put the panel with the keyboard into a window of its own."""
        if (found := self._panel_of(QApplication.focusWidget())) is not None:
            self.room.detach(*found)

    def go_to_panel(self, step: int) -> None:
        """Give the keyboard to the next panel (1), or to the one before (-1), round and round."""
        places = [self.room.place(self._panel(name)) for name in self.arrangement.panels]
        seen = [place for place in places if place.isVisible() and place.window() is self.window()]
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
            self.room.enlarge(found[0])

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        found = self._heading(event.pos())
        if found is None:
            return
        panel = found[0]
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        enlarged, folded = self.room.enlarged is not None, panel in self.room.folded
        menu.addAction("Bring the others back" if enlarged else "Enlarge", partial(self.room.enlarge, panel))
        menu.addAction("Unfold" if folded else "Fold to the heading", partial(self.room.toggle_fold, *found))
        menu.addAction("In a window of its own", partial(self.room.detach, *found))
        menu.popup(event.globalPos())

    @cached_property
    def cards(self) -> MonitorPanel:
        """Every device at a glance."""
        from devexplorer.gui.devices.monitor import MonitorPanel

        context = self._context
        cards = MonitorPanel(context.state)
        cards.selected.connect(context.device_requested)
        cards.selected.connect(context.select_device)
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
        memory = self._panels["memory"]
        assert isinstance(memory, PlotSlot)
        stack.export_requested.connect(memory.export_requested)
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
    def arrangement(self) -> Split:
        """How the panels of the layout stand now."""
        return self.layout_shown.arrangement(low=self._low)

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
        """The readings on the cards of Monitor are so old."""
        if self._seen("cards"):
            self.cards.set_age(words, about)

    def show_progress(self, work: UnderWay) -> None:
        """Show long work on the cards of Monitor."""
        if self._seen("cards"):
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
        return {
            "layout": self.layout_shown.name,
            "splitters": self.sizes(),
            "folded": self.folded,
            "detached": self.detached,
            "places": self.places,
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

    def _arrange(self, split: Split, layout: Layout) -> None:
        """Put what stands for the panels into the splitter of `split`: another layout may have had it."""
        splitter = self._splitter(split, layout)
        for at, part in enumerate(split.parts):
            child = self._splitter(part, layout) if isinstance(part, Split) else self.room.part(self._panel(part))
            if splitter.widget(at) is not child:
                splitter.insertWidget(at, child)
            if isinstance(part, Split):
                self._arrange(part, layout)
            else:
                child.setVisible(self._panel(part) not in self.room.windows)
        splitter.keep(splitter.kept)

    def _splitter(self, split: Split, layout: Layout) -> KeptSplitter:
        name = key(layout, split)
        if name not in self.splitters:
            made = KeptSplitter(split.orientation, split.shares, split.least, split.flexible)
            made.setHandleWidth(GAP_PX)
            self.take(made)
            self.splitters[name] = made
            self._keep_remembered(name)
        return self.splitters[name]


def key(layout: Layout, split: Split) -> str:
    """Under which the sizes of a splitter are remembered."""
    return split.name if layout is LAYOUTS[0] else f"{layout.name} {split.name}"


def _title(panel: str) -> str:
    return TITLES.get(panel, panel.capitalize())
