"""The real engine in its own process: set-up, output of user code, crash and restart, shutdown."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes.nvml import FakeNvml
from fakes.virtual import needs_virtual_gpus

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.__main__ import possible
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.records import (
    BenchPoint,
    BuildModel,
    Command,
    EngineLost,
    EngineReady,
    Event,
    JobEnded,
    Log,
    MatmulSpec,
    Move,
    Moved,
    ObjectChanged,
    Rebuilt,
    StartBenchmark,
)
from devexplorer.core.session.session import Session
from devexplorer.core.virtual import backend

WAIT_S = 120.0
USER_CODE = """
import os, subprocess, sys
from devexplorer.core.engine import engine
dispatch = engine.dispatch
def theirs(workspace, command, watch):
    if getattr(command, "recipe", "") == "lenet":
        os._exit(7)
    print("from print")
    print("from stderr", file=sys.stderr)
    os.write(1, "from below: \\u00e9\\n".encode())
    os.write(1, b"\\xff\\xfe no text\\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"])
    assert not sys.stdin.read(), "standard input is not the link"
    return dispatch(workspace, command, watch)
engine.dispatch = theirs
from devexplorer.core.engine.__main__ import main
main()
"""

BREAKS = """
from devexplorer.core.engine import engine
from fakes.cuda import AcceleratorError
dispatch = engine.dispatch
def theirs(workspace, command, watch):
    if getattr(command, "recipe", "") == "lenet":
        raise AcceleratorError("CUDA error: device-side assert triggered")
    return dispatch(workspace, command, watch)
engine.dispatch = theirs
from devexplorer.core.engine.__main__ import main
main()
"""
ENDS = """
import subprocess, sys, threading, time
from devexplorer.core.engine.__main__ import _end_group
from devexplorer.core.models.guard import staying
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
with staying():
    if sys.argv[1] == "main":
        _end_group(5)
    threading.Thread(target=_end_group, args=(5,), name="jobs", daemon=True).start()
    time.sleep(60)
"""


class Child:
    """An engine process and what it said."""

    def __init__(self, command: list[str] | None = None, environ: dict[str, str] | None = None) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.process = EngineProcess(self.events.put, virtual_spec="2x Tesla T4", command=command, environ=environ)
        self.process.start()
        ready = self.until(lambda event: isinstance(event, EngineReady))[-1]
        assert isinstance(ready, EngineReady)
        self.ready = ready

    def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        seen = [self.events.get(timeout=WAIT_S)]
        while not wanted(seen[-1]):
            seen.append(self.events.get(timeout=WAIT_S))
        return seen

    def run(self, request: int, command: Command) -> list[Event]:
        self.process.send(command)
        return self.until(lambda event: isinstance(event, JobEnded) and event.request == request)


@pytest.fixture
def children() -> Iterator[Callable[..., Child]]:
    running: list[Child] = []

    def start(command: list[str] | None = None, environ: dict[str, str] | None = None) -> Child:
        running.append(Child(command, environ))
        return running[-1]

    yield start
    for child in running:
        child.process.close()
        assert child.process.join(3.0)


def gone(pid: int) -> bool:
    """Whether a process has ended, at the latest within a moment."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@needs_virtual_gpus
