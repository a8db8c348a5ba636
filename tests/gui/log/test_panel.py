"""The log."""

from __future__ import annotations

import pytest
from fakes.host import hosted
from pytestqt.qtbot import QtBot

from devexplorer.core.records import Log
from devexplorer.core.session.state import LOG_LINES, State
from devexplorer.gui.log.page import LogPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

NOW = 1_800_000_000.0


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def log(qtbot: QtBot, state: State) -> LogPanel:
    return hosted(qtbot, lambda _: LogPanel(state), 600, 120)


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


def test_the_end_stays_in_view_until_the_user_scrolls_up(log: LogPanel, state: State) -> None:
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
    set_theme(LIGHT)
    assert lines(log) == ["one", "error: two"]
