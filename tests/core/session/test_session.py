"""Restart, rebuild and giving up, with a fake engine."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.records import (
    Answer,
    BuildModel,
    Command,
    DeviceInfo,
    EngineDevices,
    EngineLost,
    EngineReady,
    Event,
    JobEnded,
    Log,
    Move,
    Moved,
    MoveReport,
    NewTensor,
    ObjectChanged,
    ObjectSnapshot,
    Rebuilt,
    Redid,
    Redo,
    Remove,
    Undid,
    Undo,
)
from devexplorer.core.session.background import install_hooks
from devexplorer.core.session.session import RESTARTS, Session
from devexplorer.core.session.state import State

TWO = tuple(
    DeviceInfo(id=f"vgpu:{at}", kind="virtual", name="Tesla T4", uuid=f"VGPU-{at}-tesla-t4", simulated=True)
    for at in (0, 1)
)
READY = EngineReady(
    pid=1, python_version="3", torch_version="2", cuda_version=None, cuda_available=False, cuda_device_count=0,
    cuda_visible_devices=None, threads=2, virtual_unavailable=None, recipes={},
)  # fmt: skip


class PlayedEngine:
    """Records commands; the test sends its events."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self.put = put
        self.sent: list[Command] = []
        self.started = self.closed = False

    def start(self) -> None:
        self.started = True

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def kill(self) -> None:
        self.put(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=0))

    def close(self) -> None:
        self.closed = True

    def join(self, deadline_s: float) -> bool:
        return True

    def beat(self) -> None:
        pass


class Stage:
    """A session, the engines it made, and a clock."""

    def __init__(self) -> None:
        self.engines: list[PlayedEngine] = []
        self.visible: list[str | None] = []
        self.pythons: list[str | None] = []
        self.now = 1000.0
        self.session = Session(make_engine=self._make, nvml=Nvml(), clock=lambda: self.now)

    def _make(
        self, put: Callable[[Event], None], spec: str | None, visible: str | None, *, python: str | None = None
    ) -> PlayedEngine:
        self.engines.append(PlayedEngine(put))
        self.visible.append(visible)
        self.pythons.append(python)
        return self.engines[-1]

    @property
    def engine(self) -> PlayedEngine:
        return self.engines[-1]

    def say(self, *events: Event) -> list[Event]:
        for event in events:
            self.engine.put(event)
        return self.session.drain().events

    def acknowledge(self, command: Command, name: str | None = None, *, ok: bool = True) -> list[Event]:
        request = command.request
        events: list[Event] = []
        if name is not None:
            snapshot = ObjectSnapshot(
                name=name, kind="model", type="MLP", rows=(), bytes_by_device={}, tensors_by_device={}
            )
            events.append(ObjectChanged(request=request, snapshot=snapshot))
        return self.say(*events, JobEnded(request=request, ok=ok, time_unix_s=0))


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.say(READY)
    return stage