def test_it_has_a_session_of_its_own_yields_only_to_the_window_and_ends_with_its_input(
    children: Callable[..., Child], tmp_path: Path
) -> None:
    with open(tmp_path / "ours", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        child = children()
    assert str(tmp_path / "ours") not in [file.path for file in psutil.Process(child.ready.pid).open_files()], (
        "nothing of ours went along"
    )
    pid = child.ready.pid
    assert pid == child.process.pid != os.getpid()
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert psutil.Process(pid).nice() <= psutil.Process().nice() + 2, "it has to get on beside other programs"
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists() and (standing := group.read_text().split()):
        assert standing[-1] == "0", (
            "its session is a scheduling group: one that is nice by itself starves on a busy machine"
        )
    built = child.run(1, BuildModel(request=1, recipe="mlp"))
    assert any(isinstance(event, ObjectChanged) for event in built)
    moved = child.run(2, Move(request=2, targets=("mlp",), device="vgpu:1"))
    assert any(isinstance(event, Moved) and event.report.destination == "vgpu:1" for event in moved)
    child.process.send(StartBenchmark(request=3, spec=MatmulSpec(device="cpu", m=64, n=64, k=64, seconds=600)))
    child.until(lambda event: isinstance(event, BenchPoint))
    child.process.close()
    assert child.process.join(3.0), "in the middle of a benchmark"
    assert gone(pid)


@pytest.mark.usefixtures("warm_processes")
def test_what_user_code_prints_arrives_in_the_log_and_its_exit_is_said(children: Callable[..., Child]) -> None:
    child = children([sys.executable, "-c", USER_CODE])
    seen = child.run(1, BuildModel(request=1, recipe="mlp"))
    assert seen[-1].ok, seen  # type: ignore[union-attr]
    wanted = {"from print", "from stderr", "from below: é", "\ufffd\ufffd no text", "from a child"}
    said = {event.text for event in seen if isinstance(event, Log) and event.level == "output"}
    while wanted - said:  # the reader of the output is a thread of its own
        event = child.events.get(timeout=WAIT_S)
        if isinstance(event, Log) and event.level == "output":
            said.add(event.text)
    assert said == wanted
    child.process.send(BuildModel(request=2, recipe="lenet"))
    lost = child.until(lambda event: isinstance(event, EngineLost))[-1]
    assert isinstance(lost, EngineLost)
    assert "exit code 7" in lost.reason


@pytest.mark.parametrize("thread", ["main", "jobs"])
def test_it_ends_from_any_thread_with_all_it_started_while_a_model_is_imported(thread: str) -> None:
    command = [sys.executable, "-c", ENDS, thread]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        said, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (5, b"")
    assert gone(int(said))


@pytest.mark.usefixtures("warm_processes")
def test_after_an_error_that_leaves_cuda_unusable_it_says_so_and_ends(children: Callable[..., Child]) -> None:
    tests = os.fspath(Path(__file__).parents[2])
    child = children([sys.executable, "-c", BREAKS], {**os.environ, "PYTHONPATH": tests})
    child.process.send(BuildModel(request=1, recipe="lenet"))
    seen = child.until(lambda event: isinstance(event, EngineLost))
    assert [event.ok for event in seen if isinstance(event, JobEnded)] == [False], "what failed is answered first"
    first, second = [event.text for event in seen if isinstance(event, Log) and event.level == "error"]
    assert first.splitlines()[0] == "AcceleratorError: CUDA error: device-side assert triggered", "what a banner shows"
    assert second.startswith("CUDA error: device-side assert triggered; CUDA cannot be used any more")
    assert isinstance(seen[-1], EngineLost)
    assert seen[-1].reason == f"{second}.", "what a banner shows then"
    assert gone(child.ready.pid)


def test_one_that_cannot_start_says_why() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    process = EngineProcess(events.put, virtual_spec="Voodoo")
    process.start()
    said, lost = events.get(timeout=WAIT_S), events.get(timeout=WAIT_S)
    assert isinstance(said, Log)
    assert "there is no profile 'Voodoo'" in said.text
    assert isinstance(lost, EngineLost)
    assert process.join(3.0)


@pytest.mark.parametrize(
    ("question", "level", "begins"),
    [
        ("unsupported", "warning", "the engine has no virtual GPUs: "),
        ("beside_cards", "info", "virtual GPUs need an engine of their own: "),
    ],
)
def test_where_it_cannot_have_virtual_gpus_it_starts_without_those_that_are_wanted(
    question: str, level: str, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Event] = []
    assert possible(None, sent.append) is None
    monkeypatch.setattr(backend, "unsupported", lambda: None)
    monkeypatch.setattr(backend, question, lambda: "of this")
    assert possible("2x Tesla T4", sent.append) is None
    (said,) = sent
    assert isinstance(said, Log)
    assert (said.level, said.text) == (level, f"{begins}of this")


@needs_virtual_gpus
@pytest.mark.usefixtures("warm_processes")
def test_after_it_was_killed_the_workspace_comes_back_and_nothing_is_left() -> None:
    session = Session(virtual_spec="2x Tesla T4", nvml=Nvml(FakeNvml()))
    seen: list[Event] = []

    def until(wanted: Callable[[Event], bool]) -> Event:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            for event in (new := session.drain().events):
                seen.append(event)
            for event in new:
                if wanted(event):
                    return event
            time.sleep(0.005)
        raise AssertionError(f"it did not come; the last that came: {seen[-3:]}")

    session.start()
    try:
        ready = until(lambda event: isinstance(event, EngineReady))
        assert isinstance(ready, EngineReady)
        session.send(BuildModel(recipe="mlp"))
        done = session.send(Move(targets=("mlp",), device="vgpu:1"))
        until(lambda event: isinstance(event, JobEnded) and event.request == done)
        session.send(StartBenchmark(spec=MatmulSpec(device="cpu", m=256, n=256, k=256, seconds=600)))
        until(lambda event: isinstance(event, BenchPoint))
        os.kill(ready.pid, signal.SIGKILL)
        lost = until(lambda event: isinstance(event, EngineLost))
        assert isinstance(lost, EngineLost)
        assert lost.will_restart
        assert all(words in lost.reason for words in ("SIGKILL", "benchmark on cpu"))
        again = until(lambda event: isinstance(event, EngineReady))
        assert isinstance(again, EngineReady)
        assert again.pid != ready.pid
        rebuilt = until(lambda event: isinstance(event, Rebuilt))
        assert rebuilt == Rebuilt(restored=("mlp",), lost=())
        snapshots = [
            event.snapshot for event in seen if isinstance(event, ObjectChanged) and event.snapshot.name == "mlp"
        ]
        assert set(snapshots[-1].bytes_by_device) == {"vgpu:1"}, "where it was"
    finally:
        assert session.close(3.0)
    assert gone(ready.pid)
    assert gone(again.pid)
