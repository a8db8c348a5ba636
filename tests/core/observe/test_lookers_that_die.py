"""Windows and hosts that die or stop while they look at a script: it goes on at its pace, nothing of them is left, and
the next one sees it."""

from __future__ import annotations

import array
import fcntl
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.hosts import short_folder

from devexplorer.core.engine.link import read_payload
from devexplorer.core.machines.greeting import socket_of
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.observe.running import GREETING_LIMIT, AttachedEngine, running
from devexplorer.core.records import EngineReady

SCRIPT = """
import os, pathlib, threading, time
import torch
from torch import nn
import devexplorer.core.observe.looker as looker

looker.LOOK_S, looker.OBJECTS_S, looker.SHARE, looker.STEPS_S = 0.005, 0.005, 0, 0.005
torch.set_num_threads(1)
models = [nn.Sequential(*(nn.Linear(2, 2) for _ in range(200))) for _ in range(4)]
optimizer = torch.optim.SGD(models[0].parameters(), lr=0.1)
longest, before, on = 0.0, time.perf_counter(), True
while not pathlib.Path("stop").exists():
    for model in models:
        model(torch.ones(1, 2)).mean().backward()
        model.train(on := not on)
        for parameter in model.parameters():
            parameter.requires_grad_(True)
            parameter.data = parameter.data.to(torch.float64).float()
    optimizer.step()
    optimizer.zero_grad()
    pathlib.Path("steps").write_text(f"{os.getpid()} {time.perf_counter() - before}")
    before = time.perf_counter()
names = {thread.name for thread in threading.enumerate()}
print(sorted(names))
"""
LOOKS = """
import sys, time
from devexplorer.core.observe.running import AttachedEngine
engine = AttachedEngine(int(sys.argv[1]), lambda event: print(type(event).__name__, flush=True))
engine.start()
engine.join(600)
print(engine.goodbye, flush=True)
time.sleep(60)
"""
PATIENCE_S = 60.0


def until(done: Callable[[], Any]) -> Any:
    """Wait for it."""
    end = time.monotonic() + PATIENCE_S
    while not (result := done()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return result


class Observed:
    """The script, while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "train.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "devexplorer.core.cli", "run", "train.py"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=-1, stderr=-1, text=True)
        until(lambda: [script for script in running() if script.pid == self.process.pid])
        until((folder / "steps").exists)

    def go_on(self) -> None:
        """Some more steps are made."""
        steps = self._folder / "steps"
        for _ in range(5):
            before = steps.stat().st_mtime_ns
            until(lambda before=before: steps.stat().st_mtime_ns != before)

    def end(self) -> tuple[str, str]:
        """What it has said."""
        (self._folder / "stop").touch()
        return self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        made = Observed(tmp_path)
        yield made
        made.process.kill()
        made.process.communicate()


def look_again(pid: int) -> None:
    """The next one sees it."""
    events: list[Any] = []
    engine = AttachedEngine(pid, events.append)
    engine.start()
    until(lambda: any(isinstance(event, EngineReady) for event in list(events)))
    engine.close()
    assert engine.join(PATIENCE_S)


def test_a_host_that_is_killed_in_the_middle_of_an_event_is_not_missed(observed: Observed) -> None:
    pid = observed.process.pid
    bare = psutil.Process(pid).num_threads()
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", LOOKS, str(pid)], stdout=-1, text=True) as host:
            assert host.stdout is not None
            for _ in range(50):
                assert "Goodbye" not in host.stdout.readline()
            host.kill()
        observed.go_on()
        until(lambda: psutil.Process(pid).num_threads() == bare)
    look_again(pid)
    until(lambda: psutil.Process(pid).num_threads() == bare)
    said, errors = observed.end()
    assert said == "['MainThread', 'observe-accept', 'observe-stops']\n"
    assert errors.startswith("devexplorer: train.py: ")
    assert "Not observed completely" not in errors


@pytest.mark.parametrize("way", ["a socket that is full", "a host that is stopped"])
def test_who_reads_no_more_holds_up_neither_the_script_nor_its_end(observed: Observed, way: str) -> None:
    pid = observed.process.pid
    if way == "a socket that is full":
        looker = socket.socket(socket.AF_UNIX)
        looker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        looker.connect(next(str(path) for path in sockets(pid)))
        assert read_payload(SocketStream(looker), GREETING_LIMIT)
        looker.sendall(b"\0")
        ended: Callable[[], object] = looker.close
    else:
        host = subprocess.Popen([sys.executable, "-c", LOOKS, str(pid)], stdout=-1, text=True)
        assert host.stdout is not None
        for _ in range(10):
            assert host.stdout.readline()
        host.send_signal(signal.SIGSTOP)
        ended = host.kill
    if way == "a socket that is full":
        unread = array.array("i", [0])
        until(lambda: fcntl.ioctl(looker, termios.FIONREAD, unread) == 0 and unread[0] > 50_000)
    time.sleep(2.0)  # more than that piles up nowhere
    memory = psutil.Process(pid).memory_info().rss
    observed.go_on()
    look_again(pid)
    time.sleep(1.0)
    assert psutil.Process(pid).memory_info().rss < memory + (32 << 20)
    begun = time.monotonic()
    said, errors = observed.end()
    assert time.monotonic() - begun < 20
    assert observed.process.returncode == 0
    assert said
    assert errors.startswith("devexplorer: train.py: ")
    ended()
    if way == "a host that is stopped":
        host.communicate()


def sockets(pid: int) -> list[Path]:
    """Where the script listens."""
    from devexplorer.core.observe.running import folders

    return [path for folder in folders() if (path := Path(socket_of(folder, pid))).exists()]
