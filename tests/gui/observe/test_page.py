"""The page Script: how fast, what takes the time, phases over time; and why there is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.look_records import ENGINE
from fakes.quiet_window import QuietWindow
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.observe.live import PHASES
from devexplorer.core.observe.records import ScriptHeld, ScriptSteps
from devexplorer.core.session.machine import Machine
from devexplorer.gui.observe.page import HATCHED, NO_SCRIPT, PhasePlot, ScriptPage
from devexplorer.gui.observe.tab import TAB
from devexplorer.gui.widgets.theme import THEMES, set_theme, theme_changed

LEFT = Qt.MouseButton.LeftButton
SCRIPT = replace(ENGINE, read_only="The script runs on its own, and this window only shows it")


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    made = QuietWindow(qapp, tmp_path)
    yield made
    made.close()


@pytest.fixture
def page(quiet: QuietWindow) -> ScriptPage:
    return TAB.show(quiet.window.context)


def steps(quiet: QuietWindow, ago_s: float, number: int, *, simulated: bool = False, verdict: str = "") -> ScriptSteps:
    phases = {"forward": 0.02, "backward": 0.03, "input wait": 0.15}
    return ScriptSteps(
        time_unix_s=quiet.now - ago_s, steps=number, steps_per_second=99.0, phases=phases, simulated=simulated,
        verdict=verdict,
    )  # fmt: skip


def test_a_machine_that_is_no_script_says_how_to_run_one(quiet: QuietWindow, page: ScriptPage) -> None:
    assert page.plot.is_empty
    assert page.plot.empty.sentence.text() == NO_SCRIPT
    assert "devexplorer run train.py" in NO_SCRIPT
    assert page.plot.empty.button.isVisible()
    assert not page.rate.isVisible()
    quiet.window.context.machine = Machine("fit.py")
    quiet.tell(SCRIPT)
    assert page.plot.empty.sentence.text().startswith("No steps of fit.py have been seen.")
    assert not page.plot.empty.button.isVisible()


def test_the_button_of_the_empty_page_looks_for_scripts(
    quiet: QuietWindow, page: ScriptPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.core.observe.running.running", list)
    QTest.mouseClick(page.plot.empty.button, LEFT)
    quiet.answered()
    assert "No script of yours runs" in quiet.window.banner.words.full_text


def test_steps_their_rate_and_what_takes_the_time(quiet: QuietWindow, page: ScriptPage) -> None:
    quiet.window.context.machine = Machine("train.py")
    quiet.tell(SCRIPT, steps(quiet, 12.0, 1000))
    assert page.rate.text() == "99.0 steps/s", "what the script says, while there is but one word"
    quiet.tell(*(steps(quiet, float(ago), 1060 - 5 * ago) for ago in range(11, -1, -1)))
    assert (page.name.full_text, page.rate.text()) == ("train.py", "5.00 steps/s")
    assert page.numbers.full_text == "1,060 steps, 200 ms each"
    assert page.verdict.full_text == "The largest part of a step: input wait, 75 %"
    quiet.now += 1.0
    quiet.tell(steps(quiet, 0.0, 1065, verdict="Input-bound: 75 % of a step waits for data."))
    assert page.verdict.full_text == "Input-bound: 75 % of a step waits for data."
    quiet.now += 1.0
    quiet.tell(replace(steps(quiet, 0.0, 1070), phases={"forward": 0.2, "evaluation": 2.0}))
    assert (page.rate.text(), page.numbers.full_text) == ("5.00 steps/s", "1,070 steps, 400 ms each")
    shares = {line.device: line.value for line in page.plot.legend_entries}
    assert (shares["evaluation"], shares["input wait"]) == ("50 %", "34 %"), "of the same seconds"
    assert page.verdict.full_text == "The largest part of a step: evaluation, 50 %"


def test_a_script_that_is_stopped_is_said_to_be(quiet: QuietWindow, page: ScriptPage) -> None:
    quiet.window.context.machine = Machine("train.py")
    quiet.tell(SCRIPT, ScriptHeld(how="in a debugger"))
    assert page.plot.empty.sentence.text() == "train.py is stopped in a debugger."
    quiet.tell(steps(quiet, 1.0, 1000, verdict="Compute-bound."))
    assert page.verdict.full_text == "train.py is stopped in a debugger."
    quiet.tell(ScriptHeld(how=""))
    assert page.verdict.full_text == "Compute-bound."


def test_phases_are_stacked_in_one_order_with_their_shares(quiet: QuietWindow, page: ScriptPage) -> None:
    quiet.tell(SCRIPT, *(steps(quiet, float(ago), 100 - ago) for ago in range(5, -1, -1)))
    plot = page.plot
    assert list(plot.stacked) == ["forward", "backward", "input wait"]
    assert plot.stacked["backward"].tolist() == [0.03] * 6
    assert [(line.device, line.value) for line in plot.legend_entries] == [
        ("forward", "10 %"),
        ("backward", "15 %"),
        ("input wait", "75 %"),
    ]
    assert plot.subtitle == "ms · shares of the last 10 s", "the verdict is of the whole run"
    table = plot.figures()
    assert table is not None
    assert table.columns == ("Time", "input wait, ms", "backward, ms", "forward, ms")
    assert [row[1] for row in table.rows].count("150.00") == 6
    plot.legend.show_only({"forward"})
    assert list(plot.stacked) == ["forward"]
    assert "forward 20 ms" in plot.spoken()


def test_a_long_name_and_many_steps_widen_no_page(quiet: QuietWindow, page: ScriptPage) -> None:
    quiet.tell(SCRIPT, steps(quiet, 1.0, 10))
    least = page.minimumSizeHint().width()
    quiet.window.context.machine = Machine("a_script_with_a_name_that_is_long_for_a_script.py")
    quiet.tell(steps(quiet, 0.0, 12_345_678, simulated=True))
    assert page.name.full_text == "a_script_with_a_name_that_is_long_for_a_script.py"
    assert page.minimumSizeHint().width() <= least


def test_simulated_seconds_say_so(quiet: QuietWindow, page: ScriptPage) -> None:
    quiet.tell(SCRIPT, steps(quiet, 1.0, 10, simulated=True), steps(quiet, 0.0, 11, simulated=True))
    assert page.numbers.full_text == "11 steps, 200 ms (simulated) each"
    assert page.plot.subtitle.startswith("ms · simulated")
    assert "simulated" in page.plot.spoken()


def test_steps_without_phases_have_a_rate(quiet: QuietWindow, page: ScriptPage) -> None:
    bare = ScriptSteps(time_unix_s=quiet.now, steps=1, steps_per_second=0.0, phases={})
    quiet.tell(SCRIPT, bare)
    assert page.numbers.full_text == "1 step, — each"
    assert page.verdict.full_text == ""


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_every_phase_looks_different_in_every_theme(quiet: QuietWindow, page: ScriptPage, theme: object) -> None:
    set_theme(theme)  # type: ignore[arg-type]
    theme_changed.emit()
    plot: PhasePlot = page.plot
    looks = {part: tuple((brush.color().name(), brush.style()) for brush in plot._brushes(part)) for part in PHASES}
    assert len(set(looks.values())) == len(PHASES)
    assert set(HATCHED) < set(PHASES)
    grounds = [looks[part][0][0] for part in PHASES if part not in HATCHED]
    assert len(set(grounds)) == len(grounds)
