"""The process of a host: what ends it, what does not, and what a window of it notices."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import host_process
from fakes.command_line import Document
from fakes.hosts import PATIENCE_S, READY, HostHere, WindowHere, short_folder

from devexplorer.core.cli.run import main
from devexplorer.core.environments.code_cache import BOOTSTRAP, note_use
from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.host.daemon import IDLE_S, Daemon, HostSocket, HostUnsavedCopy
from devexplorer.core.machines.host.finding import find, last_line, proxy, reach
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.machines.records import PROTOCOL, RecordingChanged, SnapshotEnd, StartRecording, StopRecording
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.records import Answer, Event, JobEnded, Log, NewTensor, ObjectChanged, ObjectSnapshot, UndoState

COMMAND = [sys.executable, "-P", host_process.__file__]


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    with short_folder() as folder:
        home = {name: str(folder) for name in ("XDG_RUNTIME_DIR", "TMPDIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME")}
        made = {**os.environ, **home}
        yield made
        for found in listing.running(made):
            ours = found.socket.startswith(made["XDG_RUNTIME_DIR"])  # none that runs for somebody
            if ours and found.pid != os.getpid():  # one of this process, in a test that failed
                os.kill(found.pid, signal.SIGKILL)
                os.waitpid(found.pid, 0)


class Here:
    """The way to a host on this machine."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ

    def open(self) -> SocketStream:
        return SocketStream(reach(self.environ, lambda: COMMAND))

    def cancel(self) -> None:
        pass


