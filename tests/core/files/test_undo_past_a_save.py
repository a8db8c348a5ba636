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

    def values(self) -> dict[str, list[torch.Tensor]]:
        """By object."""
        workspace = self.engines[-1].engine.workspace
        found = {}
        for name in workspace.names:
            thing = workspace.get(name)
            tensors = [thing] if isinstance(thing, torch.Tensor) else list(thing.state_dict().values())
            found[name] = [tensor.detach().clone() for tensor in tensors]
        return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionHere]:
    monkeypatch.chdir(tmp_path)
    made = SessionHere()
    yield made
    made.session.close()


SAVE = SaveWorkspace(path="work.devexplorer", overwrite=True)
OTHER = SaveWorkspace(path="other.devexplorer", overwrite=True)
X = NewTensor(name="x", fill="rand", shape=(3,), seed=1)
X_TOO = NewTensor(name="z", fill="rand", shape=(3,), seed=1)
BUILD = BuildModel(recipe="mlp", name="mlp", seed=2)
TRAINED = (BUILD, lab.MakeOptimizer(target="mlp"), lab.TrainStep(target="mlp"))
"""No replay gives these values again: only a file has them."""


MORE = [NewTensor(name=name, fill="rand", shape=(2,), seed=3) for name in "abc"]
SESSIONS: dict[str, tuple[Command, ...]] = {
    "built after the first save, and undone": (X, SAVE, BUILD, SAVE, Undo()),
    "redone": (X, SAVE, BUILD, SAVE, Undo(), Redo()),
    "trained values come from the file": (
        *TRAINED, SAVE, X, Forward(target="mlp", output="y"), SAVE, Undo(), Undo(),
    ),
    "removed for the second save": (X, BUILD, SAVE, Remove(names=("x",)), SAVE, Undo()),
    "opened and saved again": (X, SAVE, Remove(names=("x",)), OpenWorkspace(path=SAVE.path), BUILD, SAVE, Undo()),
    "another file has what is undone": (*TRAINED, X, SAVE, Remove(names=("x",)), OTHER, Undo()),
    "several changes": (X, SAVE, *MORE, SAVE, Undo(), Undo(), Move(targets=("x",), device="cpu", dtype="float64")),
    "the only file has what no command repeats": (*TRAINED, X, SAVE, Undo()),
    "what came with another file": (
        X, OTHER, Remove(names=("x",)), BUILD, SAVE, OpenWorkspace(path=OTHER.path, replace=True), OTHER, Undo(),
    ),
    "a forward without a name for its result": (*TRAINED, X, SAVE, Forward(target="mlp"), X_TOO, SAVE, Undo()),
}  # fmt: skip


@pytest.mark.parametrize("what", SESSIONS)
def test_everything_is_there_again(here: SessionHere, what: str) -> None:
    here.do(*SESSIONS[what])
    before = here.values()
    for _ in range(2):
        lost = here.die().lost
        assert lost == () or what.startswith("a forward")
        after = here.values()
        assert set(after) == set(before)
        for name, values in before.items():
            assert all(map(torch.equal, values, after[name])), name


@pytest.mark.parametrize(
    ("commands", "lost"),
    [
        ((*TRAINED, X, SAVE, Remove(names=("x",)), SAVE, Undo()), "removing x"),
        ((*TRAINED, lab.TrainStep(target="mlp"), SAVE, Undo()), "training step of mlp"),
    ],
)
def test_what_only_the_first_save_had_is_named(here: SessionHere, commands: tuple[Command, ...], lost: str) -> None:
    here.do(*commands)
    assert here.die().lost == (f"the Undo of {lost}: the file has what was saved before it",)
    assert set(here.values()) == {"mlp"}