def test_after_a_death_the_workspace_is_made_again(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.session.send(Move(targets=("mlp",), device="vgpu:1"))
    stage.acknowledge(stage.engine.sent[1])
    stage.engine.kill()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert lost.will_restart
    assert len(stage.engines) == 2

    assert stage.say(READY) == [READY]
    build, moved = stage.engine.sent
    assert (build, moved) == (
        BuildModel(recipe="mlp", name="mlp", request=build.request),
        Move(targets=("mlp",), device="vgpu:1", request=moved.request),
    )
    assert stage.say(Answer(request=build.request, title="built", words="")) == [], "making things again is no news"
    stage.acknowledge(build, "mlp")
    rebuilt = stage.acknowledge(moved)[-1]
    assert rebuilt == Rebuilt(restored=("mlp",), lost=())


def test_what_fails_on_the_way_back_is_named(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    rebuilt = stage.acknowledge(stage.engine.sent[0], ok=False)[-1]
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.restored == ()
    assert "mlp" in rebuilt.lost[0]


def test_one_that_ends_the_engine_when_it_is_repeated_is_left_out(stage: Stage) -> None:
    for recipe in ("mlp", "lenet"):
        stage.session.send(BuildModel(recipe=recipe))
        stage.acknowledge(stage.engine.sent[-1], recipe)
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    stage.engine.kill()  # while it builds mlp again
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert "building mlp" in lost.reason
    stage.say(READY)
    assert [command.recipe for command in stage.engine.sent] == ["lenet"]  # type: ignore[union-attr]
    rebuilt = stage.acknowledge(stage.engine.sent[0], "lenet")[-1]
    assert rebuilt == Rebuilt(restored=("lenet",), lost=("building mlp: it ends the engine",))


def test_a_move_to_where_it_was_is_not_repeated(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    request = stage.session.send(Move(targets=("mlp",), device="cpu"))
    report = MoveReport(
        objects=("mlp",), source=("cpu",), destination="cpu", dtype=None, parameters=0, buffers=0, gradients=0,
        tensors=0, bytes=0,
        seconds=0.0, wall_seconds=0.0, gb_per_s=None, simulated=False, already_there=True,
    )  # fmt: skip
    stage.say(Moved(request=request, report=report, time_unix_s=0.0))
    stage.acknowledge(stage.engine.sent[1])
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    assert len(stage.engine.sent) == 1


def test_a_flood_is_taken_in_portions(stage: Stage) -> None:
    for number in range(1000):
        stage.engine.put(Log(level="output", text=str(number), time_unix_s=0.0))
    portions, more = [], []
    while (drained := stage.session.drain()).events:
        portions.append(len(drained.events))
        more.append(drained.more)
    assert sum(portions) == 1000
    assert max(portions) < 1000
    assert more == [True] * (len(portions) - 1) + [False]


def test_a_command_that_fits_no_frame_is_answered_and_costs_nothing(stage: Stage) -> None:
    def refuse(command: Command) -> None:
        raise BadInput("this cannot be sent to the engine: too large")

    stage.engine.send = refuse  # type: ignore[method-assign]
    stage.session.send(BuildModel(recipe="mlp"))
    (answer,) = stage.session.drain().events
    assert isinstance(answer, Answer)
    assert answer.failed


def test_the_command_that_killed_it_is_named_and_not_repeated(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="vgg16-bn"))
    stage.engine.kill()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert "building vgg16-bn" in lost.reason
    events = stage.say(READY)
    assert stage.engine.sent == []
    assert events == [READY, Rebuilt(restored=(), lost=())]


def test_one_that_dies_again_and_again_is_given_up_until_the_user_asks(stage: Stage) -> None:
    for _ in range(RESTARTS):
        stage.engine.kill()
        assert stage.session.drain().events[0].will_restart  # type: ignore[union-attr]
    stage.engine.kill()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert not lost.will_restart
    engines = len(stage.engines)
    stage.session.restart_engine()  # as the message says
    assert len(stage.engines) == engines + 1
    assert stage.engine.started
    assert isinstance(stage.say(READY)[-1], Rebuilt), "one that was started by hand is rebuilt as well"


def test_deaths_far_apart_are_no_reason_to_give_up(stage: Stage) -> None:
    for _ in range(3 * RESTARTS):
        stage.now += 60
        stage.engine.kill()
        assert stage.session.drain().events[0].will_restart  # type: ignore[union-attr]


# --- CUDA_VISIBLE_DEVICES


def ready(visible: str | None) -> EngineReady:
    return msgspec.structs.replace(READY, cuda_visible_devices=visible)


def answers(events: list[Event]) -> list[Answer]:
    return [event for event in events if isinstance(event, Answer)]


def test_another_list_of_visible_devices_takes_a_new_engine_and_is_explained(stage: Stage) -> None:
    stage.say(EngineDevices(devices=TWO))
    stage.session.set_visible_devices(" 1 ")
    assert stage.session.visible_devices == "1"
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert (lost.reason, lost.will_restart) == ("It is started again with CUDA_VISIBLE_DEVICES=1.", True)
    assert stage.visible == [None, "1"]
    assert not answers(stage.say(ready("1"))), "the devices of the new engine are not known yet"
    second = msgspec.structs.replace(TWO[1], id="vgpu:0")
    (answer,) = answers(stage.say(EngineDevices(devices=(second,))))
    facts = {fact.label: fact.value for fact in answer.facts}
    assert (facts["before"], facts["now"]) == ("unset", "1")
    assert "VGPU-1-tesla-t4" in facts["vgpu:0"]
    assert "this variable only once" in answer.words
    assert not answers(stage.say(EngineDevices(devices=(second,)))), "said once"
    stage.engine.kill()
    stage.session.drain()
    assert stage.visible == [None, "1", "1"], "one that dies comes back with the same list"


def test_the_explanation_waits_for_the_new_engine_although_the_old_one_still_says_something(stage: Stage) -> None:
    stage.say(EngineDevices(devices=TWO))
    kill, stage.engine.kill = stage.engine.kill, lambda: None  # type: ignore[method-assign]
    stage.session.set_visible_devices("0")
    assert not answers(stage.say(EngineDevices(devices=TWO))), "the old engine, whose end is not yet noticed"
    kill()
    stage.session.drain()
    (answer,) = answers(stage.say(ready("0"), EngineDevices(devices=TWO[:1])))
    assert answer.title == "CUDA_VISIBLE_DEVICES is 0"


def test_the_explanation_comes_when_everything_is_back_and_names_what_is_not(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.session.send(Move(targets=("mlp",), device="vgpu:1"))
    stage.acknowledge(stage.engine.sent[1])
    stage.session.set_visible_devices("0")
    stage.session.drain()
    assert not answers(stage.say(ready("0"), EngineDevices(devices=TWO[:1])))
    build, moved = stage.engine.sent
    assert not answers(stage.acknowledge(build, "mlp"))
    stage.say(Answer(request=moved.request, title="refused", words="There is no device 'vgpu:1' here.", failed=True))
    events = stage.acknowledge(moved, ok=False)
    rebuilt = next(event for event in events if isinstance(event, Rebuilt))
    assert rebuilt == Rebuilt(restored=("mlp",), lost=("moving mlp to vgpu:1: There is no device 'vgpu:1' here.",))
    (answer,) = answers(events)
    assert {fact.label: fact.value for fact in answer.facts}["not restored"] == rebuilt.lost[0]


def test_another_python_takes_a_new_engine_which_comes_back_in_it_with_the_workspace(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.session.set_python("/a b/.venv/bin/python")
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert (lost.reason, lost.will_restart) == ("It is started again in /a b/.venv/bin/python.", True)
    assert lost.asked
    stage.say(READY)
    assert [type(command) for command in stage.engine.sent] == [BuildModel]
    stage.engine.kill()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert not lost.asked, "that one ended by itself"
    stage.session.set_python(None)
    stage.session.drain()
    assert stage.pythons == [None, "/a b/.venv/bin/python", "/a b/.venv/bin/python", None]
    assert stage.session.python is None


def test_a_python_in_which_the_engine_cannot_start_is_not_tried_again_and_another_one_is(stage: Stage) -> None:
    stage.session.set_python("/old/python")
    stage.session.drain()
    lost = EngineLost(reason="It is Python 3.8.", will_restart=False, time_unix_s=0, cannot_start=True)
    (told,) = stage.say(lost)
    assert isinstance(told, EngineLost)
    assert (told.will_restart, told.cannot_start, len(stage.engines)) == (False, True, 2)
    state = State()
    state.apply(told)
    assert state.cannot_start
    assert state.answer is not None
    assert "Choose another one" in state.answer.words
    stage.session.set_python("/new/python")
    assert stage.pythons == [None, "/old/python", "/new/python"]
    state.apply(READY)
    assert not state.cannot_start


def test_a_choice_made_while_another_python_fails_is_not_given_up(stage: Stage) -> None:
    stage.session.set_python("/old/python")
    stage.engine.put(EngineLost(reason="Python 3.8.", will_restart=False, time_unix_s=0, cannot_start=True))
    (told, *_) = stage.session.drain().events
    assert isinstance(told, EngineLost)
    assert told.will_restart


def test_what_is_no_list_is_refused_and_the_engine_runs_on(stage: Stage) -> None:
    with pytest.raises(BadInput, match="neither a number nor a UUID"):
        stage.session.set_visible_devices("all")
    assert stage.session.drain().events == []
    assert len(stage.engines) == 1
    assert stage.session.visible_devices is None


def test_the_catalog_goes_by_the_value_of_the_engine_that_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    stage.session._devices.take_cards((Card(index=0, uuid="GPU-1", name="A10"),), ())
    stage.engine.put(ready("0"))
    stage.engine.put(EngineDevices(devices=()))
    catalog = stage.session.drain().catalog
    assert catalog is not None
    assert catalog.devices[1].reason == "hidden from the engine by CUDA_VISIBLE_DEVICES=0"


def test_a_list_that_is_chosen_after_the_engine_was_given_up_starts_one(stage: Stage) -> None:
    for _ in range(RESTARTS + 1):
        stage.engine.kill()
        stage.session.drain()
    engines = len(stage.engines)
    stage.session.set_visible_devices("")
    assert (len(stage.engines), stage.visible[-1]) == (engines + 1, "")


def test_a_second_choice_while_the_first_one_starts_is_the_one_that_counts(stage: Stage) -> None:
    stage.session.set_visible_devices("0")
    stage.session.drain()
    starting = stage.engine
    # there is no process yet that could be ended
    kill, starting.kill = starting.kill, lambda: None  # type: ignore[method-assign]
    stage.session.set_visible_devices("1")
    starting.kill = kill  # type: ignore[method-assign]
    stage.say(ready("0"))
    stage.session.drain()
    assert stage.visible == [None, "0", "1"]
    (answer,) = answers(stage.say(ready("1"), EngineDevices(devices=TWO)))
    assert answer.title == "CUDA_VISIBLE_DEVICES is 1"


def test_an_engine_that_is_ended_on_purpose_while_it_rebuilds_blames_nothing(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    stage.session.set_visible_devices("0")
    stage.session.drain()
    stage.say(ready("0"))
    rebuilt = stage.acknowledge(stage.engine.sent[0], "mlp")[-1]
    assert rebuilt == Rebuilt(restored=("mlp",), lost=())


def test_what_was_undone_is_not_made_again_and_what_was_redone_is(stage: Stage) -> None:
    for command in (
        BuildModel(recipe="mlp", name="mlp"),
        Move(targets=("mlp",), device="vgpu:0"),
        Move(targets=("mlp:0",), device="vgpu:1"),
    ):
        stage.session.send(command)
        stage.say(Answer(request=stage.engine.sent[-1].request, title=type(command).__name__, words="", code="pass"))
        stage.acknowledge(stage.engine.sent[-1], "mlp" if isinstance(command, BuildModel) else None)
    _, first, second = stage.engine.sent
    for undone in (second, first):
        request = stage.session.send(Undo())
        stage.say(Undid(request=request, of=undone.request), Answer(request=request, title="Undone", words=""))
        stage.acknowledge(stage.engine.sent[-1])
    assert [action.title for action in stage.session.actions] == ["BuildModel"]
    request = stage.session.send(Redo())
    stage.say(Redid(request=request, command=msgspec.structs.replace(first, request=request)))
    stage.say(Answer(request=request, title="Move again", words="", code="pass"))
    stage.acknowledge(stage.engine.sent[-1])
    assert [action.title for action in stage.session.actions] == ["BuildModel", "Move again"]

    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    assert [type(command) for command in stage.engine.sent] == [BuildModel, Move]
    build, again = stage.engine.sent
    assert again == msgspec.structs.replace(first, request=again.request)
    stage.acknowledge(build, "mlp")
    stage.acknowledge(again)
    request = stage.session.send(Undo())
    stage.say(Undid(request=request, of=again.request))
    assert [action.title for action in stage.session.actions] == ["BuildModel"], (
        "an Undo after the rebuild finds what it takes back"
    )


def test_a_model_that_was_made_and_removed_again_was_not_restored(stage: Stage) -> None:
    for command in (BuildModel(recipe="mlp", name="mlp"), Remove(names=("mlp",))):
        stage.session.send(command)
        stage.acknowledge(stage.engine.sent[-1], "mlp" if isinstance(command, BuildModel) else None)
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    build, remove = stage.engine.sent
    stage.acknowledge(build, "mlp")
    assert stage.acknowledge(remove)[-1] == Rebuilt(restored=(), lost=())


def test_the_session_as_python_names_what_it_ran_on(stage: Stage) -> None:
    stage.session.send(NewTensor(name="x"))
    request = stage.engine.sent[-1].request
    stage.say(
        Answer(request=request, title="x is on cpu", words="A tensor.", code="x = torch.ones(())", time_unix_s=5.0)
    )
    stage.acknowledge(stage.engine.sent[-1], "x")
    (action,) = stage.session.actions
    assert (action.title, action.words, action.code, action.time_unix_s) == (
        "x is on cpu",
        "A tensor.",
        "x = torch.ones(())",
        5.0,
    )
    around = stage.session.surroundings
    assert (around.python_version, around.torch_version) == ("3", "2")


@pytest.mark.parametrize("beside", [None, "this process can use cuda:0"])
def test_the_session_has_the_virtual_gpus_that_the_engine_was_started_with_where_it_has_them(
    beside: str | None,
) -> None:
    engines: list[PlayedEngine] = []

    def make(put: Callable[[Event], None], *_: object, **__: object) -> PlayedEngine:
        engines.append(PlayedEngine(put))
        return engines[-1]

    session = Session(virtual_spec="2x Tesla T4", make_engine=make, nvml=Nvml())
    engines[-1].put(msgspec.structs.replace(READY, virtual_beside=beside))
    session.drain()
    assert session.surroundings.virtual_spec == ("2x Tesla T4" if beside is None else None)
    assert session.close()


def test_restart_engine_is_no_failure_and_names_no_signal(stage: Stage) -> None:
    stage.say(READY)
    stage.session.restart_engine()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert (lost.asked, lost.will_restart) == (True, True)
    assert "killed" not in lost.reason
    state = State()
    state.apply(lost)
    assert state.answer is not None
    assert (state.answer.failed, state.log[-1].level) == (False, "info")


def test_a_command_that_hangs_in_every_rebuild_is_left_out_when_the_user_restarts_the_engine(stage: Stage) -> None:
    stage.say(READY)
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    stage.engine.kill()
    stage.session.drain()
    stage.say(READY)
    assert stage.session._rebuild.running
    stage.session.restart_engine()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert "it is left out from now on" in lost.reason


def test_an_uncaught_error_is_a_line_that_says_what_it_was() -> None:
    lines: list[Event] = []
    restore = install_hooks(lines.append)
    error = ValueError("no such row\nmore about it")
    try:
        sys.excepthook(ValueError, error, None)
    finally:
        restore()
    (line,) = lines
    assert isinstance(line, Log)
    assert line.text.splitlines()[0] == "unexpected error in the window: ValueError: no such row"
