"""PyTorch's own reference backend, with a minimal device module: every command, and the engine, on its two devices.

`torch_openreg` is built from test/cpp_extensions/open_registration_extension/torch_openreg of PyTorch's sources and
installed, so that torch loads it on import. It takes the slot of virtual GPUs in its process, so this file runs alone:

python -m pytest -p no:pytest-qt tests/gpu/test_reference_backend.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess

import pytest
import torch
from fakes.command_line import CLI, Json

from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.experiments.records import Crossover, CrossoverMeasured, TimeWork, WorkTimed
from devexplorer.core.memory.records import ReleaseCache
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    Backward,
    BuildModel,
    Combine,
    Forward,
    Move,
    Moved,
    NewTensor,
    Undo,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("torch_openreg") is None,
        reason="torch_openreg, PyTorch's reference backend, is not here",
    ),
]

FIRST, SECOND = "openreg:0", "openreg:1"
BOTH = ("--device", FIRST, "--device", SECOND)


@pytest.fixture(scope="module", autouse=True)
def the_backend() -> None:
    """Two devices, loaded by torch itself."""
    assert torch.accelerator.current_accelerator() == torch.device("openreg")
    assert torch.accelerator.device_count() == 2


def command(*argv: str, code: int = 0) -> Json:
    """The document of a command in a subprocess, as a user runs it."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*CLI, *argv, "--json"], capture_output=True, text=True, timeout=240, env=environ, check=False
    )
    assert done.returncode == code, done.stderr
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def test_devices_are_listed_and_what_they_do_not_say_has_its_reason() -> None:
    content = command("devices")
    listed = {device["id"]: device for device in content["devices"]}
    assert {FIRST, SECOND} <= listed.keys()
    assert listed[FIRST]["usable"]
    assert listed[FIRST]["memory_total_bytes"] is None
    reasons = {(one["device"], one["field"]): one["reason"] for one in content["problems"]}
    assert "not implemented" in reasons[FIRST, "memory_total_bytes"]
    assert "has no get_device_name" in reasons[SECOND, "name"]


def test_a_model_is_placed_there() -> None:
    content = command("place", "mlp", "--device", SECOND)
    assert {row["device"] for row in content["rows"]} == {SECOND}


@pytest.mark.parametrize(
    "argv",
    [
        ("matmul", *BOTH, "--size", "128", "--seconds", "0.2"),
        ("matmul", *BOTH, "--size", "64", "--mode", "burst", "--dtype", "bfloat16", "--seconds", "0.2"),
        ("sweep", *BOTH, "--sizes", "32,64", "--seconds", "0.05"),
        ("bandwidth", "--device", "cpu", FIRST, SECOND, "--bytes", "64K", "--seconds", "0.05", "--both-ways"),
        ("scaling", *BOTH, "--size", "64", "--iterations", "20"),
        ("model", "mlp", *BOTH, "--seconds", "0.2"),
        ("model", "mlp", *BOTH, "--train", "--optimizer", "adamw", "--seconds", "0.2"),
    ],
    ids=lambda argv: " ".join(argv[:2]),
)
def test_every_benchmark_runs_and_gives_figures(argv: tuple[str, ...]) -> None:
    runs = command("bench", *argv, "--no-store")["runs"]
    assert runs
    for run in runs:
        assert not run["simulated"]
        figure = next(
            run[name] for name in ("tflops", "gb_per_s", "samples_per_s", "speedup") if run.get(name) is not None
        )
        assert figure["median"] > 0 if isinstance(figure, dict) else figure > 0
    if argv[0] == "bandwidth":
        assert all(run["verified"] for run in runs)
        assert any(run["both_ways"] for run in runs)
    if argv[0] == "model":
        assert all(run["peak_memory_bytes"] > 0 for run in runs), "its allocator counts"


@pytest.mark.parametrize("device", [FIRST, SECOND, "vgpu:0"])
def test_the_doctor_examines_there_and_on_virtual_gpus_instead(device: str) -> None:
    assert command("doctor", "mlp", "--train", "--device", device)["problems"] == []


def test_the_planner_works_on_virtual_gpus_all_the_same() -> None:
    assert command("fit", "mlp", "--gpu", "Tesla T4", "--train")["fits"] is True


def test_virtual_gpus_beside_it_are_refused_in_one_line_that_says_how_to_have_them() -> None:
    done = subprocess.run(
        [*CLI, "devices", "--virtual", "Tesla T4"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr
    assert done.stderr.count("\n") == 1


def test_moving_running_timing_and_the_allocators_in_the_engine() -> None:
    with LocalEngine(sampling_seconds=0.02) as local:
        local.demand(BuildModel(recipe="mlp", name="net"))
        (moved,) = [event for event in local.demand(Move(targets=("net",), device=FIRST)) if isinstance(event, Moved)]
        assert moved.report.bytes > 0
        readings = [event for event in local.demand(Forward(target="net")) if isinstance(event, AllocatorSample)]
        local.demand(Backward(target="net"))
        local.demand(NewTensor(name="a", fill="randn", shape=(64, 64), device=FIRST))
        local.demand(NewTensor(name="b", fill="randn", shape=(64, 64), device=FIRST))
        local.demand(Combine(left="a", right="b", operator="@", name="c"))
        local.demand(Move(targets=("c",), device=SECOND, dtype="float16"))
        local.demand(Undo())
        (timed,) = [
            one for one in local.demand(TimeWork(device=SECOND, size=64, iterations=5)) if isinstance(one, WorkTimed)
        ]
        assert 0 < timed.launched_seconds <= timed.finished_seconds
        crossing = local.demand(Crossover(device=FIRST, sizes=(16, 32)))
        assert any(isinstance(event, CrossoverMeasured) for event in crossing)
        released = [event for event in local.demand(ReleaseCache(device=FIRST)) if isinstance(event, Answer)]
        assert "torch.accelerator.empty_cache()" in released[-1].code
        readings += [event for event in local.demand(Forward(target="net")) if isinstance(event, AllocatorSample)]
        backend = local.engine.registry.backend(FIRST)
        sample = backend.allocator_sample(FIRST, 0.0)
        assert sample is not None
        assert sample.allocated_bytes >= moved.report.bytes
        assert {reading.device for reading in readings} <= {FIRST, SECOND}