class Watcher:
    """A window of the host: beats until something is so, and keeps what it was told."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.way = Here(environ)
        self.session = RemoteSession("there", self.way)
        self.told: list[Event] = []
        self.session.start()

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"it did not happen: {self.session.link}"
            self.session.beat()
            self.told += self.session.drain().events
            threading.Event().wait(0.005)

    def until_connected(self) -> None:
        self.until(lambda: self.session.link.state == "connected" and not self.session.why_not())

    def close(self) -> None:
        assert self.session.close()


def test_a_window_uses_a_host_and_survives_its_death(environ: dict[str, str]) -> None:
    watcher = Watcher(environ)
    session = watcher.session
    watcher.until_connected()
    (host,) = listing.running(environ)
    assert host.pid != os.getpid()
    assert host.hello is not None
    assert (host.hello.pid, host.hello.clients, host.hello.protocol) == (host.pid, 1, PROTOCOL)
    assert os.getsid(host.pid) == host.pid
    assert os.readlink(f"/proc/{host.pid}/fd/0") == os.devnull
    assert session.send(NewTensor(name="x")) > 1 << 32
    os.kill(host.pid, signal.SIGHUP)  # its terminal is gone, if it ever had one
    watcher.until(lambda: session.link.latency_s is not None)

    os.kill(host.pid, signal.SIGKILL)
    os.waitpid(host.pid, 0)
    watcher.until(lambda: session.link.state == "reconnecting")
    session.reconnect()
    watcher.until_connected()
    watcher.until(lambda: any("was restarted" in event.text for event in watcher.told if isinstance(event, Log)))
    (other,) = listing.running(environ)
    assert other.pid != host.pid

    os.kill(other.pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(other.pid, 0)[1]) == 0
    watcher.until(lambda: session.link.state == "lost")
    assert "ended by SIGTERM" in session.link.reason
    assert listing.running(environ) == []
    assert last_line(other.log) == "the host ends: it was ended by SIGTERM"
    assert not os.path.exists(other.socket)
    watcher.close()


def test_the_proxy_says_the_marker_and_starts_the_host_which_the_command_ends(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, document: Document, capfd: pytest.CaptureFixture[str]
) -> None:
    (read, keyboard), (screen, write) = os.pipe(), os.pipe()
    codes: list[int] = []
    thread = threading.Thread(
        target=lambda: codes.append(proxy("f00d", lambda: reach(environ, lambda: COMMAND), read=read, write=write))
    )
    thread.start()
    assert os.read(screen, 6) == b"\nf00d\n"
    os.close(keyboard)
    thread.join(10)
    assert codes == [0]
    for descriptor in (read, screen, write):
        os.close(descriptor)

    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["host", "list"]) == 0
    assert sys.executable in capfd.readouterr().out
    assert main(["host", "serve"]) == 0
    assert capfd.readouterr().out == "a host of this Python environment runs already\n"
    (host,) = document("host", "list")["hosts"]
    assert document("host", "stop", str(host["pid"])) == {"schema": 1, "stopped": [host["pid"]], "hanging": []}
    assert os.waitstatus_to_exitcode(os.waitpid(host["pid"], 0)[1]) == 0


def test_why_there_is_no_host_is_one_line(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-S", "-c", "print('first'); raise SystemExit('no room\\non this disk')"]
    assert proxy("f00d", lambda: reach(environ, lambda: command)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("devexplorer: the host could not be started: on this disk (log: ")
    assert err.count("\n") == 1


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostHere]:
    made = HostHere(tmp_path)
    yield made
    made.close()


def test_it_ends_ten_minutes_after_the_last_window_and_the_last_work(
    host: HostHere, environ: dict[str, str], tmp_path: Path
) -> None:
    listener = HostSocket(host.server.take, environ)
    listener.claim()
    daemon = Daemon(host.server, listener, monotonic=lambda: host.now)

    def pass_by(seconds: float) -> None:
        for _ in range(int(seconds // 50)):
            host.now += 50
            daemon.look()
            host.server.tick()

    window = WindowHere(host)
    window.connect()
    window.wait_for(SnapshotEnd)
    pass_by(IDLE_S * 2)
    assert not daemon.over

    window.ask(StartRecording(path=str(tmp_path / "a.devrec")))
    window.cut()
    pass_by(IDLE_S * 2)
    assert not daemon.over

    window.connect()
    window.ask(StopRecording())
    window.wait_for(RecordingChanged, 2)
    window.cut()
    pass_by(IDLE_S - 100)
    host.now += 5 * IDLE_S  # the machine slept: a window has time to come back
    daemon.look()
    assert not daemon.over
    pass_by(100)
    assert daemon.over == "no one was connected for 10 minutes, and nothing was under way"
    listener.close()
    assert find(environ) is None


def test_it_waits_a_day_for_who_would_lose_work(host: HostHere, environ: dict[str, str]) -> None:
    listener = HostSocket(host.server.take, environ)
    listener.claim()
    lacking = [True]
    daemon = Daemon(host.server, listener, would_lose=lambda: lacking[0], monotonic=lambda: host.now)
    for _ in range(100):
        host.now += 50
        daemon.look()
    assert not daemon.over
    lacking[0] = False  # there is a copy now
    host.now += 50
    daemon.look()
    assert daemon.over
    listener.close()


def test_unsaved_work_is_copied_before_the_end_and_offered_by_the_next_host(host: HostHere, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    copies = HostUnsavedCopy(host.session, host.server.known, folder=folder, monotonic=lambda: host.now)
    held = ObjectSnapshot(name="x", kind="tensor", type="Tensor", rows=(), bytes_by_device={}, tensors_by_device={})
    host.say(READY, ObjectChanged(snapshot=held), UndoState(title="Create x", kept_bytes=1, contents=7))

    assert copies.is_lacking()

    def go_on() -> None:
        (command,) = host.engine.sent
        assert isinstance(command, SaveWorkspace)
        assert command.request < 0
        Path(command.path).write_bytes(b"a workspace")
        host.say(JobEnded(request=command.request, ok=True, time_unix_s=1.0))

    copies.finish(go_on)
    assert not copies.is_lacking()
    (kept,) = folder.iterdir()
    gone = folder / re.sub(r"-\d+-\d+\.", f"-{2**22 + 1}-1.", kept.name)  # of a process that there cannot be

    kept.rename(gone)
    later = HostUnsavedCopy(host.session, host.server.known, folder=folder, monotonic=lambda: host.now)
    window = WindowHere(host)
    window.connect()
    host.until(lambda: later.beat() or window.of(Answer))
    answer = window.of(Answer)[-1]
    (offer,) = answer.offers
    assert isinstance(offer.command, OpenWorkspace)
    assert Path(offer.command.path).read_bytes() == b"a workspace"
    assert offer.command.path in answer.words

    def wait() -> None:
        host.now += 1

    later.finish(wait)  # an engine that does not answer is not waited for
    assert Path(offer.command.path).exists()  # nobody has opened it yet
    window.close()


def test_what_a_host_was_started_with_is_noted_as_used(tmp_path: Path) -> None:
    code, packages = tmp_path / "code/1", tmp_path / "packages/2"
    for folder in (code, packages):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    note_use(["python3", "-P", str(code / BOOTSTRAP), f"--after={packages}", "--before=/none", "module"])
    assert min(code.stat().st_mtime, packages.stat().st_mtime) > 1e9


def test_a_folder_that_is_gone_does_not_concern_who_is_connected(host: HostHere, environ: dict[str, str]) -> None:
    listener = HostSocket(host.server.take, environ)
    place = listener.claim()
    daemon = Daemon(host.server, listener, monotonic=lambda: host.now)
    window = WindowHere(host)
    window.connect()
    window.wait_for(SnapshotEnd)
    for name in os.listdir(place.folder):
        os.unlink(os.path.join(place.folder, name))
    os.rmdir(place.folder)
    host.now += 2
    daemon.look()
    connection = find(environ)
    assert connection is not None
    connection.close()
    host.say(Log(level="info", text="still here", time_unix_s=1.0))
    window.wait_for(Log)
    window.close()
    listener.close()
