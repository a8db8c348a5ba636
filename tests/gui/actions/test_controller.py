"""Why something cannot be done now."""

from __future__ import annotations

from fakes.bench_runs import begin
from fakes.look_records import ENGINE

from devexplorer.core.records import MatmulSpec
from devexplorer.core.session import State
from devexplorer.gui.actions import Controller


def test_a_run_of_a_recording_cannot_be_stopped() -> None:
    state = State()
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    state.apply(ENGINE)
    assert controller.why_no_stop() == "No benchmark is running."
    begin(state, 3, MatmulSpec(device="cpu", m=64, n=64, k=64))
    assert controller.why_no_stop() is None
    state.recording = "a recording"
    assert controller.why_no_stop() == "This is a recording: nothing in it can be changed."
