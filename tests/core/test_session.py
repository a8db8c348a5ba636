"""Restart, rebuild and giving up, with an engine that is played by the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.errors import BadInput
from devexplorer.core.records.messages import (
    Answer,
    BuildModel,
    Command,
    EngineLost,
    EngineReady,
    Event,
    JobEnded,
    Log,
    Move,
    Moved,
    ObjectChanged,
    Rebuilt,
)
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot
from devexplorer.core.session import RESTARTS, Session

READY = EngineReady(
    pid=1, python_version="3", torch_version="2", cuda_version=None, cuda_available=False, cuda_device_count=0,
    cuda_visible_devices=None, threads=2, virtual_unavailable=None, recipes={},
)  # fmt: skip


class PlayedEngine:
    """Remembers what it was sent; the test says its lines."""

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


class Stage:
    """A session, the engines it made, and a clock."""

    def __init__(self) -> None:
        self.engines: list[PlayedEngine] = []
        self.now = 1000.0
        self.session = Session(make_engine=self._make, nvml=Nvml(), clock=lambda: self.now)

    def _make(self, put: Callable[[Event], None], spec: str | None) -> PlayedEngine:
        self.engines.append(PlayedEngine(put))
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
            snapshot = ObjectSnapshot(name=name, kind="model", type="MLP", rows=(), bytes_by_device={}, tensors_by_device={})
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
    assert "buildmodel mlp" in lost.reason
    stage.say(READY)
    assert [command.recipe for command in stage.engine.sent] == ["lenet"]  # type: ignore[union-attr]
    rebuilt = stage.acknowledge(stage.engine.sent[0], "lenet")[-1]
    assert rebuilt == Rebuilt(restored=("lenet",), lost=("buildmodel mlp: it ends the engine",))


def test_a_move_to_where_it_was_is_not_repeated(stage: Stage) -> None:
    stage.session.send(BuildModel(recipe="mlp"))
    stage.acknowledge(stage.engine.sent[0], "mlp")
    request = stage.session.send(Move(targets=("mlp",), device="cpu"))
    report = MoveReport(
        objects=("mlp",), source=("cpu",), destination="cpu", dtype=None, parameters=0, buffers=0, gradients=0, tensors=0, bytes=0,
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
    portions = []
    while events := stage.session.drain().events:
        portions.append(len(events))
    assert sum(portions) == 1000
    assert max(portions) < 1000


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
    assert "buildmodel vgg16-bn" in lost.reason
    events = stage.say(READY)
    assert stage.engine.sent == []
    assert events == [READY, Rebuilt(restored=(), lost=())]


def test_one_that_dies_again_and_again_is_given_up_until_somebody_asks(stage: Stage) -> None:
    for _ in range(RESTARTS):
        stage.engine.kill()
        assert stage.session.drain().events[0].will_restart  # type: ignore[union-attr]
    stage.engine.kill()
    (lost,) = stage.session.drain().events
    assert isinstance(lost, EngineLost)
    assert not lost.will_restart
    engines = len(stage.engines)
    stage.session.start_engine_again()
    assert len(stage.engines) == engines + 1
    assert stage.engine.started
    assert isinstance(stage.say(READY)[-1], Rebuilt), "one that was started by hand is rebuilt as well"


def test_deaths_far_apart_are_no_reason_to_give_up(stage: Stage) -> None:
    for _ in range(3 * RESTARTS):
        stage.now += 60
        stage.engine.kill()
        assert stage.session.drain().events[0].will_restart  # type: ignore[union-attr]
