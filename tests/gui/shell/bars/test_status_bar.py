"""The status bar: a job has a progress bar and can be cancelled, a benchmark shows its remaining time and can be
stopped."""

from __future__ import annotations

import pytest
from fakes.host import hosted
from fakes.look_records import CPU, ENGINE, VGPU, state_with
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import (
    BenchPreparing,
    BenchStarted,
    Cancel,
    Command,
    JobProgress,
    JobStarted,
    MatmulSpec,
    StopBenchmark,
    UndoState,
)
from devexplorer.core.session.state import State
from devexplorer.gui.actions import Controller
from devexplorer.gui.shell.bars.status_bar import StatusBar

START = 1000.0


def controller_of(state: State, sent: list[Command]) -> Controller:
    def send(command: Command) -> int:
        sent.append(command)
        return len(sent)

    return Controller(state, send, selection=tuple, say=str)


def bar_for(qtbot: QtBot, state: State, now: float, sent: list[Command] | None = None) -> StatusBar:
    controller = controller_of(state, [] if sent is None else sent)
    return hosted(qtbot, lambda _: StatusBar(controller, clock=lambda: now), 1200, 26)


def run(state: State, number: int, device: str, seconds: float | None = 30.0, *, started: bool = True) -> None:
    spec = MatmulSpec(device=device, m=64, n=64, k=64, seconds=seconds)
    state.apply(JobStarted(request=number, title=f"benchmark on {device}", time_unix_s=START))
    state.apply(BenchPreparing(request=number, run=number, spec=spec, simulated=True))
    if started:
        state.apply(BenchStarted(request=number, run=number, time_unix_s=START))


def test_a_job_shows_its_progress_and_time_left_and_is_cancelled(qtbot: QtBot):
    state = state_with(CPU)
    state.apply(JobStarted(request=7, title="move vgg16-bn", time_unix_s=START))
    state.apply(JobProgress(request=7, done=0.5))
    sent: list[Command] = []
    bar = bar_for(qtbot, state, START + 4, sent)
    assert bar.job.full_text == "move vgg16-bn, 4 s left"
    assert (bar.progress.isVisible(), bar.progress.value(), bar.cancel.text()) == (True, 500, "Cancel")
    bar.cancel.click()
    assert sent == [Cancel(job=7)]
    state.apply(JobProgress(request=7, done=0.99999))
    bar.refresh()
    assert bar.job.full_text == "move vgg16-bn, 1 s left", "no microseconds"


def test_it_says_what_is_kept_for_undo_and_where(qtbot: QtBot):
    state = state_with(CPU)
    bar = bar_for(qtbot, state, START)
    assert bar.undo.toolTip() == ""
    state.apply(UndoState(title="the removal of x", kept_bytes=512 << 20, budget_bytes=1 << 30))
    bar.refresh()
    assert bar.undo.full_text == "undo: the removal of x · 512.00 MiB kept for Undo (limit 1.00 GiB)"
    assert "removed objects are kept in host memory" in bar.undo.toolTip()


def test_a_short_job_comes_and_goes_unseen(qtbot: QtBot):
    state = state_with(CPU)
    state.apply(JobStarted(request=7, title="move x", time_unix_s=START))
    assert not bar_for(qtbot, state, START + 0.1).job.isVisible()


def test_a_benchmark_says_how_long_it_takes_and_is_stopped(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    run(state, 3, "vgpu:0")
    sent: list[Command] = []
    bar = bar_for(qtbot, state, START + 10, sent)
    assert bar.job.full_text == "benchmark on vgpu:0, 20 s left"
    assert (bar.progress.isVisible(), bar.cancel.isVisible(), bar.cancel.text()) == (False, True, "Stop")
    bar.cancel.click()
    assert sent == [StopBenchmark()]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([("vgpu:0", 30.0, True), ("cpu", None, True)], "benchmark on 2 devices"),
        ([("cpu", 30.0, False)], "benchmark on cpu, warming up"),
        ([("vgpu:0", 660.0, True)], "benchmark on vgpu:0, 11 min left"),
    ],
)
def test_what_is_said_of_benchmarks(qtbot: QtBot, runs: list[tuple[str, float | None, bool]], words: str):
    state = state_with(CPU, VGPU)
    for number, (device, seconds, started) in enumerate(runs, start=3):
        run(state, number, device, seconds, started=started)
    assert bar_for(qtbot, state, START + 10).job.full_text == words


def test_a_job_is_shown_before_a_benchmark(qtbot: QtBot):
    state = state_with(CPU)
    run(state, 3, "cpu")
    state.apply(JobStarted(request=9, title="build vgg16-bn", time_unix_s=START))
    bar = bar_for(qtbot, state, START + 1)
    assert (bar.job.full_text, bar.cancel.text()) == ("build vgg16-bn", "Cancel")


def test_what_ran_in_a_recording_cannot_be_stopped(qtbot: QtBot):
    state = state_with(CPU)
    state.recording = "run.devrec"
    run(state, 3, "cpu")
    bar = bar_for(qtbot, state, START + 1)
    assert bar.job.isVisible()
    assert not bar.cancel.isVisible()


def test_cancelling_the_request_of_a_benchmark_stops_it():
    state, sent = state_with(CPU), list[Command]()
    run(state, 3, "cpu")
    controller = controller_of(state, sent)
    controller.cancel(3)
    controller.cancel(4)
    assert sent == [StopBenchmark(run=3), Cancel(job=4)]


def test_in_a_narrow_window_no_text_is_cut_short(qtbot: QtBot):
    """At 1000x650 three texts were: the versions, CUDA_VISIBLE_DEVICES and Undo."""
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    state.apply(UndoState(title="the move of mlp to vgpu:0", kept_bytes=0, budget_bytes=0))
    run(state, 3, "vgpu:0", 660.0)
    bar = bar_for(qtbot, state, START + 10)
    for width in (1200, 820):
        bar.resize(width, 26)
        QApplication.processEvents()
        assert all("…" not in label.text() for label in (bar.engine, bar.versions, bar.job, bar.undo))
        assert "CUDA_VISIBLE_DEVICES unset" in bar.versions.toolTip()
