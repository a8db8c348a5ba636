"""Every command has one specification; a new command needs only its record, handler and spec."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.commands.registry import REGISTRY, CommandSpec, refused_title, spec_of
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.engine import Engine
from devexplorer.core.feature import command_types
from devexplorer.core.recording.replay import ReplaySession
from devexplorer.core.records import Answer, BaseCommand, EngineLost, Event, JobEnded, NewTensor, Rebuilt, Undo
from devexplorer.core.session.session import Session
from devexplorer.core.session.state import State
from devexplorer.core.workspace.changes import CommandResult, ObjectChange, Undone
from devexplorer.core.workspace.workspace import Workspace

DEADLINE_S = 30.0


def test_every_command_has_exactly_one_specification() -> None:
    assert set(command_types()) == set(REGISTRY)
    assert len(command_types()) == len(REGISTRY)


def test_every_handler_is_there_and_takes_its_command() -> None:
    for spec in REGISTRY.values():
        if spec.handler:
            _, command, _ = inspect.signature(spec.resolve()).parameters.values()
            assert spec.record.__name__ in [name.rpartition(".")[2] for name in str(command.annotation).split(" | ")]


def test_what_the_window_reads_of_it_needs_no_torch() -> None:
    code = "import sys; import devexplorer.core.commands.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_only_an_answer_to_what_was_cancelled_says_so() -> None:
    assert refusal(Cancelled("the user ended it"), Undo()).cancelled
    assert not refusal(BadInput("cancelled; this word means nothing here"), Undo()).cancelled


class Double(BaseCommand, tag="Double"):
    """Double a tensor."""

    target: str


class Halved(ObjectChange):
    """A doubling that can be undone."""

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        workspace.tensor_named(self.name).div_(2)
        return Undone(touched=self.names)


def double(workspace: Workspace, command: Double, progress: ProgressMonitor) -> CommandResult:
    tensor = workspace.get(command.target)
    assert isinstance(tensor, torch.Tensor)
    workspace.changed(f"the doubling of {command.target}", Halved(command.target, None))
    tensor.mul_(2)
    if tensor.max() > 4:
        raise BadInput("that is too much")
    answer = Answer(
        title=f"{command.target} is doubled", words="It is.", code=f"{command.target} *= 2", subject=command.target
    )
    return CommandResult(answer, (workspace.snapshot(command.target),))


SPEC = CommandSpec(
    record=Double,
    handler=double,
    title=lambda command: f"doubling {command.target}",
    refused="Nothing was doubled",
    undoable=True,
    replayed=True,
)


class EngineHere:
    """The engine in this process, without the encoding of the link, which knows only the commands of the product."""

    def __init__(self, put: Callable[[Event], None], virtual_spec: str | None, visible_devices: str | None) -> None:
        self.engine = Engine(put, sampling_seconds=None)
        self.put = put
        self.start, self.send = self.engine.start, self.engine.submit

    def kill(self) -> None:
        self.engine.close()
        self.put(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=1.0))

    def close(self) -> None:
        self.engine.close()

    def join(self, deadline_s: float) -> bool:
        return True

    def beat(self) -> None:
        pass


class Window:
    """A session and the state of its window."""

    def __init__(self) -> None:
        self.engines: list[EngineHere] = []
        self.titles: list[str] = []
        """Of jobs, as the status bar showed them."""
        self.session, self.state = Session(make_engine=self._make, nvml=Nvml()), State()
        self.engines[0].start()

    def _make(self, *arguments: Any) -> EngineHere:
        self.engines.append(EngineHere(*arguments))
        return self.engines[-1]

    def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        """Follow the session until such an event."""
        events: list[Event] = []
        end = time.monotonic() + DEADLINE_S
        while not any(map(wanted, events)):
            assert time.monotonic() < end, events
            time.sleep(0.001)
            for event in self.session.drain().events:
                self.state.apply(event)
                self.titles += [job.title for job in self.state.jobs.values()]
                events.append(event)
        return events

    def do(self, command: Any) -> None:
        request = self.session.send(command)
        self.until(lambda event: isinstance(event, JobEnded) and event.request == request)

    @property
    def values(self) -> list[float]:
        tensor = self.engines[-1].engine.workspace.get("x")
        assert isinstance(tensor, torch.Tensor)
        return tensor.tolist()


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    monkeypatch.setitem(REGISTRY, Double, SPEC)
    opened = Window()
    yield opened
    opened.session.close()


def test_a_new_command_is_carried_out_titled_and_undone(window: Window) -> None:
    window.do(NewTensor(name="x", shape=(2,)))
    window.do(Double(target="x"))
    assert window.titles[-1] == "doubling x"
    assert window.values == [2.0, 2.0]
    assert window.state.done[-1].command == Double(request=2, target="x")
    assert window.state.undo.title == "the doubling of x"
    window.do(Undo())
    assert window.values == [1.0, 1.0]


def test_a_new_command_is_in_the_script_and_made_again_after_a_crash(window: Window) -> None:
    window.do(NewTensor(name="x", shape=(2,)))
    window.do(Double(target="x"))
    assert [action.code for action in window.session.actions][-1] == "x *= 2"
    window.engines[-1].kill()
    rebuilt = window.until(lambda event: isinstance(event, Rebuilt))
    assert [event.restored for event in rebuilt if isinstance(event, Rebuilt)] == [("x",)]
    assert window.values == [2.0, 2.0]
    window.do(Undo())
    assert "x *= 2" not in [action.code for action in window.session.actions]


def test_a_new_command_that_fails_half_way_is_taken_back_and_refused_by_its_title(window: Window) -> None:
    window.do(NewTensor(name="x", shape=(2,)))
    window.do(Double(target="x"))
    window.do(Double(target="x"))
    window.do(Double(target="x"))
    assert window.values == [4.0, 4.0]
    answer = window.state.done[-1].answer
    assert answer is not None
    assert (answer.title, answer.words, answer.failed) == ("Nothing was doubled", "That is too much.", True)
    assert [action.code for action in window.session.actions].count("x *= 2") == 2


def test_a_new_command_is_refused_in_a_recording(window: Window, tmp_path: Path) -> None:
    replay = ReplaySession(tmp_path / "none.dxr")
    replay.send(Double(target="x"))  # type: ignore[arg-type]
    (answer,) = replay.drain().events
    assert isinstance(answer, Answer)
    assert answer.failed
    assert "cannot be changed" in answer.title


def test_what_is_no_command_has_no_specification() -> None:
    with pytest.raises(KeyError):
        spec_of("Undo")
    assert refused_title(None) == "That did not work"
