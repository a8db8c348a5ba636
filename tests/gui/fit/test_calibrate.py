"""The Calibrate page: what its form asks for and refuses, a run in table and words, and the saved calibrations."""

import pytest
from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, finish, point
from fakes.calibrations import calibration, result, row
from fakes.host import hosted
from fakes.look_records import state_with
from PySide6.QtCore import Qt

from devexplorer.core.planner.calibrate.kind import CalibrateSpec
from devexplorer.gui.benchmark.page import BenchmarkPanel

LEFT = Qt.MouseButton.LeftButton


def page_of(qtbot, *infos):
    state = state_with(*infos)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["calibrate"], LEFT)
    page = panel.page
    return state, panel, page


def test_the_first_card_is_calibrated_for_ten_seconds(qtbot):
    _, panel, page = page_of(qtbot, CPU, *A10S)
    assert page.hint.full_text == "NVIDIA A10, 10 s of measuring"
    with qtbot.waitSignal(panel.start_requested) as started:
        qtbot.mouseClick(page.start_button, LEFT)
    assert started.args[0] == (CalibrateSpec(device="cuda:0"),)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (["cpu"], "cpu cannot be calibrated: the cost model is one of GPUs"),
        (["vgpu:0", "vgpu:1"], "cards are calibrated one at a time"),
    ],
)
def test_what_the_form_refuses(qtbot, chosen, said):
    _, _, page = page_of(qtbot, CPU, *T4S)
    page.devices.choose(chosen)
    assert said in page.message.full_text
    assert not page.start_button.isEnabled()


def test_a_run_is_followed_factor_by_factor(qtbot):
    state, panel, page = page_of(qtbot, CPU, *A10S)
    begin(state, 1, CalibrateSpec(device="cuda:0"))
    panel.refresh()
    assert page.summary.headline.text() == "Nothing is measured yet."
    rows = row("memory", 0.9), row("half", 1.1, unit="TFLOP/s")
    point(state, 1, part=rows[0], done=0.3, text="elementwise")
    panel.refresh()
    [first] = page.table.rows
    texts = [cell.text for cell in first.cells]
    assert texts[:5] == ["a kernel of memory", "memory bandwidth", "243 GB/s", "270 GB/s", "0.900"]
    assert texts[-1] == "correct"
    finish(state, 1, result(*rows))
    panel.refresh()
    assert page.summary.headline.text() == "2 factors"
    assert page.summary.warning.text() == ""


def test_a_run_that_is_no_calibration_says_why(qtbot):
    state, panel, page = page_of(qtbot, CPU, *A10S)
    begin(state, 1, CalibrateSpec(device="cuda:0"))
    finish(state, 1, result(row(noise=0.4)))
    panel.refresh()
    assert "varied by 40 %, so the calibration was not saved" in page.summary.warning.text()


def test_a_saved_calibration_can_be_removed(qtbot):
    _, _, page = page_of(qtbot, CPU, *A10S)
    assert not page.saved_button.isEnabled()
    page.set_calibrations((calibration({"memory": 0.9}), calibration({}, name="another")))
    assert page.saved_button.text() == "2 saved calibrations ▾"
    first, _second = page.saved.actions()
    assert first.text() == "Remove 'Tesla T4 calibrated on 27 Nov 2026'"
    assert first.toolTip() == "memory bandwidth 0.90"
