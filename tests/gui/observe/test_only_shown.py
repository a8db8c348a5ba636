"""A script is only shown: what would change it is disabled and says why; and when it has ended, what was seen stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hosts import READY
from fakes.look_records import mlp
from fakes.recordings import CARDS, CPU
from fakes.two_machines import FarWayFake, TwoMachines
from msgspec.structs import replace
from PySide6.QtWidgets import QApplication

from devexplorer.core.base import Message
from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.core.observe.live import ScriptState
from devexplorer.core.observe.records import ScriptPlacement, ScriptSteps, StepMemory, WhatHolds
from devexplorer.core.planner.records import (
    Fit,
    FitBytes,
    FitCard,
    FitPlanned,
    FitReport,
    FitSpec,
    MeasuredPeak,
    PlanFit,
)
from devexplorer.core.records import (
    Answer,
    Check,
    Checked,
    Diagnosis,
    EngineDevices,
    Finding,
    JobEnded,
    JobStarted,
    Move,
    ObjectChanged,
    Unchecked,
    Undo,
)
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.doctor.page import ABOUT_SCRIPT
from devexplorer.gui.doctor.tab import TAB as DOCTOR
from devexplorer.gui.fit.page import OF_SCRIPT
from devexplorer.gui.fit.tab import TAB as FIT
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.memory.tab import TAB as MEMORY
from devexplorer.gui.observe.tab import TAB

WORDS = "The script runs on its own, and this window only shows it"
REASON = f"{WORDS}."
CHANGES = (
    "new_tensor", "add_two_virtual", "add_virtual", "threads", "visible_devices", "restart", "python", "open_model",
    "load_tensors", "save_workspace", "save_workspace_as", "undo", "redo", "forward", "backward", "train_step", "cast",
    "benchmark", "tour", "guided", "remove", "save",
)  # fmt: skip
"""Actions that send something to an engine, as far as there are such."""


@pytest.fixture
def two(qapp: QApplication, tmp_path: Path) -> Iterator[TwoMachines]:
    made = TwoMachines(qapp, tmp_path)
    yield made
    made.end()


@pytest.fixture
def script(two: TwoMachines) -> FarMachine:
    """A script with a model, and shown."""
    two.go_live()
    room = room_of(two.window.context)
    room.join("train.py", FarWayFake(two.route, "", ""))
    assert two.app.heartbeat is not None
    two.app.heartbeat.stop()
    (machine,) = room.others
    two.until(lambda: two.window.context.machine is machine and machine.session.link.holder is None)
    two.host.say(replace(READY, read_only=WORDS), ObjectChanged(snapshot=mlp()))
    two.host.say(ScriptSteps(time_unix_s=1000.0, steps=3, steps_per_second=2.0, phases={"forward": 0.1}))
    two.until(lambda: two.state.away == REASON and two.state.objects)
    return machine


def test_every_action_that_would_change_it_says_why_not(two: TwoMachines, script: FarMachine) -> None:
    window = two.window
    window.objects.select("mlp")
    two.until(lambda: window.objects.selected_targets() == ("mlp",))
    actions = window.actions_by_id
    found = [action for action in CHANGES if action in actions]
    assert len(found) > 17
    enabled = {action: actions[action].toolTip() for action in found if actions[action].isEnabled()}
    assert enabled == {}
    others = {action: actions[action].toolTip() for action in found if actions[action].toolTip() != REASON}
    assert others == {}
    for name in ("build", "move", "copy", "cast"):
        button = window.toolbar.buttons[name]
        assert (button.isEnabled(), button.toolTip()) == (False, REASON), name
    controller = two.app.controller
    assert (controller.why_no_move(), controller.why_no_undo()) == (REASON, REASON)
    memory = MEMORY.show(window.context)
    for button in (memory.release, memory.restart, memory.record):
        assert (button.isEnabled(), button.toolTip()) == (False, REASON)
    page = BENCHMARK.show(window.context)
    assert not page.matmul.start_button.isEnabled()
    assert page.matmul.start_button.toolTip() == REASON


def test_a_script_that_allows_moves_has_them_and_nothing_else(two: TwoMachines, script: FarMachine) -> None:
    two.host.say(EngineDevices(devices=(CPU, *CARDS)), replace(READY, read_only=WORDS, moves=True))
    window, controller = two.window, two.app.controller
    window.objects.select("mlp")
    two.until(lambda: controller.why_no_move() is None and window.toolbar.buttons["move"].isEnabled())
    assert (controller.why_no_engine(), window.toolbar.buttons["copy"].isEnabled()) == (REASON, False)
    controller.move("cpu")
    two.until(lambda: any(isinstance(command, Move) for command in two.host.engine.sent))
    assert two.host.engine.sent[-1].targets == ("mlp",)


def test_what_is_sent_all_the_same_is_answered_and_does_not_arrive(two: TwoMachines, script: FarMachine) -> None:
    sent = len(two.host.engine.sent)
    assert script.session.send(Undo()) == 0
    script.session.restart_engine()
    two.until(lambda: two.state.answer is not None and two.state.answer.title == "The engine was not restarted")
    assert two.state.answer is not None
    assert two.state.answer.words == REASON
    assert len(two.host.engine.sent) == sent
    assert len(two.host.engines) == 1


def test_what_changes_nothing_can_be_asked(two: TwoMachines, script: FarMachine) -> None:
    action = two.window.actions_by_id["held_by"]
    two.window.objects.select("mlp")
    two.until(lambda: two.window.objects.selected_targets() == ("mlp",) and action.isEnabled())
    action.trigger()
    two.until(lambda: any(isinstance(command, WhatHolds) for command in two.host.engine.sent))
    assert two.host.engine.sent[-1].target == "mlp"
    page = TAB.show(two.window.context)
    two.window.workbench.show_layout("monitor")
    for button, command in ((page.memory, StepMemory), (page.placement, ScriptPlacement)):
        two.click(button)
        two.until(lambda command=command: isinstance(two.host.engine.sent[-1], command))
    assert two.window.workbench.shows("inspector"), "which has the answers"
    two.host.server.end("train.py has ended.", for_good=True)
    two.until(lambda: not action.isEnabled())
    assert action.toolTip() == page.memory.toolTip() == "train.py has ended."


def test_fit_is_asked_of_the_script_and_shows_the_prediction_beside_the_measured_peak(
    two: TwoMachines, script: FarMachine
) -> None:
    page = FIT.show(two.window.context)
    assert page.is_folded, "the script itself knows what it does"
    assert page.empty.sentence.text() == OF_SCRIPT
    two.click(TAB.show(two.window.context).fit)
    two.until(lambda: any(isinstance(one, PlanFit) for one in two.host.engine.sent))
    assert FIT.show(two.window.context).isVisible()
    command = two.host.engine.sent[-1]
    peak = MeasuredPeak(device="cuda:0", name="Tesla T4", predicted_bytes=98, measured_bytes=100, simulated=True)
    spec = FitSpec(source="train.py", train=True, batch=8, optimizer="RMSprop")
    fit = Fit(
        gpu="Tesla T4",
        fits=True,
        cards=(FitCard(gpu="Tesla T4", capacity_bytes=1 << 34, bytes=FitBytes(), reserved_bytes=0, fits=True),),
        largest_batch=64,
    )
    two.host.say(
        JobStarted(request=command.request, title="checking", time_unix_s=0.0, command=command),
        FitPlanned(target="", report=FitReport(spec=spec, fits=(fit,), measured=(peak,), assumptions=("Predicted.",))),
        Answer(title="train.py fits 1 of 1 cards", words="", request=command.request),
        JobEnded(request=command.request, ok=True, time_unix_s=0.0),
    )
    two.until(lambda: page.table.selected_key == "Tesla T4")
    assert page.caption.full_text == (
        "train.py fits Tesla T4 (simulated): training with RMSprop, batch 8, cuda:0 (simulated): 98 B predicted, 100 B"
        " measured (-2.0 %)"
    )
    assert page.details.rests.text() == "• Predicted."
    assert page.details.helps.isHidden()
    assert page.start_button.isEnabled()
    two.host.server.end("train.py has ended.", for_good=True)
    two.until(lambda: not page.start_button.isEnabled())
    assert page.start_button.toolTip() == "train.py has ended."


def test_the_doctor_looks_at_the_model_of_a_script_and_lists_what_it_found(
    two: TwoMachines, script: FarMachine
) -> None:
    window = two.window
    page = DOCTOR.show(window.context)
    two.click(TAB.show(window.context).doctor)
    two.until(lambda: any(isinstance(one, Check) for one in two.host.engine.sent))
    command = two.host.engine.sent[-1]
    assert (command.target, command.device) == ("mlp", "")
    finding = Finding(
        rule="hidden-sync", path="", file="/train.py", line=3, message=Message(".item()"), fix=Message("Less often.")
    )
    left = Unchecked(what="the forward", reason=Message("the script runs it itself."))
    two.host.say(
        JobStarted(request=command.request, title="checking", time_unix_s=0.0, command=command),
        Checked(target="mlp", diagnosis=Diagnosis(target="mlp", device="cpu", problems=(finding,), unchecked=(left,))),
        Answer(title="mlp: 1 error", words="", request=command.request),
        JobEnded(request=command.request, ok=True, time_unix_s=0.0),
    )
    two.until(lambda: len(page.model.rows) == 2)
    assert [row.cells[0].text for row in page.model.rows] == ["✕ error", "○ not checked"]
    assert page.form.hint.text() == ABOUT_SCRIPT
    assert not page.form.inputs.isEnabled(), "the script has inputs"
    window.objects.select("mlp")
    two.until(lambda: window.actions_by_id["check"].isEnabled() and page.form.check_button.isEnabled())
    two.host.server.end("train.py has ended.", for_good=True)
    two.until(lambda: not page.form.check_button.isEnabled())
    assert window.actions_by_id["check"].toolTip() == "train.py has ended."


def test_who_controls_it_is_of_no_interest(two: TwoMachines, script: FarMachine) -> None:
    bar = two.window.context.others.bar  # type: ignore[attr-defined]
    assert script.link.holder is None
    assert not bar.isVisible()
    assert two.window.actions_by_id["take_over"].toolTip() == "This window controls what it shows."


def test_when_it_has_ended_that_is_said_and_what_was_seen_stays(two: TwoMachines, script: FarMachine) -> None:
    window, room = two.window, room_of(two.window.context)
    bar = window.context.others.bar  # type: ignore[attr-defined]
    two.host.server.end("train.py has ended.", for_good=True)
    two.until(lambda: script.link.ended)
    assert bar.isVisible()
    assert bar.words.full_text.startswith("train.py has ended. What was seen of it stays here.")
    assert list(two.state.objects) == ["mlp"]
    assert len(two.state.part(ScriptState).steps) == 1
    assert two.state.engine is not None
    assert window.actions_by_id["new_tensor"].toolTip() == "train.py has ended."
    assert (script.link.state, window.toolbar.buttons["machine"].text().strip()[0]) == ("lost", "■")
    reconnect = window.actions_by_id["reconnect"]
    assert (reconnect.isEnabled(), reconnect.toolTip()) == (False, "train.py has ended.")
    asked = two.route.attempts
    script.session.reconnect()
    assert two.route.attempts == asked, "a new look at nothing would take away what was seen"
    assert window.status.machine.full_text.startswith("train.py: ended")
    assert bar.button.text() == "Remove"
    two.click(bar.button)
    assert [machine.name for machine in room.machines] == ["this machine"]
