"""Querying torch in a subprocess: if it is missing, broken, hanging or exits, only its own answers are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devexplorer.core.cli import torch_answers
from devexplorer.core.cli.torch_answers import TorchQuestion


@pytest.fixture
def other_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts another `torch` before the real one, for processes that are started from here."""

    def put(code: str) -> dict[str, str]:
        folder = tmp_path / "torch"
        folder.mkdir()
        (folder / "__init__.py").write_text(code, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.delitem(sys.modules, "torch", raising=False)  # this process appears to have none
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return put


def reason(limit_s: float = 60.0) -> str:
    question = TorchQuestion(limit_s)
    try:
        found = question.answers()
    finally:
        question.close()
    assert (found.devices, found.facts) == ((), None)
    (problem,) = found.problems
    assert problem.field == "cuda"
    assert found.virtual_gpus == problem.reason
    return problem.reason


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "raise OSError('libcudart.so.12: cannot open shared object file')",
            "torch cannot be imported: OSError: libcudart.so.12",
        ),
        (
            "import nothing_of_this_name",
            "torch cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'",
        ),
        ("import os\nos.kill(os.getpid(), 11)", "torch ended its process by signal SIGSEGV"),
        ("import os\nos._exit(3)", "torch ended its process with exit code 3"),
    ],
)
def test_a_torch_that_is_broken_is_a_reason(other_torch: Any, code: str, words: str) -> None:
    other_torch(code)
    assert reason().startswith(words)


def test_a_torch_that_hangs_is_a_reason_in_time(other_torch: Any) -> None:
    other_torch("import time\ntime.sleep(600)")
    assert reason(0.5) == "torch did not answer within 0.5 s"


def test_without_torch_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(torch_answers.importlib.util, "find_spec", lambda name: None)
    assert reason() == "torch is not installed in this Python; install it, or name a Python that has it with --python"


def test_where_torch_is_loaded_it_is_asked_there() -> None:
    pytest.importorskip("torch")
    found = TorchQuestion().answers()
    assert found.facts is not None
    assert found.devices[0].id == "cpu"


def command(environment: dict[str, str], *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "devexplorer.core.cli", *argv],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_devices_and_env_work_where_torch_is_broken(other_torch: Any, nvml_library_path: Path) -> None:
    environment = other_torch("raise ImportError('undefined symbol: iJIT_NotifyEvent')") | {
        "LD_LIBRARY_PATH": str(nvml_library_path.parent),
        "FAKE_NVML_MODELS": "t4,t4",
    }
    found = json.loads(command(environment, "devices", "--json", "--virtual", "Tesla T4"))
    by_id = {device["id"]: device for device in found["devices"]}
    assert set(by_id) == {"cpu", "nvml:0", "nvml:1", "vgpu:0"}
    words = "torch cannot be imported: ImportError: undefined symbol: iJIT_NotifyEvent"
    assert all(by_id[name]["reason"] == words and not by_id[name]["usable"] for name in ("nvml:0", "vgpu:0"))
    assert by_id["nvml:0"]["sample"]["power_w"] is not None
    text = command(environment, "env")
    assert words in text
    assert "Tesla T4" in text
