"""Scripts that `devexplorer run` observes on PyTorch's real CUDA: it says the same of them as on virtual GPUs. In the
environment of docs/standin.md; each script is a process, those that run out of memory are one together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if not os.environ.get("FAKE_CUDA_LEDGER"):
    pytest.skip("this is not the environment of docs/standin.md", allow_module_level=True)

OBSERVE = Path(__file__).parents[1] / "core" / "observe"
FULL: dict[str, Any] = json.loads((OBSERVE / "out_of_memory" / "wanted.json").read_text())
SLOW: dict[str, Any] = json.loads((OBSERVE / "slow" / "wanted.json").read_text())
SLOW_HERE = ("01_late_input", "05_item_every_step", "07_layer_left_on_the_cpu")
"""Not `04_blocking_copies`: a copy costs nothing where the card is host memory, so that it is compute-bound here."""
A_SMALL_PART = "per_process_memory_fraction:0.04132"
"""624 MiB of a T4."""


def on_cards(folder: Path, *words: str | Path, models: str = "t4", **more: str) -> subprocess.CompletedProcess[str]:
    """Python with a ledger of the test's own."""
    variables = {"FAKE_NVML_MODELS": models, "FAKE_CUDA_LEDGER": str(folder / "ledger"), "TMPDIR": str(folder), **more}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def observed(folder: Path, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`devexplorer run`."""
    return on_cards(folder, "-m", "devexplorer.core.cli", "run", *words, **more)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, dict[str, Any], list[str]]]:
    """Of each script that runs out of memory its error, the report, and what failed of ours."""
    folder = tmp_path_factory.mktemp("reports")
    scripts = [OBSERVE / "out_of_memory" / f"{name}.py" for name in FULL]
    done = on_cards(folder, OBSERVE / "run_out_of_memory.py", "cuda", folder, *scripts)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {
        Path(script).stem: (error, json.loads(Path(path).read_text()), problems)
        for script, error, path, problems in lines
        if path
    }


@pytest.mark.parametrize("name", FULL)
def test_the_cause_is_named_where_memory_runs_out(
    full: dict[str, tuple[str, dict[str, Any], list[str]]], name: str
) -> None:
    error, report, problems = full[name]
    assert error.startswith("CUDA out of memory. Tried to allocate")
    cause = report["cause"]
    assert cause["kind"] == FULL[name]["cause"], cause
    assert [word for word in FULL[name]["first_line"] if word.lower() not in cause["text"].lower()] == []
    assert os.path.basename(report["place"]["file"]) == f"{name}.py"
    assert sum(part["bytes"] for part in report["parts"]) == report["capacity_bytes"]
    assert report["notes"][-1].startswith("This process may use 624.0")
    assert (report["device"], report["simulated"], problems) == ("cuda:0", False, [])


def test_a_script_ends_with_its_own_error_and_the_cause_is_said_last(tmp_path: Path) -> None:
    """In backward, which C++ runs on a thread of its own."""
    script = OBSERVE / "out_of_memory" / "08_gradients.py"
    done = observed(tmp_path, script, PYTORCH_ALLOC_CONF=A_SMALL_PART)
    assert done.returncode == 1
    assert "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 324.00 MiB. GPU 0 has" in done.stderr
    cause, more = done.stderr.splitlines()[-2:]
    assert cause.startswith("  The gradients do not fit: backward makes one of 324.00 MiB")
    (report,) = tmp_path.glob("*.json")
    assert more == f"  more: devexplorer explain {report}"
    assert "triton not found" not in done.stderr  # nothing of virtual GPUs' operators was imported


@pytest.mark.parametrize("name", SLOW_HERE)
def test_the_verdict_is_that_of_the_script(tmp_path: Path, name: str) -> None:
    done = observed(tmp_path, "--report", "run.json", OBSERVE / "slow" / f"{name}.py")
    assert done.returncode == 0, done.stderr
    verdict = json.loads((tmp_path / "run.json").read_text())["verdict"]
    assert verdict["kind"] == SLOW[name]["kind"], done.stderr
    assert [words for words in SLOW[name]["says"] if words not in done.stderr] == []


@pytest.mark.parametrize("name", ["two_cards", "first_tensors"])
def test_a_listing_prints_the_same_as_on_virtual_gpus(tmp_path: Path, name: str) -> None:
    done = observed(tmp_path, OBSERVE / "seeds" / f"{name}.py", models="t4,t4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (OBSERVE / "seeds" / f"{name}.txt").read_text()
