"""The engine in another Python than this one, where DevExplorer is not installed: the same commands give the same
values."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from environments import each_environment
from safetensors.torch import load_file

from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.environments.environment import environ_for, probe
from devexplorer.core.environments.packages import prepare
from devexplorer.core.files.records import Save
from devexplorer.core.models import samples
from devexplorer.core.models.inputs import sample_inputs
from devexplorer.core.records import (
    AddVirtual,
    BuildModel,
    Check,
    Checked,
    Command,
    EngineLost,
    EngineReady,
    Event,
    Forward,
    JobEnded,
    Move,
)

WAIT_S = 120.0
SEED = 5


class Elsewhere:
    """An engine process in that Python, and what it said."""

    def __init__(self, python: str) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        command = [*prepare(python), "devexplorer.core.engine"]
        self.process = EngineProcess(self.events.put, command=command, environ=environ_for(python))
        self.process.start()

    def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        seen = [self.events.get(timeout=WAIT_S)]
        while not wanted(seen[-1]):
            assert not isinstance(seen[-1], EngineLost), seen
            seen.append(self.events.get(timeout=WAIT_S))
        return seen

    def do(self, command: Command) -> list[Event]:
        """Run a command that must succeed."""
        self.process.send(command)
        seen = self.until(lambda event: isinstance(event, JobEnded) and event.request == command.request)
        ended = seen[-1]
        assert isinstance(ended, JobEnded)
        assert ended.ok, seen
        return seen


@pytest.fixture
def elsewhere() -> Iterator[Callable[[str], Elsewhere]]:
    running: list[Elsewhere] = []

    def start(python: str) -> Elsewhere:
        running.append(Elsewhere(python))
        return running[-1]

    yield start
    for engine in running:
        engine.process.close()
        assert engine.process.join(10.0)


@each_environment()
def test_it_builds_moves_runs_and_checks_a_model_as_here(
    python: str, elsewhere: Callable[[str], Elsewhere], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine = elsewhere(python)
    ready = engine.until(lambda event: isinstance(event, EngineReady))[-1]
    assert isinstance(ready, EngineReady)
    about = probe(python)
    assert (ready.python_version, ready.torch_version) == (about.version, about.torch)
    device = "cpu"
    if ready.virtual_unavailable is None:
        engine.do(AddVirtual(request=1, spec="Tesla T4"))
        device = "vgpu:0"
    engine.do(BuildModel(request=2, recipe="lenet", name="net", seed=SEED))
    engine.do(Move(request=3, targets=("net",), device=device, dtype="float64"))
    engine.do(Forward(request=4, target="net", output="y"))
    engine.do(Save(request=5, targets=("net", "y"), path=str(tmp_path / "there.safetensors"), named=True))
    answered = engine.do(Check(request=6, target="net", device=device, train=True))
    (checked,) = (event for event in answered if isinstance(event, Checked))
    assert checked.diagnosis.clean, checked.diagnosis

    there = load_file(tmp_path / "there.safetensors")
    here = samples.build("lenet", seed=SEED).to(torch.float64)
    for name, value in here.state_dict().items():
        assert torch.equal(there[f"net/{name}"], value), name
    expected = here(*sample_inputs(here))
    assert torch.allclose(there["y"], expected)
