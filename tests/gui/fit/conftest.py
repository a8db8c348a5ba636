"""A Fit page over a state with a CPU, two T4 and the model mlp, and what it asks for."""

import pytest
from fakes.bench_runs import CPU, T4S
from fakes.fit_pages import panel_for
from fakes.look_records import ENGINE, mlp, show, state_with


@pytest.fixture
def state():
    state = state_with(CPU, *T4S)
    state.apply(ENGINE)
    show(state, mlp())
    return state


@pytest.fixture
def sent():
    """What the page has asked for."""
    return []


@pytest.fixture
def panel(qtbot, state, sent):
    made = panel_for(qtbot, state)
    made.command_requested.connect(sent.append)
    return made
