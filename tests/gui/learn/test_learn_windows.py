"""Exercises that need a separate window: the engine restarts, there is only the CPU, or the window is reopened."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.doings import RESTARTS, do
from fakes.learner import learner_in
from PySide6.QtWidgets import QApplication

from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.session.settings import Settings, SettingsFile
from devexplorer.gui.shell.app import App


def test_the_visible_devices_are_chosen_and_given_back(qapp: QApplication, tmp_path: Path) -> None:
    with learner_in(qapp, tmp_path, "2x Tesla T4") as me:
        do(me, RESTARTS)
        me.until(lambda: me.state.usable_devices == ["cpu", "vgpu:0", "vgpu:1"], "all are back")


def test_on_the_cpu_alone_virtual_gpus_are_offered_where_a_second_device_is_needed(
    qapp: QApplication, tmp_path: Path
) -> None:
    with learner_in(qapp, tmp_path, None) as me:
        for exercise in EXERCISES:
            me.begin(exercise.id)
            assert me.panel.needs.isVisible() == exercise.two_devices, exercise.id
        for exercise in EXERCISES:
            if not exercise.two_devices:
                do(me, exercise.id)
        me.begin("already-there")
        me.click(me.panel.needs)
        me.until(lambda: me.state.usable_devices == ["cpu", "vgpu:0", "vgpu:1"], "two virtual GPUs")
        assert not me.panel.needs.isVisible()
        do(me, "already-there")


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "never opened"])
def test_what_was_done_is_kept_for_the_next_start(qapp: QApplication, tmp_path: Path, opened: bool) -> None:
    (tmp_path / "window.json").write_text('{"learned": ["vgg", "of a newer version", "numpy", "vgg"]}')
    file = SettingsFile(tmp_path)
    app = App(qapp, file)
    if opened:
        panel = app.window.bottom_dock.page("learn")
        assert panel.learned == ("numpy", "vgg"), "in the order of the list"
        assert panel.progress.text() == f"2 of {len(EXERCISES)} done"
        panel.learned_changed.emit(("this-machine", *panel.learned))
    app.stop()
    learned = file.load().learned
    assert learned == (("this-machine", "numpy", "vgg") if opened else ("vgg", "of a newer version", "numpy", "vgg"))


def test_the_first_exercise_that_is_not_done_is_on_show(qapp: QApplication, tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    file.save(Settings(learned=("this-machine",)))
    app = App(qapp, file)
    assert app.window.bottom_dock.page("learn").course.exercise.id == "device-table"
    file.save(Settings(learned=tuple(one.id for one in EXERCISES)))
    again = App(qapp, file)
    assert again.window.bottom_dock.page("learn").course.exercise.id == "this-machine"
