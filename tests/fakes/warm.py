"""Processes that are ready at once: forked from one that has imported torch, for tests of what happens in a process
and not of how it starts.

With the fixture `warm_processes`, `subprocess.Popen` starts Python that way. All else is as ever: a child of this
process with its own pipes, session, folder, environment, `__main__` and exit code. Linux; elsewhere Python starts as
it does.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from fakes import nursery as inside

PR_SET_CHILD_SUBREAPER = 36
Cold = subprocess.Popen


class Nursery:
    """The process that others are forked from."""

    pid: ClassVar[int | None] = None
    """The one of this process, where there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._door, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            number = there.fileno()
            command = [sys.executable, "-P", inside.__file__, str(number)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            self._process = Cold(command, pass_fds=[number], **pipes)  # pipes, as most of what is forked has
        Nursery.pid = self._process.pid

    def fork(self, order: inside.Order, files: dict[int, int]) -> int:
        """Start a child of this process; `files`: its descriptors, and which of ours they are."""
        text = json.dumps({**order, "numbers": list(files)}).encode()
        with self._lock:
            _adopt(True)
            try:
                socket.send_fds(self._door, [text], list(files.values()))
                return int(self._door.recv(inside.LONGEST))
            finally:
                _adopt(False)

    def close(self) -> None:
        """End it."""
        self._door.close()
        self._process.communicate()
        Nursery.pid = None


def _adopt(adopts: bool) -> None:
    """Whether a process becomes a child of this one when its parent, a descendant of ours, ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


class Warm(Cold):  # type: ignore[type-arg]
    """A `Popen` that asks the nursery for what is Python."""

    nursery: Nursery

    def _execute_child(self, args: Any, *others: Any) -> None:
        _, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = others[:15]
        argv = [os.fspath(part) for part in args] if isinstance(args, (list, tuple)) else [args]
        if argv[0] != sys.executable or preexec_fn is not None or shell:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        order = {
            "argv": argv[1:],
            "cwd": os.path.abspath(cwd or os.curdir),
            "env": dict(os.environ if env is None else env),
            "session": bool(others[20]),
        }
        standard = enumerate(pipes[at] for at in (0, 3, 5))
        files = {number: number if ours == -1 else ours for number, ours in standard}
        self.pid = self.nursery.fork(order, files | {number: number for number in pass_fds})
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def warm_popen() -> Iterator[type[subprocess.Popen[Any]]]:
    """The `Popen` that asks the nursery, which is started for the first test that needs it."""
    if not sys.platform.startswith("linux"):
        yield Cold
        return
    Warm.nursery = Nursery()
    yield Warm
    Warm.nursery.close()


@pytest.fixture
def warm_processes(warm_popen: type[subprocess.Popen[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this test have torch already."""
    monkeypatch.setattr(subprocess, "Popen", warm_popen)


@pytest.fixture
def cold_processes(warm_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test among others with `warm_processes`: the start of the process belongs to it."""
    monkeypatch.setattr(subprocess, "Popen", Cold)
