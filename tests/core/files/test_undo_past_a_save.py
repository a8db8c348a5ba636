"""An engine dies after an Undo of what the workspace file already has: everything that was there is there again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fakes.engine import EngineHere

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.parameters import records as lab
from devexplorer.core.records import (
    BuildModel,
    Command,
    Event,
    Forward,
    JobEnded,
    Move,
    NewTensor,
    Rebuilt,
    Redo,
    Remove,
    Undo,
)
from devexplorer.core.session.session import Session

PATIENCE_S = 30.0


class SessionHere:
    """A session with real engines in this process, each of which can die."""

    def __init__(self) -> None:
        self.engines: list[EngineHere] = []
        self.session = Session(make_engine=self._engine, nvml=Nvml())
        self.session._engine.start()

    def _engine(self, put: Callable[[Event], None], spec: str | None, visible: str | None) -> EngineHere:
        self.engines.append(EngineHere(put, spec, visible))
        return self.engines[-1]

    def until(self, condition: Callable[[Event], bool]) -> Event:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for event in self.session.drain().events:
                if condition(event):
                    return event
            time.sleep(0.002)
        raise AssertionError("it did not happen")

    def do(self, *commands: Command) -> None:
        for command in commands:
            request = self.session.send(command)
            ended = self.until(lambda event, of=request: isinstance(event, JobEnded) and event.request == of)  # type: ignore[misc]
            assert isinstance(ended, JobEnded)
            assert ended.ok, command

    def die(self) -> Rebuilt:
        self.engines[-1].kill()
        rebuilt = self.until(lambda event: isinstance(event, Rebuilt))
        assert isinstance(rebuilt, Rebuilt)
        return rebuilt

    @property
    def objects(self) -> tuple[str, ...]:
        return self.engines[-1].engine.workspace.names

    def values(self, name: str) -> torch.Tensor:
        tensor = self.engines[-1].engine.workspace.get(name)
        assert isinstance(tensor, torch.Tensor)
        return tensor

    def weights(self) -> list[torch.Tensor]:
        model = self.engines[-1].engine.workspace.get("mlp")
        assert isinstance(model, torch.nn.Module)
        return [value.clone() for value in model.state_dict().values()]


@pytest.fixture
def here() -> Iterator[SessionHere]:
    made = SessionHere()
    yield made
    made.session.close()


@pytest.fixture
def save(tmp_path: Path) -> SaveWorkspace:
    return SaveWorkspace(path=str(tmp_path / "work.devexplorer"), overwrite=True)


X = NewTensor(name="x", fill="rand", shape=(3,), seed=1)
X_TOO = NewTensor(name="z", fill="rand", shape=(3,), seed=1)
BUILD = BuildModel(recipe="mlp", name="mlp", seed=2)
TRAINED = (BUILD, lab.MakeOptimizer(target="mlp"), lab.TrainStep(target="mlp"))
"""No replay gives these values again: only a file has them."""


def test_what_was_built_after_the_first_save_and_undone_stays_undone(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(X, save, BUILD, save, Undo())
    x = here.values("x").clone()
    assert here.die().lost == ()
    assert here.objects == ("x",)
    assert torch.equal(here.values("x"), x)
    assert here.die().lost == (), "a second time as well"
    assert here.objects == ("x",)


def test_it_is_there_once_when_it_was_redone(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(X, save, BUILD, save, Undo(), Redo())
    assert here.die().lost == ()
    assert here.objects == ("x", "mlp")


def test_trained_values_come_from_the_file(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(*TRAINED, save, X, Forward(target="mlp", output="y"), save, Undo(), Undo())
    weights = here.weights()
    assert here.die().lost == ()
    assert here.objects == ("mlp",)
    assert all(map(torch.equal, weights, here.weights()))


def test_what_was_removed_for_the_second_save_is_made_again(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(X, BUILD, save, Remove(names=("x",)), save, Undo())
    x = here.values("x").clone()
    assert here.die().lost == ()
    assert set(here.objects) == {"x", "mlp"}
    assert torch.equal(here.values("x"), x)


def test_what_only_the_first_save_had_is_named(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(*TRAINED, X, save, Remove(names=("x",)), save, Undo())
    assert here.die().lost == ("the Undo of removing x: the file has what was saved before it",)
    assert here.objects == ("mlp",)


def test_a_file_that_was_opened_and_saved_again_is_opened_again(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(X, save, Remove(names=("x",)), OpenWorkspace(path=save.path), BUILD, save, Undo())
    assert here.die().lost == ()
    assert here.objects == ("x",)


def test_another_file_is_where_a_replay_begins_when_that_is_as_it_was(
    here: SessionHere, save: SaveWorkspace, tmp_path: Path
) -> None:
    copy = SaveWorkspace(path=str(tmp_path / "copy.devexplorer"))
    here.do(*TRAINED, X, save, Remove(names=("x",)), copy, Undo())
    assert here.die().lost == ()
    assert set(here.objects) == {"x", "mlp"}


def test_several_changes_that_were_undone_are_undone_again(here: SessionHere, save: SaveWorkspace) -> None:
    more = [NewTensor(name=name, fill="rand", shape=(2,), seed=3) for name in "abc"]
    here.do(X, save, *more, save, Undo(), Undo(), Move(targets=("x",), device="cpu", dtype="float64"))
    assert here.die().lost == ()
    assert here.objects == ("x", "a")
    assert here.values("x").dtype == torch.float64


def test_the_only_file_has_what_no_command_repeats(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(*TRAINED, X, save, Undo())
    weights = here.weights()
    assert here.die().lost == ()
    assert here.objects == ("mlp",)
    assert all(map(torch.equal, weights, here.weights()))


def test_what_came_with_another_file_does_not_come_back(here: SessionHere, save: SaveWorkspace, tmp_path: Path) -> None:
    other = SaveWorkspace(path=str(tmp_path / "other.devexplorer"), overwrite=True)
    here.do(X, other, Remove(names=("x",)), BUILD, save)
    here.do(OpenWorkspace(path=other.path, replace=True), other, Undo())
    assert here.die().lost == ()
    assert here.objects == ("mlp",)


def test_a_training_step_that_was_undone_is_named(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(*TRAINED, lab.TrainStep(target="mlp"), save, Undo())
    assert here.die().lost == ("the Undo of training step of mlp: the file has what was saved before it",)
    assert here.objects == ("mlp",)


def test_a_forward_without_a_name_for_its_result_removes_nothing(here: SessionHere, save: SaveWorkspace) -> None:
    here.do(*TRAINED, X, save, Forward(target="mlp"), X_TOO, save, Undo())
    here.die()
    assert set(here.objects) == {"mlp", "x"}
