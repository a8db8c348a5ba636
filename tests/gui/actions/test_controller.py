"""Why something cannot be done now."""

from __future__ import annotations

import pytest
from fakes.bench_runs import begin
from fakes.look_records import CPU, ENGINE, mlp, show, state_with

from devexplorer.core.records import Backward, Command, Forward, MatmulSpec
from devexplorer.core.session import State
from devexplorer.gui.actions import Controller


@pytest.mark.parametrize(
    ("selected", "run"), [("mlp", "mlp"), ("mlp:hidden", "mlp:hidden"), ("mlp:hidden.weight", "mlp")]
)
def test_a_tensor_of_a_model_runs_the_model(selected: str, run: str) -> None:
    sent: list[Command] = []

    def send(command: Command) -> int:
        sent.append(command)
        return 0

    state = state_with(CPU)
    show(state, mlp())
    controller = Controller(state, send, selection=lambda: (selected,), say=str)
    controller.forward()
    controller.backward()
    assert sent == [Forward(target=run), Backward(target=run)]


def test_a_run_of_a_recording_cannot_be_stopped() -> None:
    state = State()
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    state.apply(ENGINE)
    assert controller.why_no_stop() == "No benchmark is running."
    begin(state, 3, MatmulSpec(device="cpu", m=64, n=64, k=64))
    assert controller.why_no_stop() is None
    state.recording = "a recording"
    assert controller.why_no_stop() == "This is a recording: nothing in it can be changed."
