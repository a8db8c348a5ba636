"""The objects panel: the tree of tensors and models, its filter and its selection. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QPoint, Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from devexplorer.core.state import State
from devexplorer.gui.item_models.chips import ChipsDelegate, DeviceLook
from devexplorer.gui.item_models.filter import ObjectsFilter
from devexplorer.gui.item_models.objects import TARGET_ROLE, ObjectsModel
from devexplorer.gui.panels.objects_tree import ObjectsTree
from devexplorer.gui.panels.panel import EmptyState, Panel
from devexplorer.gui.theme import Theme

OPEN_AT_MOST = 500
"""A filter opens so many branches; more would be no help to anybody."""


class ObjectsPanel(Panel):
    """Reads `state.objects`; call `refresh` when they changed."""

    selection_changed = Signal(object)
    """The selected targets (tuple of str)."""
    context_menu_requested = Signal(QPoint)
    """Where on the screen."""
    build_requested = Signal(str)
    """The empty state's button: name of a recipe."""
    drag_started = Signal(object)
    """Targets (tuple of str)."""
    drag_ended = Signal()

    def __init__(self, state: State, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Objects", parent=parent)
        self._state = state
        self._announced: tuple[str, ...] = ()
        self._known: set[str] = set()
        self._known_engine = False
        self.filter = QLineEdit()
        self.filter.setProperty("look", "quiet")
        self.filter.setPlaceholderText("filter: name, type, dtype, device    /")
        self.filter.setAccessibleName("filter objects")
        self.filter.setToolTip("Words that name, type, dtype or device must hold, for instance: conv bfloat16 cuda:1")
        self.filter.setClearButtonEnabled(True)
        self.filter.setFixedWidth(250)
        self.filter.textChanged.connect(self._on_filter)
        self.add_to_header(self.filter)
        self.model = ObjectsModel(self)
        self.proxy = ObjectsFilter(self.model, self)
        self.tree = ObjectsTree(theme)
        self.tree.setModel(self.proxy)
        self.tree.fit_columns()
        self._delegate = ChipsDelegate(theme, DeviceLook(self._look), self.tree)
        self.tree.setItemDelegate(self._delegate)
        self.tree.customContextMenuRequested.connect(self._on_context_menu)
        self.tree.drag_started.connect(self.drag_started)
        self.tree.drag_ended.connect(self.drag_ended)
        self.tree.selectionModel().selectionChanged.connect(self._on_selection)
        self.model.repaint_wanted.connect(self.tree.viewport().update)
        self.set_content(self.tree)
        self.empty = EmptyState("", "Build mlp")
        self.empty.chosen.connect(lambda: self.build_requested.emit("mlp"))
        self.set_empty_state(self.empty)
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._delegate.set_theme(theme)
        self.tree.set_theme(theme)

    def refresh(self) -> None:
        """Objects changed: show the new ones, keep selection and expansion."""
        new = [name for name in self._state.objects if name not in self._known]
        self._known = set(self._state.objects)
        self.model.update(self._state.objects)
        if self.proxy.words:
            self.proxy.refresh()
        empty = not self._state.objects
        self.show_empty(empty)
        self._say_why_empty()
        self.filter.setVisible(not empty)
        for name in new:
            self.expand(name)
        if new:
            self.select(new[-1])  # what was just made is what is moved next
            self.tree.setFocus()
        self._on_selection()

    def take_focus(self) -> None:
        """Be where the keyboard is: the tree, or the panel itself while there is no tree to be seen."""
        (self if self.is_empty else self.tree).setFocus()

    def _say_why_empty(self) -> None:
        live = self._state.recording is None
        ready = self._state.engine is not None and live
        if not live:
            words = "A recording has what was watched: devices, moves, benchmarks. The objects themselves are not in it."
        elif ready:
            words = "Nothing here yet. Build a sample model or create a tensor."
        elif self._state.engine_words == "engine stopped":
            words = "The engine has stopped, and the objects went with it."
        elif self._known_engine:
            words = "The engine is being restarted. The objects come back with it."
        else:
            words = "The engine is starting."
        self._known_engine |= ready
        if self.empty.sentence.text() != words:
            self.empty.sentence.setText(words)
        self.empty.set_ready(ready)
        self.empty.button.setVisible(live)

    def refresh_devices(self) -> None:
        """Devices changed: chips may have another colour."""
        self.tree.viewport().update()

    def selected_targets(self) -> tuple[str, ...]:
        """What is selected, as commands address it: `name` or `name:path`."""
        rows = self.tree.selectionModel().selectedRows()
        return tuple(index.data(TARGET_ROLE) for index in rows)

    def select(self, *targets: str) -> None:
        """Select these targets and nothing else; those that are gone are left out."""
        selection = self.tree.selectionModel()
        selection.clearSelection()
        for target in targets:
            index = self.proxy.mapFromSource(self.model.index_of(target))
            if index.isValid():
                self.tree.scrollTo(index)
                how = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
                selection.setCurrentIndex(index, how)

    def expand(self, target: str) -> None:
        """Show what is in `target`."""
        self.tree.expand(self.proxy.mapFromSource(self.model.index_of(target)))

    def focus_filter(self) -> None:
        """Put the cursor into the filter."""
        self.filter.setFocus()
        self.filter.selectAll()

    def _look(self, device: str) -> tuple[int, bool] | None:
        known = self._state.devices.get(device)
        return None if known is None else (known.colour, known.info.simulated)

    def _on_filter(self, text: str) -> None:
        self.proxy.set_text(text)
        self.tree.nothing = f"Nothing matches “{text}”." if text else ""
        if self.proxy.words:
            for count, index in enumerate(self.proxy.opened()):
                if count == OPEN_AT_MOST:
                    break
                self.tree.expand(index)

    def _on_selection(self) -> None:
        now = self.selected_targets()
        if now != self._announced:
            self._announced = now
            self.selection_changed.emit(now)

    def _on_context_menu(self, where: QPoint) -> None:
        self.context_menu_requested.emit(self.tree.viewport().mapToGlobal(where))
