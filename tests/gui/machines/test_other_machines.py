"""Another machine in the window: shown and left, what goes on unseen, a link that breaks."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hosts import WindowHere
from fakes.two_machines import FarWayFake, TwoMachines
from PySide6.QtWidgets import QApplication, QDialog

from devexplorer.core.base import left_text
from devexplorer.core.files.records import OpenWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.records import Control
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.records import (
    Answer,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceSample,
    JobEnded,
    Log,
    MatmulSpec,
    ObjectChanged,
    ObjectSnapshot,
    UndoState,
)
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.files.actions import save_session
from devexplorer.gui.files.recent import recent_files
from devexplorer.gui.history.room import history_of
from devexplorer.gui.machines.actions import begin_there
from devexplorer.gui.machines.approach import ConnectDialog
from devexplorer.gui.machines.room import room_of

AGAIN = OpenWorkspace(path="/there/work.devexplorer")


@pytest.fixture
def two(qapp: QApplication, tmp_path: Path) -> Iterator[TwoMachines]:
    made = TwoMachines(qapp, tmp_path)
    yield made
    made.end()


def tensor(name: str) -> ObjectChanged:
    snapshot = ObjectSnapshot(
        name=name, kind="tensor", type="Tensor", rows=(), bytes_by_device={"cpu": 4}, tensors_by_device={"cpu": 1}
    )
    return ObjectChanged(snapshot=snapshot)


def test_each_machine_keeps_what_is_its_own(two: TwoMachines, tmp_path: Path) -> None:
    two.go_live()
    two.app.session.put(tensor("here"))  # type: ignore[attr-defined]
    two.until(lambda: "here" in two.state.objects and two.state.devices)
    two.window.axis.set_span(600.0)
    machines, context = room_of(two.window.context), two.window.context
    here, far = machines.here, two.add()
    two.host.say(tensor("there"), Log(level="error", text="an old error", time_unix_s=1.0))
    two.until(lambda: far.aside.log)
    shown: list[object] = []
    context.machine_shown.connect(shown.append)
    assert list(two.state.objects) == ["here"]

    machines.show(far)
    two.until(lambda: list(two.state.objects) == ["there"])
    assert shown == [far]
    assert (context.machine, context.session) == (far, far.session)
    assert history_of(context).source is far.history
    assert context.far is not None
    assert context.far.name == "forge"
    assert two.window.windowTitle() == "DevExplorer on forge[*]"
    assert two.window.status.machine.full_text.startswith("forge: connected")
    assert not two.window.banner.isVisible(), "the error is not news"
    two.app.controller.build("mlp")
    two.until(lambda: two.host.engine.sent)
    assert two.engine is not None
    assert two.engine.sent == []
    before = len(here.aside.devices["cpu"].history)
    two.until(lambda: len(here.aside.devices["cpu"].history) > before)
    two.window.axis.set_span(30.0)

    path = tmp_path / "session.py"
    save_session(context, path)
    two.until(path.exists)
    assert "A session of DevExplorer" in path.read_text()

    machines.show(here)
    two.until(lambda: list(two.state.objects) == ["here"])
    assert (context.far, two.window.windowTitle(), two.window.status.machine.isVisible()) == (
        None,
        "DevExplorer[*]",
        False,
    )
    assert two.window.axis.span_s == 600.0
    assert two.app.session is not None
    assert history_of(context).source is two.app.session.listener("history")
    two.host.say(tensor("more"))
    two.until(lambda: "more" in far.aside.objects)
    machines.show(far)
    two.until(lambda: list(two.state.objects) == ["there", "more"])
    assert two.window.axis.span_s == 30.0
    machines.leave(far)
    assert list(two.state.objects) == ["here"]
    assert machines.machines == (here,)
    two.until(lambda: not two.host.server.connected)


def test_a_broken_link_never_looks_live(two: TwoMachines) -> None:
    two.go_live()
    far = two.add()
    room_of(two.window.context).show(far)
    two.until(lambda: two.state.engine is not None)
    two.host.say(DeviceSample(device="cpu", time_unix_s=time.time(), utilization_percent=5.0))
    two.until(lambda: two.state.devices["cpu"].sample)
    bar, action = two.window.context.others.bar, two.window.actions_by_id["new_tensor"]  # type: ignore[attr-defined]
    assert not bar.isVisible()
    assert action.isEnabled()

    two.route.refuse = CannotReach("no route to host")
    two.route.link.cut()
    two.until(lambda: far.link.state == "reconnecting" and far.link.reason == "no route to host")
    assert bar.isVisible()
    assert bar.words.full_text.startswith("Reconnecting to forge: no route to host. ")
    assert two.window.devices.subtitle.endswith(" s ago")
    assert two.window.devices.veil.isVisible()
    two.window.workbench.show_layout("monitor")
    two.until(two.window.workbench.cards.veil.isVisible)
    two.window.workbench.show_layout("explore")
    assert not action.isEnabled()
    assert action.toolTip() == "forge is being reconnected; wait a moment."
    stands = two.window.axis.now_unix_s
    assert "now" not in [text for _, text in two.window.axis.ticks(600.0)]
    note = two.window.memory.plot.time_note
    assert note.isVisible()
    assert note.text().endswith(" s ago")
    two.until(lambda: time.time() > stands + 0.1)
    assert two.window.axis.now_unix_s == stands
    assert "forge: reconnecting" in two.window.status.machine.full_text

    two.route.refuse = None
    two.click(bar.button)
    two.until(lambda: far.link.live and not two.state.away)
    assert not bar.isVisible()
    assert action.isEnabled()
    assert not two.window.devices.veil.isVisible()
    assert two.window.devices.subtitle == ""
    assert two.window.axis.now_unix_s > stands
    assert "now" in [text for _, text in two.window.axis.ticks(600.0)]
    assert "ago" not in note.text()


def test_a_window_that_watches_can_take_over(two: TwoMachines) -> None:
    other = WindowHere(two.host, "bob@desk")
    other.connect()
    other.wait_for(Control)
    two.go_live()
    machines = room_of(two.window.context)
    far = machines.add("forge", two.route)
    machines.show(far)
    two.until(lambda: far.link.watching and two.state.away)
    bar = two.window.context.others.bar  # type: ignore[attr-defined]
    assert bar.words.full_text == "bob@desk controls forge; this window watches."
    two.click(bar.button)
    two.until(lambda: not far.link.watching and not two.state.away)
    assert not bar.isVisible()
    other.close()


def test_a_window_for_another_machine_alone_starts_nothing_here(two: TwoMachines) -> None:
    machines = room_of(two.window.context)
    far = two.add()
    machines.show(far)
    two.until(lambda: two.state.engine is not None)
    assert two.engine is None
    assert two.app.leaving.may_close(), "what runs there goes on"
    machines.show(machines.here)
    two.until(lambda: two.state.engine is not None)
    assert two.engine is not None


def begin(two: TwoMachines, python: str | None = None) -> None:
    """As a window that was opened on another machine."""
    two.app.shown.follow_all()
    begin_there(two.window.context, Namespace(ssh="forge", python=python))


@pytest.mark.parametrize("switched", [False, True])
def test_a_window_that_could_not_connect_offers_this_machine(
    two: TwoMachines, monkeypatch: pytest.MonkeyPatch, switched: bool
) -> None:
    room, app = room_of(two.window.context), two.app
    monkeypatch.setattr(room, "make_way", lambda host, python: FarWayFake(two.route, host, python))
    two.route.refuse = CannotReach("no route to host", final=True)
    begin(two, "/their/python")
    assert app.heartbeat is not None
    app.heartbeat.stop()
    two.until(lambda: two.route.attempts)
    assert two.window.objects.empty.sentence.text().startswith("No machine is shown yet"), "no engine is starting"
    (dialog,) = two.window.findChildren(ConnectDialog)
    dialog.reject()
    two.until(two.window.banner.isVisible)
    assert two.window.banner.words.full_text.startswith("No machine is shown")
    assert two.window.status.engine.full_text == "○ engine: not started"
    assert two.engine is None
    if switched:
        room_of(two.window.context).show(app.shown.here)
    else:
        two.click(two.window.banner.action_button)
    assert not two.window.banner.isVisible()
    two.until(lambda: two.state.engine is not None)
    assert two.engine is not None
    assert two.window.status.engine.full_text == "● engine ready"


def test_a_window_is_opened_on_another_machine_alone(two: TwoMachines, monkeypatch: pytest.MonkeyPatch) -> None:
    room, app = room_of(two.window.context), two.app
    monkeypatch.setattr(room, "make_way", lambda host, python: FarWayFake(two.route, host, python))
    two.route.free.clear()
    begin(two)
    assert app.heartbeat is not None
    app.heartbeat.stop()
    app.heartbeat.tick()
    assert two.window.status.engine.full_text == "○ connecting to forge"
    two.route.free.set()
    two.until(lambda: two.state.engine is not None and not two.state.away)
    assert app.shown.machine.name == "forge"
    assert two.engine is None
    assert [one.host for one in two.window.context.settings.machines] == ["forge"]


def test_the_time_left_of_a_benchmark_stands_still_while_nothing_comes(
    two: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.go_live()
    far = two.add()
    room_of(two.window.context).show(far)
    two.until(lambda: two.state.engine is not None)
    spec = MatmulSpec(device="cpu", dtype="float32", m=8, n=8, k=8, seconds=3600.0)
    two.host.say(
        BenchPreparing(run=9, spec=spec, simulated=False),
        BenchStarted(run=9, time_unix_s=two.host.now),
        BenchPoint(run=9, device="cpu", time_unix_s=two.host.now, tflops=1.0, done=0.5),
        DeviceSample(device="cpu", time_unix_s=two.host.now, utilization_percent=5.0),
    )
    page = two.window.context.show_tab("benchmark")
    assert isinstance(page, BenchmarkPanel)
    two.until(lambda: two.state.active_runs and two.state.devices["cpu"].sample)
    two.route.refuse = CannotReach("no route to host")
    two.route.link.cut()
    two.until(lambda: far.link.state == "reconnecting" and two.window.context.age)
    began = two.state.active_runs[0].started_unix_s
    assert began is not None
    frozen = far.now()
    monkeypatch.setattr(far.session, "_clock", lambda: frozen + 1000)
    monkeypatch.setattr(time, "time", lambda: frozen + 1000)
    two.state.runs[9].started_unix_s = frozen - 60
    two.window.refresh_texts()
    page.page.refresh()
    for words in (two.window.status.job.full_text, page.page.hint.full_text):
        assert words.endswith(f", {left_text(60)} as of {two.window.context.age}")


def test_what_was_opened_and_done_there_before_does_not_happen_again_here(two: TwoMachines) -> None:
    two.go_live()
    two.until(lambda: two.state.devices)
    far = two.add()
    command_ended = [
        WorkspaceFile(path="/there/work.devexplorer", opened=True, layout='{"span_s": 30.0}', again=AGAIN),
        UndoState(title=None, kept_bytes=0),
        Answer(title="done", words="", time_unix_s=1.0),
        JobEnded(ok=True, time_unix_s=1.0),
    ]
    two.host.say(*command_ended)
    two.until(lambda: far.aside.part(FilesState).workspace_file is not None)
    two.window.axis.set_span(600.0)
    room_of(two.window.context).show(far)
    two.until(lambda: two.state.engine is not None)
    assert two.window.windowTitle() == "DevExplorer on forge: work.devexplorer[*]"
    assert two.window.axis.span_s == 600.0, "the layout of a file that was opened before"
    assert recent_files(two.window.context) == ()


def test_dialogs_name_the_machine_that_they_are_about(two: TwoMachines) -> None:
    two.go_live()
    two.until(lambda: two.state.engine is not None)
    far, window = two.add(), two.window

    def titles() -> list[str]:
        found = []
        for name in ("new_tensor", "add_virtual", "open_model", "load", "threads", "visible", "python"):
            window.actions_by_id[name].trigger()
            (dialog,) = [one for one in window.findChildren(QDialog) if one.isVisible()]
            found.append(dialog.windowTitle())
            dialog.reject()
            two.until(lambda: not [one for one in window.findChildren(QDialog) if one.isVisible()])
        return found

    two.until(lambda: two.state.devices)
    here = titles()
    assert not [title for title in here if " on " in title]
    room_of(window.context).show(far)
    two.until(lambda: two.state.engine is not None and not two.state.away)
    assert titles() == [f"{title} on forge" for title in here]
