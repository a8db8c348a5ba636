"""What an interpreter says of itself, and what becomes of those that say nothing, nonsense, or never end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from devexplorer.core.environments import environment
from devexplorer.core.environments.environment import Probe, ProbedDevice, refusal

REAL = f'exec "{sys.executable}" "$@"'


def script(tmp_path: Path, text: str, name: str = "my python é") -> str:
    """A program in place of an interpreter."""
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def answering(tmp_path: Path, text: str) -> str:
    """One that writes `text` where the answer goes."""
    return script(tmp_path, f"printf '%s\\n' '{text}' >/dev/fd/$3")


@pytest.fixture
def torch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `torch` that the probed Python finds first."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("LOADEDMODULES", "torch/1")
    (tmp_path / "path").mkdir()
    return tmp_path / "path" / "torch.py"


FAKE_TORCH = """
print("noise on the way")
class version:
    cuda, hip = "12.4", None
__version__ = "2.6.0+cu124"
class cuda:
    is_available = lambda: True
    device_count = lambda: 2
    class get_device_properties:
        total_memory = 80 << 30
        def __init__(self, index): self.name = f"GPU {index}"
"""


def test_python_packages_torch_and_devices_despite_noise(tmp_path: Path, torch_file: Path) -> None:
    torch_file.write_text(FAKE_TORCH)
    noisy = script(tmp_path, f"echo '{{\"version\": 1}}'; echo bash: warning >&2; {REAL}")
    probe = environment.probe(noisy, 20.0)
    assert probe.version == ".".join(map(str, sys.version_info[:3]))
    assert (probe.torch, probe.cuda, probe.problem, refusal(probe)) == ("2.6.0+cu124", "12.4", "", None)
    assert probe.devices[1] == ProbedDevice("cuda:1", "GPU 1", 80 << 30)
    assert probe.packages["msgspec"]
    assert probe.platform.startswith(sys.platform)


def test_a_folder_of_the_user_s_is_not_imported_from(
    tmp_path: Path, torch_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_file.write_text("__version__ = '2.4.0'\nclass version: cuda = None")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.py").write_text("raise SystemExit(7)")
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    probe = environment.probe(script(tmp_path, REAL), 20.0)
    assert (probe.torch, probe.torch_problem, probe.problem) == ("2.4.0", "", "")


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        (
            "raise ImportError('libcudart.so.12: cannot open\\nmore')",
            "imported: ImportError: libcudart.so.12: cannot o",
        ),
        ("raise SystemExit", "torch cannot be imported: SystemExit"),
        ("import os; os._exit(3)", "torch ended it with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "torch ended it by signal SIGSEGV"),
    ],
)
def test_a_broken_torch_is_told_and_python_is_known(tmp_path: Path, torch_file: Path, torch: str, reason: str) -> None:
    torch_file.write_text(torch)
    probe = environment.probe(script(tmp_path, REAL), 20.0)
    assert probe.version
    assert reason in (refusal(probe) or "")


def test_a_torch_that_hangs_is_ended_with_what_it_started(tmp_path: Path, torch_file: Path) -> None:
    torch_file.write_text(
        "import os, subprocess, time; p = subprocess.Popen(['sleep', '99']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(99)"
    )
    probe = environment.probe(script(tmp_path, REAL), 2.0)
    assert probe.version
    assert refusal(probe) == "torch did not answer within 2 s"
    pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 5
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < until
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 127", "it is not a Python that answers: with exit code 127"),
        ("echo libpython3.12.so: not found >&2; exit 127", "it is not a Python that answers: libpython3.12.so: not fo"),
        ("kill -9 $$", "it is not a Python that answers: by signal SIGKILL"),
        ("sleep 99", "it did not answer within 0.3 s"),
        ("sleep 99 & exit 0", "it did not answer within 0.3 s"),
        ("while :; do echo yes; done", "it did not answer within 0.3 s"),
        ("while :; do echo yes >/dev/fd/$3; done", "what it answered is not understood"),
        ("printf '{}' >/dev/fd/$3", "it is not a Python that answers"),
    ],
)
def test_what_is_no_python(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in (refusal(environment.probe(script(tmp_path, text), 0.3)) or "")


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[1, 2]",
        '"text"',
        '{"version": 3, "complete": true}',
        '{"version": "3.12.0", "devices": [{"memory_bytes": "many"}], "complete": true}',
    ],
)
def test_an_answer_of_another_kind(tmp_path: Path, text: str) -> None:
    assert refusal(environment.probe(answering(tmp_path, text), 5.0)) == "what it answered is not understood"


def test_a_file_that_cannot_be_started(tmp_path: Path) -> None:
    assert "no such file" in environment.probe(str(tmp_path / "gone")).problem
    path = tmp_path / "data"
    path.write_bytes(b"\x7fnot a program")
    path.chmod(0o755)
    assert "exec format error" in environment.probe(str(path)).problem


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (Probe(version="3.10.2", implementation="cpython"), "it is Python 3.10.2; the engine needs 3.11 or newer"),
        (Probe(version="3.11.2", implementation="pypy"), "it is pypy; the engine needs CPython"),
        (Probe(version="3.11.2", implementation="cpython"), "torch is not installed there"),
        (
            Probe(version="3.11.2", implementation="cpython", torch="2.3.1+cu118"),
            "its torch is 2.3.1+cu118; the engine needs 2.4 or newer",
        ),
        (Probe(version="3.14.0", implementation="cpython", torch="2.10.0a0+git12"), None),
    ],
)
def test_which_are_refused(probe: Probe, reason: str | None) -> None:
    assert refusal(probe) == reason


def test_what_is_meant_for_this_python_does_not_reach_another(tmp_path: Path) -> None:
    given = {"PYTHONHOME": "/h", "PYTHONPATH": "/p", "CUDA_VISIBLE_DEVICES": "1"}
    assert environment.environ_for(str(tmp_path / "python"), given) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert environment.environ_for(sys.executable, given) == given
    with_modules = environment.environ_for("/apps/python", given | {"LOADEDMODULES": "torch/2.6"})
    assert "PYTHONPATH" in with_modules
    assert "PYTHONHOME" not in with_modules
