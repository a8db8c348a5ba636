"""The Sweep page: its requests, the heat map and the curve, the best shape, and resuming."""

from __future__ import annotations

import json

import pytest
from fakes.bench_runs import CPU, NOW, T4S, begin, cell, finish, measure, point, swept
from fakes.host import hosted
from fakes.look_records import state_with
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import EngineLost
from devexplorer.core.session.state import State
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

LEFT = Qt.MouseButton.LeftButton
GRID = tuple((m, n, 64) for m in (64, 128) for n in (64, 128, 256))
LINE = tuple((size, size, size) for size in (64, 128, 192, 256))


@pytest.fixture
def state() -> State:
    return state_with(CPU, *T4S)


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> BenchmarkPanel:
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["sweep"], LEFT)
    return panel


def run(state: State, shapes: tuple[tuple[int, int, int], ...], number: int = 1, **more: object) -> SweepSpec:
    spec = SweepSpec(device="vgpu:0", dtype="float16", shapes=shapes, **more)  # type: ignore[arg-type]
    begin(state, number, spec, simulated=True, datasheet=65.0)
    return spec


def refreshed(panel: BenchmarkPanel) -> BenchmarkPanel:
    panel.refresh()
    QApplication.processEvents()  # what the page that came to the front lays out
    return panel


# --- the form --------------------------------------------------------------------------------------------------------


