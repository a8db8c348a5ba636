"""By keyboard alone: the main job and an exercise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.keyboard import ALT, CTRL, SHIFT, Key, Keyboard
from fakes.window import open_window
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.learn.page import LearnPanel
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.timelines.stack import PlotStack
from devexplorer.gui.widgets import after_paint, reading_order

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def me(qapp: QApplication, tmp_path: Path) -> Iterator[Keyboard]:
    me = open_window(qapp, tmp_path, None, Keyboard).ready()
    me.settle()
    yield me
    me.end()


def build(me: Keyboard, recipe: str) -> None:
    me.palette(f"build {recipe}")
    me.until(lambda: recipe in me.state.objects and not me.state.jobs, f"built {recipe}")


def add_virtual(me: Keyboard) -> None:
    me.palette("add two virtual")
    me.until(lambda: "vgpu:1" in me.state.usable_devices, "two virtual GPUs")


def select(me: Keyboard, name: str) -> None:
    """In the tree, with Tab and the arrows."""
    me.tab_to("objects")
    me.press(Key.Key_Home)
    for _ in me.state.objects:
        if me.window.objects.selected_targets() == (name,):
            return
        me.press(Key.Key_Down)
    assert me.window.objects.selected_targets() == (name,)


def in_group(stop: QWidget) -> bool:
    """One of several to choose from that is not chosen: Tab goes to the chosen one, the arrows from there to it."""
    return isinstance(stop, QAbstractButton) and stop.group() is not None and not stop.isChecked()


def stacks_to_come(me: Keyboard) -> list[str]:
    """What the plots will show that Monitor has not made yet."""
    return [choice for stack in me.window.findChildren(PlotStack) for choice in stack.choices[len(stack.slots) :]]


def test_tab_goes_through_the_whole_window_and_comes_round(me: Keyboard) -> None:
    build(me, "mlp")
    for number, layout in enumerate(LAYOUTS, start=1):
        me.press(Key(Key.Key_0 + number), ALT)
        assert me.window.workbench.layout_shown is layout
        roots = (me.window.rail, me.window.toolbar, me.window.workbench.root, me.window.status)
        made: list[bool] = []
        after_paint(me.window, lambda made=made: made.append(True))  # what the new layout put off comes before this
        me.until(lambda made=made: bool(made) and not stacks_to_come(me), "made")
        stops = {stop for root in roots for stop in reading_order(root) if stop.isVisible() and stop.isEnabled()}
        first, reached = me.focus, []
        while not reached or me.focus is not first:
            reached.append(me.focus)
            me.press(Key.Key_Tab)
            assert len(reached) <= len(stops) + 20, "Tab does not come round"
        missed = {stop for stop in stops - set(reached) if stop.isVisible() and stop.isEnabled() and not in_group(stop)}
        names = {f"{type(stop).__name__} {stop.accessibleName() or getattr(stop, 'text', str)()}" for stop in missed}
        assert names == set(), layout.name


def test_the_arrows_go_from_layout_to_layout_and_from_kind_to_kind(me: Keyboard) -> None:
    me.tab_to("Explore")
    me.press(Key.Key_Down)
    assert me.window.workbench.layout_shown.name == "measure"
    me.tab_to("Matmul")
    me.press(Key.Key_Down)
    page = me.window.bottom_dock.page("benchmark")
    assert page.rail.choices["sweep"].isChecked()
    me.press(Key.Key_Tab)
    me.tab_to("Sweep")


def test_f6_goes_from_panel_to_panel_and_back(me: Keyboard) -> None:
    build(me, "mlp")
    bench = me.window.workbench
    for number in range(1, 1 + len(LAYOUTS)):
        me.press(Key(Key.Key_0 + number), ALT)
        if bench.shows("exercise"):  # it is made once the layout is painted, and takes the keyboard
            me.until(lambda: bench.exercise.isAncestorOf(me.focus), "the exercise is there")
        visited = []
        panels = [bench.room.place(bench._panel(name)) for name in bench.arrangement.panels]
        panels = [panel for panel in panels if panel.isVisible()]
        for _ in panels:
            me.press(Key.Key_F6)
            visited.append(me.focus)
        assert all(sum(panel.isAncestorOf(focus) for focus in visited) == 1 for panel in panels)
        me.press(Key.Key_F6, SHIFT)
        assert me.focus is visited[-2 % len(visited)], "the one before, or the only one"


def test_the_main_job(me: Keyboard) -> None:
    add_virtual(me)
    build(me, "mlp")
    select(me, "mlp")
    me.press(Key.Key_1, CTRL)
    me.on("mlp", "vgpu:0")
    select(me, "mlp")
    me.press(Key.Key_F)
    me.idle()
    assert me.state.answer is not None
    assert not me.state.answer.failed, me.state.answer
    me.press(Key.Key_Z, CTRL)
    me.on("mlp", "cpu")


def test_an_exercise(me: Keyboard) -> None:
    add_virtual(me)
    me.press(Key.Key_4, ALT)
    panel = me.window.bottom_dock.page("learn")
    assert isinstance(panel, LearnPanel)
    choose(me, panel, "new-tensor")
    for number, fill in enumerate(("ones", "Custom", "rand:"), start=1):
        me.palette("new tensor")
        me.tab_to("Fill")
        me.press(Key.Key_Home)
        for _ in range(20):
            if me.focus.currentText().startswith(fill):
                break
            me.press(Key.Key_Down)
        if fill == "Custom":
            me.tab_to("Values")
            me.write("[[1, 2], [3, 4]]")
        if fill == "rand:":
            me.tab_to("Device")
            me.write("vgpu:0")
        me.tab_to("Create")
        me.press(Key.Key_Space)
        me.until(lambda done=number: panel.course.at >= done and not me.state.jobs, f"step {number}")
    assert "new-tensor" in panel.learned


def choose(me: Keyboard, panel: LearnPanel, exercise_id: str) -> None:
    """In the list, with Tab and the arrows."""
    me.tab_to("Exercises")
    me.press(Key.Key_Home, CTRL)
    for _ in panel.table.rows:
        if panel.course.exercise.id == exercise_id:
            return
        me.press(Key.Key_Down)
    assert panel.course.exercise.id == exercise_id


def test_the_palette_finds_pages_by_what_they_are_for_and_gives_them_the_keyboard(me: Keyboard) -> None:
    dock = me.window.bottom_dock
    for words, name in (
        ("largest batch", "fit"),
        ("compare", "history"),
        ("sweep", "benchmark"),
        ("bandwidth copies", "benchmark"),
    ):
        if name not in dock.areas:
            continue
        me.palette(words)
        me.until(lambda name=name: dock.current == name, f"the page {name}")
        page = dock.page(name)
        me.until(
            lambda page=page: page.isAncestorOf(QApplication.focusWidget() or me.window), f"the keyboard in {name}"
        )
    page = dock.page("benchmark")
    assert isinstance(page, BenchmarkPanel)
    assert page.page is page.pages["bandwidth"]
