"""A user who does exercises of the Learn tab in the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QTableView

from devexplorer.core.records import Remove
from devexplorer.gui.objects.new_tensor import NewTensorDialog
from fakes.hands import CTRL, LEFT, SHIFT, Hands
from fakes.window import open_window

if TYPE_CHECKING:
    from devexplorer.gui.learn.page import LearnPanel

Key = Qt.Key
SELDOM_S = 600.0
"""Readings do not affect exercises, and a late sampler starts another thread, which would outlive a test."""


class Learner(Hands):
    """A user who follows the current step."""

    folder = Path()
    """Where files go."""

    @property
    def panel(self) -> LearnPanel:
        return self.window.bottom_dock.page("learn")

    def look_at_it(self) -> None:
        """The page is visible."""
        self.window.bottom_dock.show_page("learn")
        self.until(self.panel.isVisible, "shown")

    def begin(self, exercise_id: str) -> None:
        """Empty the workspace and click the exercise in the list."""
        if self.state.objects:
            self.session.send(Remove(names=tuple(self.state.objects)))
            self.until(lambda: not self.state.objects and not self.state.jobs, "emptied")
        self.look_at_it()
        table = self.panel.table
        at = next(number for number, row in enumerate(self.panel.table.rows) if row.key == exercise_id)
        self.heartbeat.tick()
        if self.panel.course.exercise.id == exercise_id:
            self.click_row(table, 0 if at else 1)
        self.click_row(table, at)
        assert self.panel.course.exercise.id == exercise_id

    def done(self, steps: int) -> None:
        """Wait until this many steps are done, and the panel shows it."""
        course = self.panel.course
        self.until(lambda: course.at >= steps and not self.state.jobs, f"step {steps} of {course.exercise.id}")
        assert course.at == steps, "a step was taken for another one"

    def build_model(self, recipe: str) -> None:
        self.menu(self.window.toolbar.buttons["build"], recipe)
        self.until(lambda: recipe in self.state.objects and not self.state.jobs, f"built {recipe}")

    def tensor(
        self,
        *,
        device: str = "",
        fill: str = "",
        shape: str = "",
        values: str = "",
        grad: bool = False,
        fall_back: bool = False,
    ) -> None:
        """The dialog of the toolbar button Tensor."""
        count = len(self.state.objects)
        self.take(self.window.toolbar.findChildren(QPushButton), "Tensor")
        dialog = self.dialog(NewTensorDialog)
        if fill:
            self.pick(dialog.fill, fill)
        if shape:
            self.write(dialog.shape, shape)
        if values:
            self.write(dialog.values, values)
        if device:
            self.write(dialog.device, device)
        if grad:
            self.tick(dialog.requires_grad)
        if fall_back:
            assert not dialog.accept_button.isEnabled(), "the dialog says that there is no such device"
            self.tick(dialog.fall_back)
        self.click(dialog.accept_button)
        self.until(lambda: len(self.state.objects) > count and not self.state.jobs, "created")

    def reply(self, text: str) -> None:
        """Answer the question in the panel."""
        self.look_at_it()
        self.write(self.panel.answer, text)
        QTest.keyClick(self.panel.answer, Key.Key_Return)

    def offer(self, words: str = "") -> None:
        """Click the first offer in the inspector, or the one that starts with this text."""
        self.take(self.window.inspector.offers.buttons, words)

    def experiment(self, title: str) -> None:
        """The tab, the experiment, its button: three clicks."""
        panel = self.window.bottom_dock.page("experiments")
        self.page("Experiments")
        self.click(panel.rail.choices[title])
        assert panel.page.start_button.isEnabled(), panel.page.start_button.toolTip()
        self.click(panel.page.start_button)
        self._went(3)

    def save(self, form: str, name: str) -> Path:
        """Ctrl+Shift+S for the selection."""
        from devexplorer.gui.files.tensor_files import SaveFileDialog

        self.press(Key.Key_S, CTRL | SHIFT)
        dialog = self.dialog(SaveFileDialog)
        self.pick(dialog.form_choice, form)
        self.write(dialog.file.edit, str(self.folder / name))
        self.click(dialog.accept_button)
        return self.folder / name

    def load(self, path: Path) -> Any:
        """File, Load tensors, the path; returns when the engine has listed the file."""
        from devexplorer.gui.files.tensor_files import LoadFileDialog

        self.menu(self.window.toolbar.open_button, "Load tensors…")
        dialog = self.dialog(LoadFileDialog)
        self.write(dialog.file.edit, str(path))
        self.until(lambda: dialog.table.rows or "look" not in dialog.message.text(), "looked into")
        return dialog

    def click_row(self, table: QTableView, row: int) -> None:
        index = table.model().index(row, 0)
        table.scrollTo(index)
        QTest.mouseClick(table.viewport(), LEFT, pos=table.visualRect(index).center())

    def newest(self) -> str:
        return list(self.state.objects)[-1]


@contextmanager
def learner_in(qapp: QApplication, folder: Path, virtual: str | None) -> Iterator[Learner]:
    """A separate window, with settings and files in `folder`."""
    threads_before = torch.get_num_threads()
    me = open_window(qapp, folder, virtual, Learner, SELDOM_S)
    me.folder = folder
    try:
        yield me.ready()
    finally:
        me.end()
        torch.set_num_threads(threads_before)
