"""The whole window with the real engine in this process: the main tasks by clicks and keys, the heartbeat driven by
hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.shown_plots import curve_data
from fakes.window import Driver, open_window
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from devexplorer.core.session.settings import KnownMachine, SettingsFile
from devexplorer.gui.actions import encode
from devexplorer.gui.objects.new_tensor import NewTensorDialog
from devexplorer.gui.shell import tour as tour_module
from devexplorer.gui.shell.bars.menus import palette_choices
from devexplorer.gui.shell.guide import TOUR
from devexplorer.gui.shell.tour import Tour

Start = Callable[..., Driver]


@pytest.fixture
def start(qapp: QApplication, tmp_path: Path) -> Iterator[Start]:
    drivers: list[Driver] = []

    def make(virtual: str | None = "2x Tesla T4", folder: Path | None = None, *, waits: bool = True) -> Driver:
        drivers.append(open_window(qapp, folder or tmp_path, virtual, Driver))
        return drivers[-1].ready() if waits else drivers[-1]

    yield make
    for driver in drivers:
        driver.end()


CTRL = Qt.KeyboardModifier.ControlModifier


def test_the_first_page_says_what_this_machine_is(start: Start) -> None:
    driver = start(virtual=None)
    driver.until(lambda: driver.state.answer is not None)
    answer = driver.state.answer
    assert answer is not None
    facts = {fact.label: fact.value for fact in answer.facts}
    assert facts["cuda.is_available()"] in ("True", "False")
    assert facts["torch"].startswith("2.")
    assert {"CUDA of this torch", "cuda.device_count()", "driver"} <= set(facts)
    assert answer.title == "No GPU can be used here"
    assert driver.window.inspector.answer == answer


def test_virtual_gpus_that_were_asked_for_are_there_with_the_engine(start: Start) -> None:
    """Neither the panel nor the inspector says first that there is no GPU."""
    driver = start(waits=False)
    window, titles = driver.window, {""}

    def is_welcomed() -> bool:
        assert not window.devices.offer.isVisible()
        titles.add(window.inspector.title.text())
        return len(titles) > 1

    driver.until(is_welcomed)
    assert titles == {"", "2 virtual GPUs can be used"}
    assert not window.devices.offer.isVisible()


def test_a_new_tensor_is_made_on_the_selected_device(start: Start) -> None:
    driver = start()
    driver.click(driver.window.devices.items["vgpu:1"])
    driver.key(Qt.Key.Key_N)
    dialog = next(one for one in QApplication.topLevelWidgets() if isinstance(one, NewTensorDialog) and one.isVisible())
    assert dialog.device.currentText() == "vgpu:1"
    driver.click(dialog.accept_button)
    driver.until(lambda: "x" in driver.state.objects)
    assert driver.where("x") == {"vgpu:1"}


def test_a_model_moves_by_button_key_and_undo(start: Start) -> None:
    driver = start()
    driver.build("mlp")
    driver.select("mlp")
    driver.choose(driver.window.toolbar.buttons["move"], "vgpu:1")
    driver.on("mlp", "vgpu:1")
    assert driver.window.inspector.title.text() == "mlp is now on vgpu:1"
    assert driver.state.answer is not None
    assert "simulated" in {fact.label: fact.value for fact in driver.state.answer.facts}["time"]
    assert [marker.text for marker in driver.state.markers] == ["mlp → vgpu:1"]
    driver.key(Qt.Key.Key_1, CTRL)
    driver.on("mlp", "vgpu:0")
    driver.key(Qt.Key.Key_Z, CTRL)
    driver.on("mlp", "vgpu:1")
    driver.key(Qt.Key.Key_Z, CTRL | Qt.KeyboardModifier.ShiftModifier)
    driver.on("mlp", "vgpu:0")
    driver.key(Qt.Key.Key_0, CTRL)
    driver.on("mlp", "cpu")


def test_a_model_moves_by_drop_onto_a_card(start: Start) -> None:
    driver = start()
    driver.build("mlp")
    card = driver.window.devices.items["vgpu:1"]
    data = encode(("mlp",))
    actions, left, none = (
        Qt.DropAction.CopyAction | Qt.DropAction.MoveAction,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    QApplication.sendEvent(card, QDragEnterEvent(QPoint(5, 5), actions, data, left, none))
    assert card.verdict is not None
    assert "fits" in card.verdict.words
    QApplication.sendEvent(card, QDropEvent(QPointF(5, 5), actions, data, left, none))
    driver.on("mlp", "vgpu:1")


def test_a_part_of_a_model_moves_by_the_context_menu(start: Start) -> None:
    driver = start()
    driver.build("two-towers")
    part = next(row.path for row in driver.state.objects["two-towers"].rows if row.kind == "module" and row.depth == 1)
    driver.window.objects.expand("two-towers")
    driver.select(f"two-towers:{part}")
    driver.window.objects.context_menu_requested.emit(QPoint(10, 10))
    menu = next(widget for widget in QApplication.topLevelWidgets() if isinstance(widget, QMenu) and widget.isVisible())
    moves = menu.actions()[0].menu()
    next(action for action in moves.actions() if action.data() == "vgpu:0").trigger()
    menu.close()
    driver.until(lambda: driver.where("two-towers") == {"cpu", "vgpu:0"})


def test_with_one_device_nothing_moves_and_virtual_gpus_are_offered(start: Start) -> None:
    driver = start(virtual=None)
    driver.build("mlp")
    driver.select("mlp")
    assert not driver.window.toolbar.buttons["move"].isEnabled()
    assert "only one device" in driver.window.toolbar.buttons["move"].toolTip()
    assert driver.window.devices.offer.isVisible()
    driver.click(driver.window.devices.offer_button)
    driver.until(lambda: driver.state.usable_devices == ["cpu", "vgpu:0", "vgpu:1"])
    assert driver.window.toolbar.buttons["move"].isEnabled()
    assert not driver.window.devices.offer.isVisible()


def test_a_benchmark_streams_into_the_throughput_plot_and_stops(start: Start) -> None:
    driver = start()
    driver.window.workbench.show_layout("measure")
    panel = driver.window.bottom_dock.page("benchmark")
    panel.matmul.devices.choose(["vgpu:0"])
    panel.matmul.size_edit.setText("2048")
    driver.click(panel.matmul.start_button)
    driver.until(lambda: any(run.points >= 3 for run in driver.state.runs.values()), "points")
    run = next(iter(driver.state.runs.values()))
    driver.until(
        lambda: len(curve_data(driver.window.throughput.plot, "vgpu:0")[0]) >= 3,
        "drawn: a curve waits for half a pixel of news",
    )
    assert curve_data(driver.window.throughput.plot, "vgpu:0")[1].max() > 0
    driver.click(panel.matmul.stop_button)
    driver.until(lambda: run.ended, "stopped")
    assert run.result is not None
    assert run.result.stopped
    assert run.result.simulated


def test_memory_is_read_and_drawn(start: Start) -> None:
    driver = start()
    driver.build("lenet")
    driver.select("lenet")
    engine = driver.engines[-1].engine
    engine.allocator_sampler.read()
    driver.key(Qt.Key.Key_2, CTRL)
    driver.on("lenet", "vgpu:1")
    engine.allocator_sampler.read()

    def drawn() -> bool:
        values = curve_data(driver.window.memory.plot, "vgpu:1")[1]
        return len(values) > 1 and bool(values[-1] > values[0])

    driver.until(drawn, "drawn: a curve waits for half a pixel of news")
    held = driver.state.objects["lenet"].bytes_by_device["vgpu:1"]
    parts = driver.state.devices["vgpu:1"].parts
    assert parts.workspace is not None
    assert parts.workspace >= held
    assert parts.context
    assert (
        parts.workspace + (parts.other_allocated or 0) + (parts.cached or 0) + parts.context
        == driver.state.devices["vgpu:1"].used_bytes
    )


def test_a_lost_engine_is_said_and_the_workspace_comes_back(start: Start) -> None:
    driver = start()
    driver.build("mlp")
    driver.select("mlp")
    driver.key(Qt.Key.Key_2, CTRL)
    driver.on("mlp", "vgpu:1")
    driver.engines[-1].kill()
    driver.until(lambda: len(driver.engines) == 2, "another engine")
    assert "SIGKILL" in driver.window.banner.words.full_text
    driver.until(
        lambda: driver.state.answer is not None and driver.state.answer.title == "The workspace was rebuilt", "rebuilt"
    )
    assert driver.where("mlp") == {"vgpu:1"}


def test_the_tour_begins_with_an_empty_workspace_only(start: Start) -> None:
    driver = start()
    tour = driver.window.actions_by_id["tour"]
    driver.until(tour.isEnabled)
    driver.build("mlp")
    assert not tour.isEnabled()
    assert "empty workspace" in tour.toolTip()


def test_a_tour_clicks_what_the_guide_points_at_until_the_user_leaves(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, ended = start(), list[str | None]()
    monkeypatch.setattr(tour_module, "LOOK_SECONDS", 0.0)
    tour = Tour(driver.app, None, ended.append)
    tour.start()
    driver.until(lambda: driver.window.axis.span_s == 30, "its first step")
    driver.until(lambda: driver.window.guide.step in TOUR.steps[1:], "the next one")
    driver.until(lambda: len(tour._done) == 1, "noted")
    driver.window.guide.leave()
    driver.until(lambda: ended == ["the tour was left before its end"], "ended")


def test_a_step_of_the_tour_that_does_not_come_true_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, ended = start(), list[str | None]()
    monkeypatch.setattr(tour_module, "STEP_SECONDS", -1.0)
    tour = Tour(driver.app, None, ended.append)
    tour.start()
    driver.until(lambda: ended == ["this did not happen within -1 s: the engine is ready"], "ended")
    assert tour.report() == 1


def test_the_palette_runs_what_it_finds_and_says_why_not(start: Start) -> None:
    driver = start()
    driver.window.show_palette()
    palette = driver.window.findChild(QWidget, "palette")
    assert palette is not None
    QTest.keyClicks(palette.field, "mlp build")  # type: ignore[attr-defined]
    QTest.keyClick(palette.field, Qt.Key.Key_Return)  # type: ignore[attr-defined]
    driver.until(lambda: "mlp" in driver.state.objects)
    choices = palette_choices(driver.window.specs, driver.window.controller)
    reasons = {choice.text: choice.detail for choice in choices if not choice.enabled}
    assert reasons["Redo"] == "Nothing has been undone."


def test_the_layout_is_remembered(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("devexplorer.gui.doctor")
    driver = start(folder=tmp_path)
    driver.window.change_theme()
    driver.window.axis.set_span(30.0)
    driver.window.bottom_dock.show_page("doctor")
    driver.window.bottom_dock.show_page("processes")  # in Monitor
    driver.app.stop()
    saved = SettingsFile(tmp_path).load()
    assert (saved.theme, saved.span_s) == ("light", 30.0)
    again = start(folder=tmp_path)
    assert again.window.axis.span_s == 30.0
    assert again.window.bottom_dock.current == "processes"
    again.window.workbench.show_layout("explore")
    assert again.window.bottom_dock.current == "doctor"


def test_the_python_of_a_folder_is_remembered_as_long_as_it_is_there(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = start(None).app
    assert app.remembered_python() is None
    app.window.context.save_settings(pythons={str(tmp_path.parent): sys.executable})
    assert app.remembered_python() == sys.executable
    app.window.context.save_settings(pythons={str(tmp_path): "/gone/python"})
    assert app.remembered_python() is None
    assert "/gone/python, is no longer there" in app.window.banner.words.full_text


def test_what_is_chosen_is_saved_at_once(start: Start, tmp_path: Path) -> None:
    """A window that crashes has forgotten nothing; a disk that takes it no more is said."""
    driver, file = start(None), SettingsFile(tmp_path)
    driver.window.context.save_settings(pythons={"/work": "/opt/python"})
    driver.window.context.save_settings(machines=(KnownMachine("gpu1", "/opt/python"),))
    driver.until(lambda: file.load().machines)
    assert file.load().pythons == {"/work": "/opt/python"}
    file.path.unlink()
    file.path.mkdir()
    driver.window.context.save_settings(pythons={})
    driver.until(lambda: "could not be saved" in driver.window.banner.words.full_text)


def test_every_action_says_what_it_does_or_why_not(start: Start) -> None:
    driver = start()
    driver.heartbeat.tick()
    for action in driver.window.actions_by_id.values():
        assert len(action.toolTip()) > 10, action.objectName()


@pytest.mark.parametrize("damaged", [b'{"theme": "light", ', b'{"theme": "\xff"}'])
def test_damaged_settings_are_put_aside_and_the_window_and_the_command_line_say_where(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str], damaged: bytes
) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_bytes(damaged)
    driver = start(virtual=None)
    (aside,) = tmp_path.glob("window.damaged-*.json")
    assert aside.read_bytes() == damaged
    assert str(aside) in driver.window.banner.words.full_text
    said = capfd.readouterr().err
    assert said.startswith("devexplorer: The settings are damaged")
    assert said.count("\n") == 1