def test_shapes_are_written_as_on_the_command_line(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    page = panel.pages["sweep"]
    page.shapes_edit.setText("64:192:64, 32x64:128:64x16")
    page.devices.choose(["vgpu:0", "vgpu:1"])
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(page.start_button, LEFT)
    [specs] = asked.args or []
    shapes = ((64, 64, 64), (128, 128, 128), (192, 192, 192), (32, 64, 16), (32, 128, 16))
    assert specs == tuple(SweepSpec(device=name, shapes=shapes, shape_seconds=0.2) for name in ("vgpu:0", "vgpu:1"))
    assert page.hint.full_text == "5 shapes, 1 s of measuring plus warm-up"


def test_the_menu_offers_shapes_worth_looking_at(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    page = panel.pages["sweep"]
    menu = page.shapes_edit.menu
    menu.popup(page.mapToGlobal(QPoint(10, 10)))
    grid = next(action for action in menu.actions() if action.text() == "M × N, K 2048")
    qtbot.mouseClick(menu, LEFT, pos=menu.actionGeometry(grid).center())
    [spec] = page.specs()
    assert len(spec.shapes) == 15 * 15


def test_a_search_has_a_budget_and_needs_no_shapes(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    page = panel.pages["sweep"]
    page.way.setFocus()
    qtbot.keyClick(page.way, Qt.Key.Key_Down)
    assert page.way.value == "search"
    assert (page.shapes_edit.text(), page.seconds_edit.text()) == ("", "30")
    [spec] = page.specs()
    assert (spec.shapes, spec.search_seconds, spec.shape_seconds) == ((), 30.0, 0.2)
    page.shapes_edit.setText("512")
    assert page.specs()[0].shapes == ((512, 512, 512),)
    page.way.choose("measure")
    assert page.seconds_edit.text() == "0.2"
    assert page.shapes_edit.text() == "512"  # which the user has typed


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("shapes_edit", "", "is not a size"),
        ("shapes_edit", "512:64:64", "has nothing in it"),
        ("shapes_edit", "1:10000:1", "10,000 shapes are too many to be shown"),
        (
            "shapes_edit",
            "100000",
            "none of these shapes fits on vgpu:0: the smallest needs 111.76 GiB, and 15.00 GiB are free",
        ),
        ("seconds_edit", "", "is not a number of seconds"),
        ("dtype_edit", "float8_e4m3fn", "Tesla T4 has no float8_e4m3fn unit"),
    ],
)
def test_bad_input_is_answered_in_one_line_and_nothing_is_sent(
    qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, said: str
) -> None:  # fmt: skip
    getattr(panel.pages["sweep"], field).setText(text)
    assert said in panel.pages["sweep"].message.full_text
    with qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(panel.pages["sweep"].start_button, LEFT)


def test_shapes_that_will_be_left_out_are_counted(panel: BenchmarkPanel) -> None:
    panel.pages["sweep"].shapes_edit.setText("1024, 100000")
    assert panel.pages["sweep"].hint.full_text.endswith("; 1 of them do not fit and are left out")


# --- the heat map ----------------------------------------------------------------------------------------------------


def test_a_grid_fills_while_it_is_measured_and_its_best_shape_is_framed(panel: BenchmarkPanel, state: State) -> None:
    run(state, GRID)
    heat = panel.pages["sweep"].map
    refreshed(panel)
    assert (heat.rows, heat.columns, heat.best) == (("64", "128"), ("64", "128", "256"), None)

    measure(state, 1, [cell(64, 64, 64, 10.0), cell(64, 128, 64, 30.0), cell(64, 256, 64)], total=6)
    refreshed(panel)
    assert heat.best == (1, 0)
    assert heat.ends == (10.0, 30.0)
    dark, light = heat.colour_at((0, 0)), heat.colour_at((1, 0))
    assert dark is not None
    assert light is not None
    assert light.lightness() > dark.lightness()
    assert heat.colour_at((2, 0)) is None  # not measured, so it has no colour of the scale
    summary = panel.pages["sweep"].summary
    assert summary.headline.text() == "30.0 TFLOP/s at 64×128×64"
    assert summary.words.text() == "The best so far, 46 % of the datasheet."
    assert summary.facts.text() == "running, 3 of 6 shapes, 1 not measured, simulated"
    assert summary.facts.toolTip() == "1 not measured: it does not fit"
    assert panel.pages["sweep"].progress.value() == 500
    assert panel.pages["sweep"].hint.full_text == "vgpu:0, 4 s left"

    measure(state, 1, [cell(128, 64, 64, 40.0)])
    refreshed(panel)
    assert heat.best == (0, 1)
    assert heat.ends == (10.0, 40.0)


def test_the_patch_under_the_pointer_says_what_it_is(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state, GRID)
    measure(state, 1, [cell(64, 64, 64, 10.0), cell(64, 128, 64, 30.0), cell(64, 256, 64)])
    heat, summary = refreshed(panel).pages["sweep"].map, panel.pages["sweep"].summary
    qtbot.mouseMove(heat, heat.box((0, 0)).center().toPoint())
    qtbot.waitUntil(lambda: summary.headline.text() == "64×64×64")
    assert summary.words.text() == "10.0 TFLOP/s, p20 9.80, p80 10.2\n33 % of the best\n100 iterations"
    assert heat.tip_at(heat.box((2, 0)).center()) == "64×256×64\nnot measured: it does not fit"
    assert heat.tip_at(heat.box((0, 1)).center()) == ""  # nothing is known of it yet
    qtbot.keyClick(heat, Qt.Key.Key_Escape)
    assert summary.headline.text() == "30.0 TFLOP/s at 64×128×64"


def test_the_map_goes_without_a_mouse(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state, GRID)
    measure(state, 1, [cell(64, 64, 64, 10.0), cell(64, 128, 64, 30.0)])
    heat, summary = refreshed(panel).pages["sweep"].map, panel.pages["sweep"].summary
    for key, headline in (
        (Qt.Key.Key_Right, "64×128×64"),
        (Qt.Key.Key_Left, "64×64×64"),
        (Qt.Key.Key_Left, "64×64×64"),
    ):
        qtbot.keyClick(heat, key)
        assert summary.headline.text() == headline


def test_the_shape_that_is_measured_now_is_known(panel: BenchmarkPanel, state: State) -> None:
    run(state, GRID)
    point(state, 1, text="128×256×64", done=0.1)
    before = refreshed(panel).pages["sweep"].map.grab().toImage()
    point(state, 1, text="128×64×64", done=0.1)
    assert refreshed(panel).pages["sweep"].map.grab().toImage() != before


# --- the curve -------------------------------------------------------------------------------------------------------


def test_a_range_of_sizes_is_a_curve(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state, LINE)
    measure(state, 1, [cell(*shape, tflops) for shape, tflops in zip(LINE, (1.0, 4.0, None, 9.0), strict=True)])
    view = refreshed(panel).pages["sweep"]
    assert view.curve.isVisible()
    assert not view.map.isVisible()
    [series] = view.curve.series
    assert [point[:2] for point in series.points] == [(64.0, 1.0), (128.0, 4.0), (256.0, 9.0)]
    assert (series.name, series.simulated) == ("vgpu:0", True)
    qtbot.keyClick(view.curve, Qt.Key.Key_Left)
    assert view.summary.headline.text() == "256×256×256"


def test_a_search_is_seen_in_the_order_of_time_with_the_best_so_far(panel: BenchmarkPanel, state: State) -> None:
    run(state, (), search_seconds=30.0)
    measure(state, 1, [cell(256, 256, 256, 5.0), cell(512, 512, 512, 9.0), cell(512, 256, 512, 7.0)])
    found, best = refreshed(panel).pages["sweep"].curve.series
    assert [point[:2] for point in found.points] == [(1.0, 5.0), (2.0, 9.0), (3.0, 7.0)]
    assert [point[1] for point in best.points] == [5.0, 9.0, 9.0]
    assert panel.pages["sweep"].summary.headline.text() == "9.00 TFLOP/s at 512×512×512"


# --- the end, and going on -------------------------------------------------------------------------------------------


def test_a_stopped_sweep_is_resumed_with_what_it_has(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    spec = run(state, GRID)
    cells = [cell(64, 64, 64, 10.0), cell(64, 128, 64)]
    measure(state, 1, cells)
    finish(state, 1, swept(1, spec, cells, stopped=True, simulated=True))
    summary = refreshed(panel).pages["sweep"].summary
    assert summary.facts.text() == "stopped, 2 of 6 shapes, 1 not measured, simulated"
    assert summary.button.text() == "Resume, 4 shapes left"
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(summary.button, LEFT)
    [(again,)] = asked.args or []
    assert again == SweepSpec(device="vgpu:0", dtype="float16", shapes=GRID, done=tuple(cells))

    begin(state, 2, again, simulated=True)
    measure(state, 2, [cell(64, 256, 64, 20.0)], total=4)
    refreshed(panel)
    assert panel.pages["sweep"].map.best == (2, 0)
    assert summary.choice.value == 2  # the run that began last is shown
    assert summary.facts.text() == "running, 3 of 6 shapes, 1 not measured, simulated"
    assert not summary.button.isVisible()


def test_what_was_measured_before_the_engine_died_can_be_gone_on_with(
    qtbot: QtBot, panel: BenchmarkPanel, state: State
) -> None:
    run(state, LINE)
    measure(state, 1, [cell(*LINE[0], 1.0)])
    state.apply(EngineLost(reason="killed by SIGKILL", will_restart=True, time_unix_s=NOW + 3))
    summary = refreshed(panel).pages["sweep"].summary
    assert summary.state.text() == "✕ failed: killed by SIGKILL"
    assert summary.button.text() == "Resume, 3 shapes left"


def test_a_sweep_that_went_all_the_way_offers_nothing_more(panel: BenchmarkPanel, state: State) -> None:
    spec = run(state, LINE)
    cells = [cell(*shape, 2.0) for shape in LINE]
    finish(state, 1, swept(1, spec, cells))
    summary = refreshed(panel).pages["sweep"].summary
    assert summary.facts.text() == "done, 4 of 4 shapes, simulated"
    assert not summary.button.isVisible()


def test_an_earlier_run_is_chosen_from_the_list(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    for number, rate in ((1, 3.0), (2, 8.0)):
        spec = run(state, LINE, number)
        finish(state, number, swept(number, spec, [cell(*LINE[0], rate)]))
    summary = refreshed(panel).pages["sweep"].summary
    assert summary.headline.text() == "8.00 TFLOP/s at 64×64×64"
    qtbot.keyClick(summary.choice, Qt.Key.Key_Down)
    assert summary.headline.text() == "3.00 TFLOP/s at 64×64×64"
    refreshed(panel)
    assert summary.choice.value == 1  # it stays the user's choice


def test_sweeps_are_copied_as_the_command_line_prints_them(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    spec = run(state, LINE)
    finish(state, 1, swept(1, spec, [cell(*LINE[0], 3.0), cell(*LINE[1])], simulated=True))
    refreshed(panel)
    qtbot.mouseClick(panel.pages["sweep"].copy_button, LEFT)
    document = json.loads(QGuiApplication.clipboard().text())
    assert (document["schema"], document["benchmark"]) == (1, "sweep")
    assert [entry["shape"] for entry in document["runs"]] == [[64, 64, 64], [128, 128, 128]]
    assert [entry["simulated"] for entry in document["runs"]] == [True, True]


def test_the_other_theme_turns_the_scale_round(panel: BenchmarkPanel, state: State) -> None:
    run(state, GRID)
    measure(state, 1, [cell(64, 64, 64, 10.0), cell(64, 128, 64, 30.0)])
    refreshed(panel)
    set_theme(LIGHT)
    refreshed(panel)
    slow, fast = panel.pages["sweep"].map.colour_at((0, 0)), panel.pages["sweep"].map.colour_at((1, 0))
    assert slow is not None
    assert fast is not None
    assert fast.lightness() < slow.lightness()
