"""A Fit page over a state with a CPU, two T4 and the model mlp, and what it asks for."""

from __future__ import annotations

import pytest
from fakes.bench_runs import CPU, T4S
from fakes.fit_pages import panel_for
from fakes.look_records import ENGINE, mlp, show, state_with
from pytestqt.qtbot import QtBot

from devexplorer.core.records import Command
from devexplorer.core.session.state import State
from devexplorer.gui.fit.page import FitPanel


@pytest.fixture
def state() -> State:
    state = state_with(CPU, *T4S)
    state.apply(ENGINE)
    show(state, mlp())
    return state


@pytest.fixture
def sent() -> list[Command]:
    """What the page has asked for."""
    return []


@pytest.fixture
def panel(qtbot: QtBot, state: State, sent: list[Command]) -> FitPanel:
    made = panel_for(qtbot, state)
    made.command_requested.connect(sent.append)
    return made
