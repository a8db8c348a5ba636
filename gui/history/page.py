"""The history tab: every stored run, to be found, tagged, compared, deleted, exported; and imports of other people's
runs. Main thread.

It keeps nothing itself and never waits: a `StoreThread` is asked, and its answer is shown when it is there.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QRect, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QPainter, QPen, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QFrame,
    QLineEdit,
    QSizePolicy,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.core.base import DevExplorerError, count_text, sentence
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.history.compare import MOST_RUNS, Comparison, compare, refusal
from devexplorer.core.records import StoredRun
from devexplorer.core.session import State
from devexplorer.gui.history.compare import CompareDialog
from devexplorer.gui.history.rows import COLUMNS, TAGS, WIDTHS, HistoryModel, tags_from, tags_text
from devexplorer.gui.widgets import (
    EDGE_PX,
    PAD_PX,
    Choice,
    ElidedLabel,
    EmptyState,
    Index,
    Padded,
    Role,
    RowsTable,
    current_theme,
    hbox,
    holder,
    label,
    line_edit,
    menu_button,
    paint_chip,
    paint_chips,
    push_button,
    set_look,
    stack,
    vbox,
)

if TYPE_CHECKING:
    from devexplorer.gui.actions import WindowContext

NAMED = tuple(map([column.title for column in COLUMNS].index, ("device", "what", "remarks")))
"""Columns that take of the room that is left what their texts need; the tags take the rest."""
GIVES_UP = tuple(map([column.title for column in COLUMNS].index, ("W", "MHz", "°C", "% of best", "kind", "noise %")))
"""Columns that a narrow window goes without, the first of them first."""
TAGS_PX = 50
"""Of the tags at least."""
PAGE = 200
"""Runs that are listed at first, and more of when that is asked for."""
MOST_SOUGHT = 1000
"""Runs that are looked through for one that was asked for elsewhere."""
TYPING_MS = 200
"""After so long without a key the filter is asked for."""
FORMATS = {
    "csv": ("CSV table…", "CSV"),
    "json": ("JSON, to be imported elsewhere…", "JSON"),
    "html": ("HTML report with plots…", "HTML"),
}
IMPORT_TIP = "Add runs from a JSON file: an export, or what “bench --json” printed"
NOT_OPEN = "The history is not open yet."
LOADING = "Loading the history…"
NO_EXPORT = "There is no run to export."
NO_RUN = "No runs yet. Every benchmark that ends is kept here, with the conditions under which it was measured."


class _Tags(Padded):
    """Tags as chips; a line to type in while they are edited."""

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, _index: Index) -> QWidget:
        editor = QLineEdit(parent, placeholderText="tag, another tag")
        editor.setAccessibleName("Tags")
        editor.setTextMargins(0, -4, 0, -4)  # the stylesheet's padding is for fields outside tables
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, _index: Index) -> None:
        editor.setGeometry(option.rect)

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        model, text = index.model(), index.data()
        if not text or not isinstance(model, HistoryModel):
            return False
        painter.setClipRect(cell)
        theme = current_theme()
        pen = QPen(theme.border_strong)
        paint_chips(
            painter, cell.adjusted(0, 0, -PAD_PX, 0), model.runs[index.row()].tags,
            lambda box, tag: paint_chip(painter, box, tag, pen, theme.card, "text"),
        )  # fmt: skip
        return True


class HistoryTable(RowsTable):
    """Rows are runs, known by their numbers."""

    most_measured = 64  # each is made when it is looked at

    def __init__(self, model: HistoryModel) -> None:
        super().__init__(model, "Stored benchmark runs", [*WIDTHS, TAGS_PX], gives_up=GIVES_UP, named=NAMED)
        self.setColumnWidth(TAGS, TAGS_PX)
        self._model = model
        self.tags = _Tags()
        self.setItemDelegateForColumn(TAGS, self.tags)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked | QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)

    @property
    def chosen(self) -> tuple[StoredRun, ...]:
        """The selected runs, from the top."""
        return tuple(self._model.runs[row] for row in self.selected_rows)

    def choose(self, ids: Iterable[int]) -> None:
        """Select the runs with these numbers, those that are listed, and bring the first of them into sight."""
        wanted = set(ids)
        rows = [row for row, run in enumerate(self._model.runs) if run.id in wanted]
        chosen = QItemSelection()
        for row in rows:
            chosen.select(self._model.index(row, 0), self._model.index(row, TAGS))
        self.selectionModel().select(chosen, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows:
            self.selectionModel().setCurrentIndex(
                self._model.index(rows[0], 0), QItemSelectionModel.SelectionFlag.NoUpdate
            )
            self.scrollTo(self._model.index(rows[0], 0))

    def edit_tags(self) -> None:
        """Edit the tags of the current row in place."""
        index = self._model.index(self.currentIndex().row(), TAGS)
        if index.isValid():
            self.scrollTo(index)
            self.edit(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.chosen:
            lines = ["\t".join(column.title or "unit" for column in COLUMNS)]
            lines += ["\t".join(cell.text for cell in self._model.row(row).cells) for row in self.selected_rows]
            QApplication.clipboard().setText("\n".join(lines))
        elif event.key() == Qt.Key.Key_F2:
            self.edit_tags()
        else:
            super().keyPressEvent(event)


class Question(QFrame):
    """Hidden until `ask` or `ask_for`; Return says yes, Escape takes it away."""

    asked = Signal(int)
    """It asks something now (1), or nothing any more (0)."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("offer")
        self._then: Callable[[str], None] = lambda _text: None
        self.words = label()
        self.words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # never widens the window
        self.edit = line_edit()
        self.edit.setMinimumWidth(240)
        self.yes = push_button(clicked=self._answer, look="primary")
        self.no = push_button("Cancel", self.clear)
        hbox((self.words, 1), (self.edit, 1), self.yes, self.no, margins=(EDGE_PX, 2, 6, 2), parent=self)
        self.edit.returnPressed.connect(self._answer)

    def ask(self, words: str, action: str, then: Callable[[], None]) -> None:
        """Ask whether to do `action`."""
        self._show(words, action, lambda _text: then())
        self.edit.hide()
        self.no.setFocus()  # what cannot be undone is not done by a Return that was meant for something else

    def ask_for(self, words: str, text: str, action: str, then: Callable[[str], None]) -> None:
        """Ask for a text; `text` is the initial one."""
        self._show(words, action, then)
        self.edit.setText(text)
        self.edit.setAccessibleName(words)
        self.edit.show()
        self.edit.selectAll()
        self.edit.setFocus()

    def _show(self, words: str, action: str, then: Callable[[str], None]) -> None:
        self._then = then
        self.words.setText(words)
        self.setAccessibleName(words)
        self.yes.setText(action)
        self.asked.emit(1)

    def clear(self) -> None:
        """Ask nothing any more."""
        self.asked.emit(0)

    def _answer(self) -> None:
        self.clear()
        self._then(self.edit.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if event.key() == Qt.Key.Key_Escape or (is_return and self.no.hasFocus()):
            self.clear()
        elif is_return and self.yes.hasFocus():
            self._answer()
        else:
            super().keyPressEvent(event)


class HistoryPanel(QWidget):
    """Give it a source with `set_source`; `refresh` whenever what is kept has changed."""

    context: WindowContext
    """Asks for files of the machine that is shown."""

    benchmark_requested = Signal()
    """The empty state's button."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._source: Any = None
        """A `StoreThread`, or what asks one on another machine."""
        self._limit, self._total = PAGE, 0
        self._is_old = True
        """What is listed may not be what is kept."""
        self._problem = ""
        self._sought: int | None = None
        """A run to choose as soon as it is listed."""
        self.comparing: CompareDialog | None = None
        """The window of the comparison, once there was one."""
        self.filter = line_edit(
            placeholder="filter: cuda:0 bfloat16 nightly …",
            name="filter runs",
            width_px=232,
            tip="Words that all occur somewhere in a run: what was measured, device, host, versions, tags",
            clear=True,
        )
        self.kind = Choice(
            "kind of benchmark", [(None, "all kinds", ""), *((name, name, "") for name in benchmark_kinds())]
        )
        self.count = ElidedLabel(words="dim")
        self.compare_button = push_button("Compare", self.compare, look="primary")
        self.tags_button = push_button("Tags…", self._ask_tags)
        self.delete_button = push_button("Delete…", self._ask_delete)
        self.export_button = menu_button("Export ▾")
        self.export_menu = self.export_button.menu()
        self.names_action = QAction("With names of host and processes", self.export_menu)
        self.import_button = push_button("Import…", self._ask_what)
        self.question = Question()
        self.message = ElidedLabel(Role.LABEL)
        self.model = HistoryModel(state)
        self.table = HistoryTable(self.model)
        self.more_button = push_button(clicked=self._show_more, look="quiet")
        self.nothing = label(NOT_OPEN, words="dim", wrap=True, align=Qt.AlignmentFlag.AlignCenter)
        self.empty = EmptyState(NO_RUN, "Start a benchmark")
        self._typing = QTimer(self, singleShot=True, interval=TYPING_MS)
        self._fill_menu()
        self._lay_out()
        self._connect()
        self._show_buttons()

    def _fill_menu(self) -> None:
        for kind, (words, _) in FORMATS.items():
            self.export_menu.addAction(words, functools.partial(self._ask_where, kind))
        self.export_menu.addSeparator()
        self.names_action.setCheckable(True)
        self.names_action.setToolTip("Off: leaves out the host name and other processes, for a file that you share")
        self.export_menu.addAction(self.names_action)
        self.export_menu.setToolTipsVisible(True)

    def _lay_out(self) -> None:
        bar = hbox(
            self.filter,
            self.kind,
            (self.count, 1),
            self.compare_button,
            self.tags_button,
            self.delete_button,
            self.export_button,
            self.import_button,
            margins=(EDGE_PX, 6, EDGE_PX, 4),
        )
        self._bar = stack(holder(bar), self.question)  # the question takes the place of what it is about
        self._bar.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._listed = holder(vbox((self.table, 1), self.more_button, spacing=0))
        self._stack = stack(self.nothing, self._listed, self.empty)
        said = hbox((self.message, 1), margins=(EDGE_PX, 0, EDGE_PX, 4))
        vbox(self._bar, said, (self._stack, 1), spacing=0, margins=(0, 0, 0, 4), parent=self)
        self.more_button.hide()

    def _connect(self) -> None:
        self.filter.textChanged.connect(self._typing.start)
        self.filter.returnPressed.connect(self._filter_changed)
        self._typing.timeout.connect(self._filter_changed)
        self.kind.currentIndexChanged.connect(self._filter_changed)
        self.table.selected.connect(self._show_buttons)
        self.model.tags_edited.connect(self._tag)
        self.empty.chosen.connect(self.benchmark_requested)
        self.question.asked.connect(self._bar.setCurrentIndex)

    # --- what the window calls

    def set_source(self, source: Any) -> None:
        """Where the runs are kept; None: not opened yet."""
        self._source = source
        self._show_buttons()
        self.refresh()

    def refresh(self) -> None:
        """Ask for the list again; while the panel is hidden not before it is shown."""
        self._is_old = True
        if self.isVisible():
            self._request()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._request()

    def _request(self) -> None:
        if self._source is not None and self._is_old:
            self._is_old = False
            if self._stack.currentWidget() is self.empty or self.nothing.text() == NOT_OPEN:
                self.nothing.setText(LOADING)
                self.count.set_full_text("")  # it is not known yet that there are none
                self._stack.setCurrentWidget(self.nothing)
            self._source.request(*self.wanted, self._limit, self.show_runs)

    @property
    def wanted(self) -> tuple[str | None, str]:
        """What the filter says: a kind, and words."""
        return self.kind.value, self.filter.text().strip()

    def show_runs(self, runs: Sequence[StoredRun], total: int) -> None:
        """Show these runs, of so many that there are; what was chosen stays chosen."""
        chosen = {run.id for run in self.table.chosen}
        self._total = total
        self.model.set_runs(runs)
        if self._sought in {run.id for run in runs}:
            chosen, self._sought = {self._sought}, None
        if {run.id for run in self.table.chosen} != chosen:
            self.table.choose(chosen)
        filtered = any(self.wanted)
        self.nothing.setText("No runs match. Shorten the filter, or choose all kinds." if filtered else "")
        if runs:
            self._stack.setCurrentWidget(self._listed)
        elif filtered:
            self._stack.setCurrentWidget(self.nothing)
        else:
            self._stack.setCurrentWidget(self.empty)
        left = total - len(runs)
        self.more_button.setVisible(left > 0)
        self.more_button.setText(f"Show {min(left, PAGE):,} more of {total:,}")
        self._show_buttons()

    def show_run(self, number: int) -> None:
        """Choose the run of this number; filters that hide it are cleared."""
        if number in {run.id for run in self.model.runs}:
            self.table.choose([number])
            return
        self._sought, self._limit = number, MOST_SOUGHT
        with QSignalBlocker(self.filter), QSignalBlocker(self.kind):
            self.filter.clear()
            self.kind.setCurrentIndex(0)
        self.refresh()

    def say(self, words: str = "", failed: bool = False) -> None:
        """One line above the table, until the next one; without words what is wrong with the file, if anything is."""
        if words:
            shown, look = words, "error" if failed else "soft"
        else:
            shown, look = self._problem, "warning"
        mark = {"error": "✕ ", "warning": "▲ ", "soft": ""}[look]  # never colour alone
        self.message.set_full_text(f"{mark}{shown}" if shown else "")
        set_look(self.message, look)

    def show_problem(self, words: str) -> None:
        """What is wrong with the file of the history, for as long as it lasts; empty: nothing. It is told after every
        request, and only news take the place of what the request has said."""
        if words != self._problem:
            self._problem = words
            self.say()

    # --- what the user does

    def compare(self) -> None:
        """Open the chosen runs side by side."""
        chosen = self.table.chosen
        if self._source is None or refusal(chosen) is not None:
            return
        if self.comparing is None:
            self.comparing = CompareDialog(self._state, self)
        self.comparing.wait_for(len(chosen))
        self.comparing.show()
        self.comparing.raise_()
        # The oldest first: what came later is compared with it.
        self.context.in_background("compare", functools.partial(_compared, chosen[::-1]), self._show_comparison)

    def _show_comparison(self, comparison: Comparison | str) -> None:
        assert self.comparing is not None, "it waits for this"
        if isinstance(comparison, str):
            self.say(comparison, True)
            self.comparing.show_failure(comparison)
        else:
            self.comparing.show_comparison(comparison)

    def _filter_changed(self) -> None:
        self._typing.stop()
        self._limit = PAGE
        self.question.clear()
        self.refresh()

    def _show_more(self) -> None:
        self._limit += PAGE
        self.refresh()

    def _ask_tags(self) -> None:
        chosen = self.table.chosen
        if len(chosen) == 1:
            [run] = chosen
            words = f"Tags of run #{run.id}, commas between them:"
            self.question.ask_for(
                words, tags_text(run.tags), "Save", lambda text: self._tag(((run.id, tags_from(text)),))
            )
        elif chosen:
            words = f"Tags to add to {count_text(len(chosen), 'run')}, commas between them:"
            self.question.ask_for(
                words, "", "Add", lambda text: self._tag([(run.id, _joined(run.tags, text)) for run in chosen])
            )

    def _tag(self, tags: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        if self._source is not None:
            self.say()
            self._source.tag(tags, self.say)

    def _ask_delete(self) -> None:
        ids = [run.id for run in self.table.chosen]
        if ids:
            which = f"run #{ids[0]}" if len(ids) == 1 else count_text(len(ids), "run")
            it = "It" if len(ids) == 1 else "They"
            words = f"Delete {which} from the history? {it} cannot be brought back."
            self.question.ask(words, "Delete", functools.partial(self._delete, ids))

    def _delete(self, ids: Sequence[int]) -> None:
        if self._source is not None:
            self._source.delete(ids, self.say)

    def report(self) -> None:
        """Ask where to, and write a page about the chosen runs; what is listed may not have come yet."""

        def came(runs: Sequence[StoredRun], total: int) -> None:
            self.show_runs(runs, total)
            self._ask_where("html")

        if self._source is None:
            self.say(NOT_OPEN, True)
        else:
            self._source.request(*self.wanted, self._limit, came)

    def _ask_where(self, kind: str) -> None:
        if not self._exported:
            self.say(NO_EXPORT, True)
            return
        name = f"devexplorer-runs-{time.strftime('%Y%m%d-%H%M%S')}.{kind}"
        self.context.save_file(
            f"Export {count_text(len(self._exported), 'run')}",
            name,
            {kind: FORMATS[kind][1]},
            functools.partial(self._export, kind, self._exported),
            here=functools.partial(self._fetch, kind, self._exported),
        )

    @property
    def _exported(self) -> tuple[int, ...]:
        """The chosen runs; all that are listed when none is."""
        return tuple(run.id for run in self.table.chosen or self.model.runs)

    def _export(self, kind: str, ids: Sequence[int], path: Path) -> None:
        if self._source is not None:
            self._source.export(kind, path, ids, names=self.names_action.isChecked(), say=self.say)

    def _fetch(self, kind: str, ids: Sequence[int], place: Path) -> None:
        """Runs of another machine, to a file of this one."""

        def write(path: str, written: Callable[[str], None]) -> None:
            def say(words: str, failed: bool = False) -> None:
                written(words if failed else "")

            if self._source is not None:
                self._source.export(kind, Path(path), ids, names=self.names_action.isChecked(), say=say)

        if self.context.far is not None:
            self.context.far.fetch(place, write)

    def _ask_what(self) -> None:
        kinds = "JSON (*.json);;All files (*)"
        self.context.choose_files("Import runs", kinds, self._import)

    def _import(self, paths: Sequence[Path]) -> None:
        if self._source is not None:
            self._source.import_file(paths[0], self.say)

    # --- inside

    def _show_buttons(self) -> None:
        chosen, listed = self.table.chosen, len(self.model.runs)
        ready = None if self._source is not None else NOT_OPEN
        too_many = f"At most {MOST_RUNS} runs are compared at once."
        why_no_compare = ready or (too_many if len(chosen) > MOST_RUNS else refusal(chosen))
        why_no_change = ready or (None if chosen else "Choose a run first.")
        why_no_export = ready or (None if listed else NO_EXPORT)
        compare = "Put the chosen runs side by side; the others are compared with the oldest"
        for button, reason, meaning in (
            (self.compare_button, why_no_compare, compare),
            (self.tags_button, why_no_change, "Change the tags of the chosen run, or add some to several"),
            (self.delete_button, why_no_change, "Forget the chosen runs for good"),
            (self.export_button, why_no_export, "The chosen runs, or all that are listed"),
            (self.import_button, ready, IMPORT_TIP),
        ):
            button.setEnabled(reason is None)
            button.setToolTip(f"{reason[:1].upper()}{reason[1:]}" if reason else meaning)
        count = len(chosen)
        self.compare_button.setText(f"Compare {count}" if count > 1 else "Compare")
        self.delete_button.setText(f"Delete {count}…" if count > 1 else "Delete…")
        total = count_text(self._total, "run")
        shown = total if listed == self._total else f"{listed:,} of {total}"
        self.count.set_full_text(f"{shown}, {count} chosen" if count else shown)


def _compared(runs: tuple[StoredRun, ...]) -> Comparison | str:
    try:
        return compare(runs)
    except DevExplorerError as error:
        return sentence(str(error))


def _joined(tags: tuple[str, ...], text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*tags, *tags_from(text))))
