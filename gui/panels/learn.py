"""Exercises that check themselves: the list with what is done, and the steps of the one that is under way. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QPushButton, QScrollArea, QVBoxLayout, QWidget

from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.learn.exercise import Course, Exercise
from devexplorer.core.state import State
from devexplorer.gui.icons import pixmap
from devexplorer.gui.item_models.rows import Cell, Column, RowsModel, TableRow
from devexplorer.gui.panels.panel import EDGE_PX, label
from devexplorer.gui.panels.rows_table import RowsTable
from devexplorer.gui.theme import Role, Theme

_SIGN_PX = 16
_COLUMNS = (Column(""), Column("exercise"), Column("about"))
LIST_PX = 420


class LearnPanel(QWidget):
    """`refresh` looks whether another step is done; `learned_changed` carries the ids of the exercises that were done."""

    learned_changed = Signal(object)
    """tuple of str"""
    virtual_offered = Signal()
    """Virtual GPUs are wanted, for an exercise that needs a second device."""

    def __init__(self, state: State, theme: Theme, learned: tuple[str, ...] = (), parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state, self._theme = state, theme
        self.learned = tuple(exercise.id for exercise in EXERCISES if exercise.id in learned)
        self.course: Course | None = None
        """The exercise that is under way, or was finished last."""
        self.model = RowsModel(_COLUMNS, self)
        self.table = RowsTable(self.model, "Exercises", [30, 270, 100])
        self.table.setMaximumWidth(LIST_PX)
        self.table.selectionModel().selectionChanged.connect(self._choose)
        self.progress = label(words="dim")
        self.title = label(role=Role.STRONG)
        self.why = label(words="soft", wrap=True)
        self.needs = QPushButton("Add two virtual GPUs")
        self.needs.setToolTip("This exercise needs a second device; virtual GPUs are simulated")
        self.needs.clicked.connect(self.virtual_offered)
        self.again = QPushButton("Begin again")
        self.again.clicked.connect(self._begin_again)
        self.next = QPushButton("Next exercise")
        self.next.setProperty("look", "primary")
        self.next.clicked.connect(self._go_on)
        self.answer = QLineEdit()
        self.answer.setAccessibleName("Your answer")
        self.answer.setPlaceholderText("your answer, then Enter")
        self.answer.setMaximumWidth(240)
        self.answer.returnPressed.connect(self._answer)
        self.wrong = label(words="error")
        self._steps = QVBoxLayout()
        self._steps.setSpacing(6)
        self._rows: list[_StepRow] = []
        self._lay_out()
        self._fill()
        self.choose(next((one.id for one in EXERCISES if one.id not in self.learned), EXERCISES[0].id))

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.title, 1)
        top.addWidget(self.needs)
        top.addWidget(self.again)
        top.addWidget(self.next)
        ask = QHBoxLayout()
        ask.setContentsMargins(_SIGN_PX + 8, 0, 0, 0)
        ask.setSpacing(8)
        ask.addWidget(self.answer)
        ask.addWidget(self.wrong, 1)
        inner = QWidget()
        inner.setObjectName("scrolled")
        column = QVBoxLayout(inner)
        column.setContentsMargins(EDGE_PX, 8, EDGE_PX, EDGE_PX)
        column.setSpacing(8)
        column.addLayout(top)
        column.addWidget(self.why)
        column.addLayout(self._steps)
        column.addLayout(ask)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setWidget(inner)
        scroll.setAccessibleName("The exercise")
        left = QVBoxLayout()
        left.setSpacing(4)
        left.addWidget(self.table, 1)
        self.progress.setContentsMargins(EDGE_PX, 0, 0, 4)
        left.addWidget(self.progress)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(left)
        layout.addWidget(scroll, 1)

    # --- what the window calls -----------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self._show()

    def refresh(self) -> None:
        """Look whether another step is done."""
        course = self.course
        if course is None:
            return
        if course.look():
            self._progressed()
        self._show_needs()

    def choose(self, exercise_id: str) -> None:
        """Begin an exercise."""
        at = next(number for number, exercise in enumerate(EXERCISES) if exercise.id == exercise_id)
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows
        self.table.selectionModel().select(self.model.index(at, 0), flags)

    # --- parts ---------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        done = set(self.learned)
        rows = []
        for one in EXERCISES:
            sign = Cell("✓" if one.id in done else "", tip="done" if one.id in done else "")
            rows.append(TableRow(one.id, (sign, Cell(one.title, tip=one.why), Cell(one.topic))))
        self.model.set_rows(rows)
        self.progress.setText(f"{len(done)} of {len(EXERCISES)} done")

    def _choose(self) -> None:
        key = self.table.selected_key
        if key is not None and (self.course is None or self.course.exercise.id != key):
            self._begin(next(exercise for exercise in EXERCISES if exercise.id == key))

    def _begin(self, exercise: Exercise) -> None:
        self.course = Course(exercise, self._state)
        self.answer.clear()
        if self.course.look():
            self._progressed()
        self._show()

    def _begin_again(self) -> None:
        if self.course is not None:
            self._begin(self.course.exercise)

    def _go_on(self) -> None:
        """The next one that is not done."""
        if self.course is None:
            return
        ids = [exercise.id for exercise in EXERCISES]
        at = ids.index(self.course.exercise.id)
        following = next((one for one in (*ids[at + 1 :], *ids[:at]) if one not in self.learned), None)
        if following is not None:
            self.choose(following)

    def _answer(self) -> None:
        if self.course is None or not self.answer.text().strip():
            return
        if self.course.answer(self.answer.text()):
            self.answer.clear()
            self._progressed()
        else:
            self.wrong.setText("✕ Not quite. Look again.")

    def _progressed(self) -> None:
        course = self.course
        if course is not None and course.finished and course.exercise.id not in self.learned:
            self.learned = (*self.learned, course.exercise.id)
            self.learned_changed.emit(self.learned)
            self._fill()
        self._show()

    def _show(self) -> None:
        course = self.course
        if course is None:
            return
        self.title.setText(course.exercise.title)
        self.why.setText(course.exercise.why)
        for row in self._rows:
            self._steps.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._rows = [_StepRow(step.text, step.how, at - course.at, self._theme) for at, step in enumerate(course.exercise.steps)]
        for row in self._rows:
            self._steps.addWidget(row)
        asked = course.step is not None and course.step.answers is not None
        self.answer.setVisible(asked)
        self.wrong.setVisible(asked)
        self.wrong.clear()
        left = [exercise for exercise in EXERCISES if exercise.id not in self.learned]
        self.next.setVisible(course.finished and bool(left))
        self._show_needs()

    def _show_needs(self) -> None:
        wanted = self.course is not None and self.course.exercise.two_devices
        self.needs.setVisible(wanted and self._state.engine is not None and len(self._state.usable_devices) < 2)


class _StepRow(QWidget):
    """One step: done, to be done now, or later; where to click below the present one."""

    def __init__(self, text: str, how: str, distance: int, theme: Theme) -> None:
        """`distance`: negative for steps that are done, 0 for the present one."""
        super().__init__()
        sign = QLabel()
        sign.setFixedSize(_SIGN_PX, _SIGN_PX)
        words = "done" if distance < 0 else "now" if distance == 0 else "later"
        sign.setAccessibleName(words)
        if distance <= 0:
            sign.setPixmap(pixmap("check" if distance < 0 else "play", theme.text if distance == 0 else theme.dim, _SIGN_PX, 2.0))
        self.text = label(text, Role.STRONG if distance == 0 else Role.TEXT, "" if distance == 0 else "dim", wrap=True)
        self.text.setAccessibleDescription(words)
        column = QVBoxLayout()
        column.setSpacing(2)
        column.addWidget(self.text)
        if distance == 0:
            column.addWidget(label(how, words="dim", wrap=True))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(sign, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(column, 1)
