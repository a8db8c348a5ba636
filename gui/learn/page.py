"""Exercises that check themselves: the list with what is done, and the steps of the one that is under way. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QHeaderView, QLineEdit, QTableView, QVBoxLayout, QWidget

from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.learn.exercise import Course, Step
from devexplorer.core.session import State
from devexplorer.gui.widgets import (
    EDGE_PX,
    UNLIMITED_PX,
    Cell,
    Column,
    Role,
    RowsTable,
    ScrollArea,
    TableRow,
    can_add_virtual,
    current_theme,
    hbox,
    holder,
    label,
    lay_out,
    line_edit,
    pixmap,
    push_button,
    theme_changed,
    vbox,
)

_SIGN_PX = 16
_COLUMNS = (Column(""), Column("exercise"), Column("about"))
_BY_ID = {exercise.id: exercise for exercise in EXERCISES}
LIST_PX, LEAST_LIST_PX, SIGNS_PX, TITLE_PX = 520, 364, 40, 308
"""Of the list with what each exercise is about, and without."""
WIDE_PX = 900
"""From this width on the list stands beside the exercise."""
WIDEST_PX = 1200
"""From this width on the list says what each exercise is about."""
TEXT_PX = 900
"""Longer lines are hard to read."""
EXERCISE_PX = 340
"""Below the list the longest exercise takes so much: what else there is, is for the list."""
PAUSED = "This is a recording: the exercise continues when the window is live again."
NEEDS = "This needs a second device, and there is only the CPU here. Virtual GPUs are simulated."
WRONG = "✕ Not quite. Look again."


class LearnPanel(QWidget):
    """`refresh` looks whether another step is done; `learned_changed` carries the ids of the exercises that were
    done."""

    learned_changed = Signal(object)
    """tuple of str"""
    virtual_offered = Signal()
    """Virtual GPUs are wanted, for an exercise that needs a second device."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.learned: tuple[str, ...] = ()
        self.course = Course(EXERCISES[0], state)
        """The exercise shown."""
        self._courses = {EXERCISES[0].id: self.course}
        """Every exercise that was begun, as far as it has come."""
        self.table = RowsTable(_COLUMNS, "Exercises", [SIGNS_PX, TITLE_PX])
        self.table.horizontalHeader().hide()
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.table.activated.connect(self._to_answer)
        self.table.clicked.connect(self._to_answer)
        self.progress = label(words="dim")
        self.title = label(role=Role.STRONG, wrap=True)
        self.why = label(words="soft", wrap=True)
        self.needs_words = label(NEEDS, words="warning", wrap=True)
        self.needs = push_button("Add two virtual GPUs", self.virtual_offered)
        self.again = push_button(
            "Begin again", self._begin_again, tip="Do this exercise once more, from its first step"
        )
        self.next = push_button("Next exercise", self._go_on, look="primary")
        self.next.setAutoDefault(True)  # Enter, with which an answer ends, goes on
        self.answer = line_edit(name="Your answer", placeholder="answer, then Enter")
        self.answer.setMinimumWidth(148)
        self.answer.setMaximumWidth(240)
        self.answer.returnPressed.connect(self._answer)
        self.wrong = label(words="error")
        self.answer.textEdited.connect(self.wrong.clear)
        self.note = label(words="soft", wrap=True)
        self.note.setContentsMargins(_SIGN_PX + 8, 0, 0, 0)
        self._steps = QVBoxLayout()
        self._steps.setSpacing(8)
        self.rows: list[_StepRow] = []
        """One for each step of the exercise shown."""
        self._shown: tuple[object, ...] = ()
        self._lay_out()
        self.table.selected.connect(self._choose)
        self.set_learned(())

    def _lay_out(self) -> None:
        top = hbox((self.title, 1), self.again, self.next)
        self._needs_row = holder(hbox((self.needs_words, 1), self.needs, spacing=12))
        self._ask = holder(hbox(self.answer, (self.wrong, 1), spacing=12, margins=(_SIGN_PX + 8, 0, 0, 0)))
        column = vbox(
            top,
            self.why,
            self._needs_row,
            self._steps,
            self._ask,
            self.note,
            None,
            spacing=10,
            margins=(EDGE_PX, 8, EDGE_PX, EDGE_PX),
        )
        self.area = ScrollArea(column, "The exercise")
        self.area.content.setMaximumWidth(TEXT_PX)
        self.area.verticalScrollBar().rangeChanged.connect(self._show_present)  # the rows got their heights
        self.progress.setContentsMargins(EDGE_PX, 0, EDGE_PX, 6)
        left = vbox((self.table, 1), self.progress, spacing=4, margins=(0, 4, 0, 0))
        self._row = hbox(left, (self.area, 2), parent=self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The list above the exercise where there is no room beside it."""
        super().resizeEvent(event)
        narrow, wide = self.width() < WIDE_PX, self.width() >= WIDEST_PX
        lay_out(self._row, beside=not narrow)
        self._row.setStretch(0, 1 if narrow else 0)
        self.area.setMaximumHeight(EXERCISE_PX if narrow else UNLIMITED_PX)
        list_px = LIST_PX if wide else LEAST_LIST_PX
        alone = (self.width() if narrow else list_px) < LIST_PX
        self.table.setColumnHidden(2, alone)
        header, modes = self.table.horizontalHeader(), QHeaderView.ResizeMode
        header.setStretchLastSection(not alone)  # titles end with an ellipsis instead of behind the edge
        header.setSectionResizeMode(1, modes.Stretch if alone else modes.Interactive)
        if not alone:
            self.table.setColumnWidth(1, TITLE_PX)
        self.table.setMinimumWidth(0 if narrow else list_px)
        self.table.setMaximumWidth(UNLIMITED_PX if narrow else list_px)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self._to_answer)  # after whoever shows it has chosen what has the keyboard

    # --- what the window calls

    def refresh(self) -> None:
        """Look whether another step is done."""
        if self.course.look():
            self._progressed()
        self._show()

    def set_learned(self, learned: tuple[str, ...]) -> None:
        """These were done before; the first of the others is shown."""
        self.learned = tuple(item for item in _BY_ID if item in learned)
        self._fill()
        self.choose(next((item for item in _BY_ID if item not in self.learned), EXERCISES[0].id))
        self._show()

    def choose(self, exercise_id: str) -> None:
        """Show an exercise: begin it, or go on with it."""
        self.table.select_key(exercise_id)

    # --- which exercise

    def _choose(self) -> None:
        key = self.table.selected_key
        if isinstance(key, str) and self.course.exercise.id != key:
            known = self._courses.get(key)
            if known is not None:
                known.resume()
                self.course = known
            else:
                self._begin(key)
            self._show()

    def _begin(self, exercise_id: str) -> None:
        self.course = self._courses[exercise_id] = Course(_BY_ID[exercise_id], self._state)
        if self.course.look():
            self._progressed()

    def _begin_again(self) -> None:
        self._begin(self.course.exercise.id)
        self._fill()
        self._show()

    def _go_on(self) -> None:
        """To the next one that is not done."""
        ids = list(_BY_ID)
        index = ids.index(self.course.exercise.id)
        following = next((item for item in (*ids[index + 1 :], *ids[:index]) if item not in self.learned), None)
        if following is not None:
            self.choose(following)
            self.table.setFocus()

    def _to_answer(self) -> None:
        """Enter or a click in the list: type the answer where one is asked for."""
        if self._ask.isVisible():
            self.answer.setFocus()

    def _answer(self) -> None:
        if not self.answer.text().strip():
            return
        if self.course.answer(self.answer.text()):
            self._progressed()
        else:
            self.wrong.setText(WRONG)
        self._show()

    def _progressed(self) -> None:
        exercise_id = self.course.exercise.id
        if self.course.finished and exercise_id not in self.learned:
            self.learned = tuple(item for item in _BY_ID if item in self.learned or item == exercise_id)
            self.learned_changed.emit(self.learned)
        self._fill()

    # --- what is shown

    def _fill(self) -> None:
        self.table.set_rows(
            [
                TableRow(
                    item.id, (self._sign(item.id), Cell(item.title, tip=f"{item.title}\n{item.why}"), Cell(item.topic))
                )
                for item in EXERCISES
            ]
        )
        self.progress.setText(f"{len(self.learned)} of {len(EXERCISES)} done")

    def _sign(self, exercise_id: str) -> Cell:
        """A tick, or how many steps of it are done."""
        if exercise_id in self.learned:
            return Cell("✓", tip="done")
        course = self._courses.get(exercise_id)
        steps = len(_BY_ID[exercise_id].steps)
        return (
            Cell(f"{course.at}/{steps}", tip=f"{course.at} of {steps} steps are done")
            if course is not None and course.at
            else Cell("")
        )

    def resume(self) -> None:
        """Another machine is shown: what was done there was not for these exercises."""
        for course in self._courses.values():
            course.resume()

    def _show(self) -> None:
        """Bring the right side up to date; called after every command, so nothing is touched that is as it was."""
        course, live = self.course, self._state.recording is None
        alone = live and can_add_virtual(self._state) and len(self._state.usable_devices) < 2
        left = len(self.learned) < len(EXERCISES)
        now = (course, course.at, live, alone, left)
        if now == self._shown:
            return
        if not self._shown or self._shown[0] is not course:
            self._show_exercise()
        elif self._shown[1] != course.at:
            self.answer.clear()
            self.wrong.clear()
        self._shown = now
        for index, row in enumerate(self.rows):
            row.set_distance(index - course.at)
        asked = course.step is not None and course.step.answers is not None
        answering = self.answer.hasFocus()
        if asked and self._ask.isHidden() and not isinstance(QApplication.focusWidget(), QLineEdit | QTableView):
            QTimer.singleShot(0, self.answer, self.answer.setFocus)  # once it is there
        self._ask.setVisible(asked)
        self.answer.setEnabled(live)
        self._needs_row.setVisible(course.exercise.two_devices and alone)
        self.again.setVisible(course.at > 0)
        self.next.setVisible(course.finished and left)
        if answering and self.next.isVisible():
            self.next.setFocus()
        text = ""
        if not live:
            text = PAUSED
        elif course.finished:
            text = "Done." if left else "Done, and with it all exercises."
        self.note.setText(text)
        self.note.setVisible(bool(text))
        QTimer.singleShot(0, self, self._show_present)  # when the rows have their new heights

    def _show_present(self) -> None:
        """Where the page is low, the present step is the part to see, and what is typed for it."""
        present = self.rows[self.course.at] if not self.course.finished else self.note
        for part in (present, self._ask) if self._ask.isVisible() else (present,):
            self.area.ensureWidgetVisible(part, 0, EDGE_PX)

    def _show_exercise(self) -> None:
        """Another one: its words, and a row for each step."""
        exercise = self.course.exercise
        self.title.setText(exercise.title)
        self.why.setText(exercise.why)
        self.answer.clear()
        self.wrong.clear()
        for row in self.rows:
            self._steps.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = [_StepRow(number, step) for number, step in enumerate(exercise.steps, start=1)]
        for row in self.rows:
            self._steps.addWidget(row)
        self.area.verticalScrollBar().setValue(0)


class _StepRow(QWidget):
    """One step: a tick when it is done, an arrow and where to click when it is the present one, else its number.

    Two labels for the two looks: the style would give a label whose look changes the font back that it had first.
    """

    def __init__(self, number: int, step: Step) -> None:
        super().__init__()
        self._number = number
        self.distance: int | None = None
        """From the present step; None: not shown yet."""
        self.sign = label(words="dim", align=Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self.sign.setFixedWidth(_SIGN_PX)
        self.now = label(step.text, Role.STRONG, wrap=True)
        self.other = label(step.text, words="dim", wrap=True)
        self.how = label(step.how, words="soft", wrap=True)
        column = vbox(self.now, self.other, self.how, spacing=2)
        hbox((self.sign, 0, Qt.AlignmentFlag.AlignTop), (column, 1), parent=self)
        theme_changed.connect(self._show_sign)

    def set_distance(self, distance: int) -> None:
        """Negative: done; 0: to be done now; else later."""
        if distance == self.distance:
            return
        self.distance = distance
        if distance < 0:
            text = "done"
        elif distance == 0:
            text = "now"
        else:
            text = "later"
        self.sign.setAccessibleName(text)
        self.other.setAccessibleDescription(text)
        self.now.setVisible(distance == 0)
        self.other.setVisible(distance != 0)
        self.how.setVisible(distance == 0)
        self._show_sign()

    def _show_sign(self) -> None:
        if self.distance is None or self.distance > 0:
            self.sign.setText(f"{self._number}")
        elif self.distance == 0:
            self.sign.setPixmap(pixmap("play", current_theme().text, _SIGN_PX, 2.0))
        else:
            self.sign.setPixmap(pixmap("check", current_theme().dim, _SIGN_PX, 2.0))
