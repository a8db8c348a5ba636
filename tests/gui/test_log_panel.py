"""The log and the list of processes."""

from __future__ import annotations

import pytest
from fakes.host import hosted
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records.devices import DeviceInfo, DeviceSample, Problem, ProcessUse
from devexplorer.core.records.messages import Log
from devexplorer.core.state import LOG_LINES, State
from devexplorer.gui.panels.log import LogPanel
from devexplorer.gui.panels.processes import ProcessesPanel
from devexplorer.gui.theme import DARK, LIGHT

NOW = 1_800_000_000.0


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def log(qtbot: QtBot, state: State) -> LogPanel:
    return hosted(qtbot, lambda host: LogPanel(state, DARK, host), 600, 120)


def say(state: State, text: str, level: str = "info") -> None:
    state.apply(Log(level=level, text=text, time_unix_s=NOW))


def lines(panel: LogPanel) -> list[str]:
    """Without the time."""
    return [line[10:] for line in panel.text.toPlainText().split("\n")]


def test_lines_say_their_level_and_what_user_code_printed_is_set_apart(log: LogPanel, state: State) -> None:
    say(state, "engine ready")
    say(state, "no NVML here", "warning")
    say(state, "the engine ended", "error")
    say(state, "epoch 1\nepoch 2\n", "output")
    log.refresh()

    assert lines(log) == ["engine ready", "warning: no NVML here", "error: the engine ended", "│ epoch 1", "│ epoch 2"]
    assert log.text.toPlainText()[2] == ":"


def test_printed_text_is_never_markup_and_terminal_codes_are_dropped(log: LogPanel, state: State) -> None:
    say(state, "<b>bold</b> \x1b[31mred\x1b[0m \x07\x00end\rover", "output")
    log.refresh()
    assert lines(log) == ["│ <b>bold</b> red end", "│ over"]


def test_each_line_is_added_once_and_only_so_many_are_kept(log: LogPanel, state: State) -> None:
    say(state, "first")
    log.refresh()
    log.refresh()
    assert lines(log) == ["first"]

    for number in range(LOG_LINES + 50):
        say(state, f"line {number}")
    log.refresh()
    assert log.text.blockCount() == LOG_LINES
    assert lines(log)[-1] == f"line {LOG_LINES + 49}"


def test_the_end_stays_in_view_until_somebody_scrolls_up(log: LogPanel, state: State) -> None:
    bar = log.text.verticalScrollBar()
    for number in range(50):
        say(state, f"line {number}")
    log.refresh()
    assert bar.maximum() > 0
    assert bar.value() == bar.maximum()

    bar.setValue(3)
    say(state, "more")
    log.refresh()
    assert bar.value() == 3


def test_another_theme_writes_the_same_lines(log: LogPanel, state: State) -> None:
    say(state, "one")
    say(state, "two", "error")
    log.refresh()
    log.set_theme(LIGHT)
    assert lines(log) == ["one", "error: two"]


def card(name: str, kind: str = "cuda") -> DeviceInfo:
    return DeviceInfo(id=name, kind=kind, name="a card", simulated=kind == "virtual")


def processes(qtbot: QtBot, state: State) -> ProcessesPanel:
    return hosted(qtbot, lambda host: ProcessesPanel(state, DARK, host))


def shown(panel: ProcessesPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in panel.model.rows]


def test_processes_are_listed_per_device_largest_first(qtbot: QtBot, state: State) -> None:
    state.set_catalog(Catalog(devices=(card("cpu", "cpu"), card("cuda:0"), card("cuda:1"))))
    small, large, unknown = ProcessUse(pid=7, name="Xorg", memory_bytes=2**20), ProcessUse(pid=8, memory_bytes=3 * 2**29), 9
    state.apply(DeviceSample(device="cuda:0", time_unix_s=NOW, processes=(small, ProcessUse(pid=unknown, name="python"), large)))
    state.apply(DeviceSample(device="cuda:1", time_unix_s=NOW, processes=(small,)))
    panel = processes(qtbot, state)

    assert shown(panel) == [
        ["cuda:0", "8", "1,536.0", "—"],
        ["cuda:0", "7", "1.0", "Xorg"],
        ["cuda:0", "9", "—", "python"],
        ["cuda:1", "7", "1.0", "Xorg"],
    ]
    assert panel.count == 4


def test_processes_that_cannot_be_seen_are_no_zero(qtbot: QtBot, state: State) -> None:
    reason = "this container hides other processes"
    problem = Problem(reason=reason, device="cuda:0", field="processes")
    state.set_catalog(Catalog(devices=(card("cuda:0"), card("cuda:1")), problems=(problem,)))
    for name in state.devices:
        state.apply(DeviceSample(device=name, time_unix_s=NOW, processes=None))
    panel = processes(qtbot, state)

    [first, second] = shown(panel)
    assert first[3] == f"not visible from here: {reason}"
    assert second[3].startswith("not visible from here: ")
    assert panel.count == 0


def test_nothing_to_list_is_said_in_a_sentence(qtbot: QtBot, state: State) -> None:
    state.set_catalog(Catalog(devices=(card("cpu", "cpu"), card("vgpu:0", "virtual"))))
    panel = processes(qtbot, state)
    assert "No GPU is here" in panel.nothing.text()

    state.set_catalog(Catalog(devices=(card("cuda:0"),)))
    state.apply(DeviceSample(device="cuda:0", time_unix_s=NOW, processes=()))
    panel.refresh()
    assert panel.nothing.text() == "No process uses a GPU now."
    assert shown(panel) == []
