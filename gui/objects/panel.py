"""The objects panel: the tree of tensors and models, its filter, order, groups and selection; what an empty workspace
offers in their place. Main thread."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from devexplorer.core.records import Diagnosis
from devexplorer.core.session import NOTHING_UNDER_WAY, State, UnderWay
from devexplorer.core.session.arrangement import HINT, Key, Options, SearchQuery
from devexplorer.core.session.findings import holder
from devexplorer.gui.objects.item_model import SORTED_BY, ObjectsModel
from devexplorer.gui.objects.tree import ChipsDelegate, ObjectsTree
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    Panel,
    Role,
    Sign,
    can_add_virtual,
    hbox,
    label,
    line_edit,
    push_button,
    show_text,
    vbox,
    why_not_live,
)

ICON_PX, WIDTH_PX, GUIDED_PX = 20, 400, 18


class Way(NamedTuple):
    """One of them."""

    name: str
    title: str
    words: str
    icon: str
    needs_engine: bool = True


WAYS = (
    Way("build", "Build a sample model", "An MLP, a ResNet, a transformer: to move and measure", "build"),
    Way("open", "Open my model…", "Your own Python: will it run on a GPU, and does it fit?", "open"),
    Way("watch", "Watch my machine", "Every device: load, memory, alerts", "monitor", needs_engine=False),
)
GUIDED = "guided"
"""The way of the small button."""


class WaysIn(QWidget):
    """One sentence, a button for each way in, and a small one that shows how."""

    chosen = Signal(str)
    """Name of the way."""

    def __init__(self) -> None:
        super().__init__()
        self.sentence = label(words="dim", wrap=True, align=CENTRE)
        self.buttons: dict[str, QPushButton] = {way.name: _WayButton(way) for way in WAYS}
        self.buttons[GUIDED] = push_button("Show me how", look="quiet", tip="A guided minute: build, move, measure")
        self.buttons[GUIDED].setFixedHeight(GUIDED_PX)
        for name, button in self.buttons.items():
            button.clicked.connect(partial(self.chosen.emit, name))
        rows = (part for way in WAYS for part in (None, self.buttons[way.name]))
        top = hbox((self.sentence, 1), self.buttons[GUIDED])
        column = vbox((None, 3), top, *rows, (None, 3), spacing=4)
        middle = QWidget()
        middle.setMaximumWidth(WIDTH_PX)
        middle.setLayout(column)
        hbox(None, (middle, 100), None, margins=(EDGE_PX, 4, EDGE_PX, 4), parent=self)

    def leave_out(self, name: str) -> None:
        """Do not offer this way."""
        self.buttons.pop(name).deleteLater()

    def say(self, text: str, state: State) -> None:
        """Why there is nothing here; the ways that can be gone now."""
        show_text(self.sentence, text)
        needing = {way.name for way in WAYS if way.needs_engine} | {GUIDED}
        for name, button in self.buttons.items():
            reason = why_not_live(state) if name in needing else None
            button.setVisible(state.recording is None)
            button.setEnabled(reason is None)
            button.setToolTip(reason or "")
        if len(state.usable_devices) < 2 and not can_add_virtual(state):
            self.buttons[GUIDED].hide()  # there is nothing to move to


class _WayButton(QPushButton):
    """An icon, a title, a few words."""

    def __init__(self, way: Way) -> None:
        super().__init__(autoDefault=True)  # Enter presses it
        self.setAccessibleName(way.title)
        self.setAccessibleDescription(way.words)
        icon = Sign(way.icon, "soft", ICON_PX)
        words = label(way.words, Role.LABEL, "dim")
        row = hbox(
            icon,
            (vbox(label(way.title, Role.STRONG), words, spacing=0), 1),
            spacing=EDGE_PX,
            margins=(EDGE_PX, 3, EDGE_PX, 4),
            parent=self,
        )
        for part in (icon, *self.findChildren(QLabel)):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._row = row

    def sizeHint(self) -> QSize:
        return self._row.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return self._row.minimumSize()


FILTER_PX = 110, 250
"""Width of the filter: at least, at most."""
OPEN_AT_MOST = 100
"""A filter opens at most so many branches; more would not help."""


class ObjectsPanel(Panel):
    """Reads `state.objects`; call `refresh` when they changed."""

    selection_changed = Signal(object)
    """The selected targets (tuple of str)."""
    context_menu_requested = Signal(QPoint)
    """Where on the screen."""
    way_chosen = Signal(str)
    """A button of the empty workspace: name of one of `WAYS`."""
    drag_started = Signal(object)
    """Targets (tuple of str)."""
    drag_ended = Signal()
    finding_opened = Signal(object, int)
    """Double-click or Return on a finding: name of the object (str), number of the finding."""

    def __init__(self, state: State) -> None:
        super().__init__("Objects")
        self._state = state
        self._selected: tuple[str, ...] | None = ()
        """What is selected; None: not read yet."""
        self._announced: tuple[str, ...] = ()
        self._known: set[str] = set()
        self._known_engine = False
        self._diagnoses: dict[str, Diagnosis] = {}
        """What the tree has shown of the doctor's."""
        self.by_device = _toggle(
            "by device", "Group by device: each device lists its objects, and its parts of mixed models"
        )
        self.training_parts = _toggle("gradients", "Show gradients and what optimizers keep")
        self.training_parts.setChecked(True)
        self.unfold_all = push_button(
            "unfold", self.unfold, look="quiet", tip="Show every part of the selected model (*)"
        )
        self.filter = line_edit(placeholder="filter  /", name="filter objects", tip=HINT, clear=True)
        self.filter.setProperty("look", "quiet")
        self.filter.setMinimumWidth(FILTER_PX[0])
        self.filter.setMaximumWidth(FILTER_PX[1])
        self._tools = (self.unfold_all, self.by_device, self.training_parts, self.filter)
        for tool in self._tools:
            self.add_to_header(tool)
        self.again = push_button("", look="quiet")
        """While there is nothing here: opens what was saved last. `RecentMenu` sees to it."""
        self.again.hide()
        self.add_to_header(self.again)
        self._header.setStretchFactor(self.filter, 3)  # wide before the words behind the title are
        self.model = ObjectsModel()
        self.tree = ObjectsTree()
        self.tree.setModel(self.model)
        self.tree.fit_columns()
        self._delegate = ChipsDelegate(state.look_of)
        self.tree.setItemDelegate(self._delegate)
        self._aside: list[Key] = []
        """What is selected, while everything gets another place."""
        self._open_before: list[Key] = []
        """What was expanded before a filter was typed."""
        self._work = NOTHING_UNDER_WAY
        self._connect()
        self.set_content(self.tree)
        self.empty = WaysIn()
        self.empty.chosen.connect(self.way_chosen)
        self.set_empty_state(self.empty)
        self.refresh()

    def _connect(self) -> None:
        self.filter.textChanged.connect(self._on_filter)
        self.by_device.toggled.connect(lambda on: self._arrange(self.model.options._replace(grouped=on)))
        self.training_parts.toggled.connect(lambda on: self._arrange(self.model.options._replace(training_parts=on)))
        self.tree.header().sectionClicked.connect(self._on_header)
        self.tree.expanded.connect(self._mark_work)
        self.tree.collapsed.connect(self._mark_work)
        self.tree.customContextMenuRequested.connect(self._on_context_menu)
        self.tree.drag_started.connect(self.drag_started)
        self.tree.drag_ended.connect(self.drag_ended)
        self.tree.finding_opened.connect(self.finding_opened)
        self.tree.selectionModel().selectionChanged.connect(self._on_selection)
        self.model.rearranging.connect(self._put_selection_aside)
        self.model.repaint_wanted.connect(self.tree.viewport().update)

    def refresh(self) -> None:
        """Objects changed: show the new ones, keep selection and expansion."""
        new = [name for name in self._state.objects if name not in self._known]
        self._known = set(self._state.objects)
        self.model.update(self._state.objects, self._state.row_tables, self._state.diagnoses_that_hold)
        self._select_again()
        empty = not self._state.objects
        self.show_empty(empty)
        self._say_why_empty()
        for tool in self._tools:
            tool.setVisible(not empty)
        for name in new:
            self.expand(name)
        self._open_findings()
        if new:
            self.select(new[-1])  # what was just made is what is moved next
            self.tree.setFocus()
        self._on_selection()

    def _open_findings(self) -> None:
        """The doctor has spoken: let the first of what it found be seen."""
        for name, diagnosis in self._state.diagnoses.items():
            index = self.model.finding_index(name, 0).parent()
            while diagnosis is not self._diagnoses.get(name) and index.isValid():
                self.tree.expand(index)
                index = index.parent()
        self._diagnoses = dict(self._state.diagnoses)

    def take_focus(self) -> None:
        """Be where the keyboard is: the tree, or the panel itself while there is no tree to be seen."""
        (self if self.is_empty else self.tree).setFocus()

    def _say_why_empty(self) -> None:
        live = self._state.recording is None
        ready = self._state.engine is not None and live
        if not live:
            words = (
                "A recording has what was watched: devices, moves, benchmarks. The objects themselves are not in it."
            )
        elif not ready and self._state.away:
            words = self._state.away
        elif ready:
            words = "Where do you want to begin?"
        elif self._state.cannot_start:
            words = "The engine cannot start in its Python. Choose another one."
        elif self._state.engine_words == "engine stopped":
            words = "The engine has stopped, and the objects went with it."
        elif self._known_engine:
            words = "The engine is being restarted. The objects come back with it."
        else:
            words = "The engine is starting."
        self._known_engine |= ready
        self.empty.say(words, self._state)

    def show_progress(self, work: UnderWay) -> None:
        """Show long work at the objects that it concerns."""
        self._work = work
        self._mark_work()

    def _mark_work(self) -> None:
        self.model.set_progress(self._work.objects, self.tree.isExpanded)

    def refresh_devices(self) -> None:
        """Devices changed: chips may have another colour."""
        self.tree.viewport().update()

    def current_row(self) -> QRect:
        """Where that row is in the tree's viewport, as far as it can be seen."""
        viewport, cell = self.tree.viewport().rect(), self.tree.visualRect(self.tree.currentIndex())
        return QRect(0, cell.y(), viewport.width(), cell.height()).intersected(viewport)

    def selected_targets(self) -> tuple[str, ...]:
        """What is selected, as commands address it: `name` or `name:path`. What is in another selected part is left
        out."""
        if self._selected is None:
            self._selected = self.model.targets(self.tree.selectionModel().selection())
        return self._selected

    def select(self, *targets: str) -> None:
        """Select these targets and nothing else; those that are gone are left out."""
        selection = self.tree.selectionModel()
        selection.clearSelection()
        for target in targets:
            index = self.model.index_of(target)
            if index.isValid():
                self.tree.scrollTo(index)
                how = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
                selection.setCurrentIndex(index, how)

    def select_near(self, name: str, path: str) -> None:
        """Select what is at this path of an object, or the nearest module around it."""
        snapshot = self._state.objects.get(name)
        if snapshot is not None and snapshot.rows:
            outline = self._state.row_tables.of(snapshot)
            near = outline.shape.paths[holder(outline, path)]
            target = f"{name}:{near}" if near else name
            if self.model.index_of(target).isValid():  # else a filter hides it
                self.select(target)

    def expand(self, target: str) -> None:
        """Show what is in `target`."""
        self.tree.expand(self.model.index_of(target))

    def unfold(self) -> None:
        """Show everything in the row that has the keyboard."""
        self.tree.expandRecursively(self.tree.currentIndex())

    def focus_filter(self) -> None:
        """Put the cursor into the filter."""
        self.filter.setFocus()
        self.filter.selectAll()

    # --- how it is arranged
    # --------------------------------------------------------------------------------------------

    def _arrange(self, options: Options) -> None:
        """Rearrange the tree. What was open stays open; what a filter opened is closed when the filter goes."""
        with self.tree.laid_out_once():
            before = self.model.options
            self.model.arrange(options)
            open_now: Iterable[QModelIndex] = ()
            if options.query.words:
                open_now = itertools.islice(self.model.opened(), OPEN_AT_MOST)
            elif before.query.words:
                self.tree.collapseAll()
                open_now = self.model.indexes(self._open_before)
            elif options.grouped:
                open_now = (self.model.index(at, 0) for at in range(self.model.rowCount()))
            for index in open_now:
                self.tree.expand(index)
        self._select_again()
        self._on_selection()

    def _on_filter(self, text: str) -> None:
        query, before = SearchQuery.of(text), self.model.options.query
        self.tree.nothing = f"Nothing matches “{text}”." if text else ""
        if query == before:
            return
        if not before.words:
            self._open_before = self.model.keys_where(self.tree.isExpanded)
        self._arrange(self.model.options._replace(query=query))
        current = self.tree.currentIndex()
        if not query.words and current.isValid():
            self.tree.scrollTo(current)

    def _on_header(self, column: int) -> None:
        """Sort by this column, the other way round, or no longer: largest first, but names from a to z."""
        field, options = SORTED_BY.get(column), self.model.options
        if field is None:
            return
        first = field == "bytes"
        if options.sorted_by != field:
            self._arrange(options._replace(sorted_by=field, descending=first))
        elif options.descending == first:
            self._arrange(options._replace(descending=not first))
        else:
            self._arrange(options._replace(sorted_by=None, descending=False))

    # --- selection
    # ------------------------------------------------------------------------------------------

    def _put_selection_aside(self) -> None:
        """Everything gets another place: selected rows by the thousand are found again in a few milliseconds, by Qt in
        seconds."""
        selection = self.tree.selectionModel()
        self._aside = self.model.keys(selection.selection())
        selection.blockSignals(True)
        selection.select(QItemSelection(), QItemSelectionModel.SelectionFlag.Clear)
        selection.blockSignals(False)

    def _select_again(self) -> None:
        aside, self._aside = self._aside, []
        if aside:
            self.tree.selectionModel().select(self.model.selection(aside), QItemSelectionModel.SelectionFlag.Select)

    def _on_selection(self) -> None:
        self._selected = None
        now = self.selected_targets()
        if now == self._announced:
            self._selected = (
                self._announced
            )  # the same tuple, so that whoever has looked at it sees that nothing is new
        else:
            self._announced = now
            self.selection_changed.emit(now)

    def _on_context_menu(self, where: QPoint) -> None:
        self.context_menu_requested.emit(self.tree.viewport().mapToGlobal(where))


def _toggle(text: str, words: str) -> QPushButton:
    result = push_button(text, look="quiet", tip=words)
    result.setCheckable(True)
    return result
