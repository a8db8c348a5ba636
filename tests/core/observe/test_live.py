"""What a window keeps of the steps of a script."""

from __future__ import annotations

from typing import Any

import numpy as np

from devexplorer.core.observe.live import PHASES, ScriptState
from devexplorer.core.observe.phases import NAMES
from devexplorer.core.observe.records import ScriptSteps
from devexplorer.core.session import State


def steps(number: int, **phases: float) -> ScriptSteps:
    return ScriptSteps(time_unix_s=1000.0 + number, steps=10 * number, steps_per_second=10.0, phases=phases)


def told(*events: ScriptSteps) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


def test_every_phase_that_is_observed_has_its_place_in_the_stack() -> None:
    assert set(PHASES) == set(NAMES)


def test_phases_are_kept_over_time_and_one_that_came_later_was_nothing_before() -> None:
    part = told(steps(1, forward=0.02), steps(2, forward=0.03, backward=0.04), steps(3, forward=0.02)).part(ScriptState)
    assert [event.steps for event in part.steps] == [10, 20, 30]
    assert part.history.readings("forward")[1].tolist() == [0.02, 0.03, 0.02]
    backward: Any = part.history.readings("backward")[1]
    assert np.nan_to_num(backward).tolist() == [0.0, 0.04, 0.0]
    assert not part.history.has("copies")


def test_a_window_that_comes_later_or_again_has_each_word_once() -> None:
    before = told(steps(1, forward=0.02), steps(2, forward=0.03))
    later = told(*(event for event in before.past() if isinstance(event, ScriptSteps)))
    assert list(later.part(ScriptState).steps) == list(before.part(ScriptState).steps)
    later.apply(steps(3, forward=0.04))
    later.go_on_from(before)
    assert [event.steps for event in later.part(ScriptState).steps] == [10, 20, 30]
    assert len(later.part(ScriptState).history) == 3
