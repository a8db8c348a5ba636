"""Where a host is found, who may be believed there, how two starts make one host, what is left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.command_line import Document, Refusal
from fakes.hosts import short_folder

from devexplorer.core.base import LinkError
from devexplorer.core.machines.host import finding, listing
from devexplorer.core.machines.host.daemon import HostSocket, bound_log
from devexplorer.core.machines.host.finding import (
    HostError,
    HostPlace,
    connect,
    find,
    folders,
    last_line,
    make,
    places,
    pump,
    reach,
)
from devexplorer.core.machines.host.wire import SocketStream, read_hello, send_hello
from devexplorer.core.machines.records import PROTOCOL, Hello
from devexplorer.core.machines.window import routes
from devexplorer.core.machines.window.link import CannotReach

ABOUT = Hello(pid=os.getpid(), since_unix_s=1.0, python="/usr/bin/python3", clients=2, busy=("job",))
HOST = """
import os, socket, sys
place, count = sys.argv[1:]
open(count, "a").write("x")
listening = socket.socket(socket.AF_UNIX)
listening.bind(place)
listening.listen()
connections = [listening.accept()[0] for _ in range(int(os.environ["CONNECTIONS"]))]
for connection in connections:
    connection.recv(1)
"""
"""Stands for a host: listens, and ends when everybody who connected has left."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    (folder / "run").mkdir(mode=0o700)
    (folder / "tmp").mkdir()
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run"), "TMPDIR": str(folder / "tmp"), "XDG_DATA_HOME": "/x"}


def test_the_runtime_folder_comes_first_and_the_temporary_one_next(environ: dict[str, str], folder: Path) -> None:
    assert folders({**environ, "HOME": str(folder)}) == [
        str(folder / "run/devexplorer"),
        str(folder / f"tmp/devexplorer-{os.getuid()}"),
        f"/tmp/devexplorer-{os.getuid()}",
        str(folder / ".devexplorer-hosts"),
    ]
    place = make(environ)
    assert place.folder == str(folder / "run/devexplorer")
    assert os.stat(place.folder).st_mode & 0o777 == 0o700
    assert folders({"XDG_RUNTIME_DIR": "relative"}) == [f"/tmp/devexplorer-{os.getuid()}"]
    other = {**environ, "XDG_DATA_HOME": "/y"}
    assert places(other)[0].name != place.name  # another history is another host


def test_a_folder_that_others_could_change_is_not_used(
    environ: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "folders", lambda _environ: [str(folder / "run/devexplorer")])
    wanted = folder / "run/devexplorer"
    wanted.mkdir()
    wanted.chmod(0o770)
    with pytest.raises(HostError, match=r"open to others .mode 0770; 0700 is right"):
        make(environ)
    wanted.rmdir()
    (folder / "mine").mkdir(mode=0o700)
    wanted.symlink_to(folder / "mine")
    with pytest.raises(HostError, match="is a link"):
        make(environ)
    wanted.unlink()
    wanted.write_text("")
    with pytest.raises(HostError, match="is no folder"):
        make(environ)
    wanted.unlink()
    wanted.mkdir(mode=0o700)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(HostError, match="belongs to another user"):
        make(environ)


def test_what_cannot_be_made_is_said_for_every_folder(
    environ: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "folders", lambda _: [str(folder / "none/devexplorer"), str(folder / ("x" * 99))])
    with pytest.raises(HostError) as caught:
        make(environ)
    assert "cannot be made (no such file or directory)" in str(caught.value)
    assert "too long for the path of a socket" in str(caught.value)


def test_where_the_others_are_too_long_or_taken_the_home_folder_will_do(folder: Path) -> None:
    """Somebody else may have made our folder in /tmp before us."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / f"tmp/devexplorer-{os.getuid()}").write_text("taken")
    environ = {"XDG_RUNTIME_DIR": str(folder / ("x" * 99)), "TMPDIR": str(folder / "tmp"), "HOME": str(folder)}
    wanted = [place for place in folders(environ) if not place.startswith("/tmp/devexplorer-")]
    assert [Path(place).name for place in wanted][-1] == ".devexplorer-hosts"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "folders", lambda _environ: wanted)
        assert make(environ).folder == str(folder / ".devexplorer-hosts")


def test_a_read_only_folder_is_passed_over(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "run/" not in str(path) and real(path, mode))
    assert make(environ).folder == folders(environ)[1]


@pytest.fixture
def answers() -> list[str]:
    """Empty: the host does not."""
    return ["yes"]


@pytest.fixture
def listener(environ: dict[str, str], answers: list[str]) -> Iterator[HostSocket]:
    def greet(connection: socket.socket) -> None:
        stream = SocketStream(connection)
        with connection, suppress(LinkError, OSError):
            if read_hello(stream) and answers:
                send_hello(stream, ABOUT)

    made = HostSocket(greet, environ)
    made.claim()
    yield made
    made.close()


def test_one_host_at_a_time(listener: HostSocket, environ: dict[str, str]) -> None:
    with pytest.raises(HostError, match="runs already"):
        HostSocket(lambda _: None, environ).claim()
    assert listener.place is not None
    os.unlink(listener.place.socket)  # nobody answers, and it still holds the lock
    with pytest.raises(HostError, match="starts just now, or ends"):
        HostSocket(lambda _: None, environ).claim()


def test_a_host_that_ends_is_waited_for(
    listener: HostSocket, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.stop_listening()
    assert listing.running(environ) == []
    following = HostSocket(lambda connection: connection.close(), environ)
    with pytest.raises(HostError):
        following.claim()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(time, "sleep", lambda _: listener.close())
        following.claim(10)
    assert len(listing.running(environ)) == 1
    following.close()


def test_a_host_that_runs_is_listed(listener: HostSocket, environ: dict[str, str], answers: list[str]) -> None:
    (found,) = listing.running(environ)
    assert (found.pid, found.hello) == (os.getpid(), ABOUT)
    assert listener.place is not None
    assert os.stat(listener.place.socket).st_mode & 0o777 == 0o600
    answers.clear()
    (found,) = listing.running(environ)
    assert (found.pid, found.hello) == (os.getpid(), None)


def test_what_a_killed_host_left_is_swept_and_does_not_count(environ: dict[str, str]) -> None:
    place = make(environ)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(place.socket)
    dead.close()
    assert connect(place) is None
    assert listing.running(environ) == []
    assert not os.path.exists(place.socket)
    assert listing.running({**environ, "XDG_RUNTIME_DIR": "/none", "TMPDIR": "/none"}) == []


def test_a_host_is_ended_by_the_process_that_answers(
    listener: HostSocket, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        (found,) = listing.running(environ)
        with monkeypatch.context() as short:
            short.setattr(listing, "END_S", 0.1)
            assert not listing.stop(found)
        assert asked.is_set()
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(time, "sleep", lambda _: listener.close())
            assert listing.stop(found)
        asked.clear()
        assert listing.stop(found)
        assert not asked.is_set()  # it had ended: the number could be another process's
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_socket_is_made_again_where_the_system_removed_it(
    listener: HostSocket, environ: dict[str, str], folder: Path
) -> None:
    assert not listener.mend()
    assert listener.place is not None
    os.unlink(listener.place.lock)
    assert listener.mend()
    (found,) = listing.running(environ)
    assert found.hello == ABOUT
    (folder / "run").rename(folder / "gone")  # the user's last login has ended
    assert listener.mend()
    connection = find(environ)
    assert connection is not None
    connection.close()
    (found,) = listing.running(environ)
    assert found.socket.startswith(str(folder / "tmp"))


def test_while_there_is_no_place_it_is_tried_again(
    listener: HostSocket, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "folders", lambda _: [str(folder / "run/devexplorer")])
    (folder / "run").rename(folder / "gone")
    assert listener.mend()
    assert listener.place is None
    (folder / "run").mkdir()
    assert listener.mend()
    assert listener.place is not None


def test_two_proxies_start_one_host(environ: dict[str, str], folder: Path) -> None:
    place, count = places(environ)[0], folder / "count"
    environ["CONNECTIONS"] = "2"
    got: list[socket.socket] = []
    command = [sys.executable, "-S", "-c", HOST, place.socket, str(count)]
    threads = [threading.Thread(target=lambda: got.append(reach(environ, lambda: command))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(got) == 2
    assert count.read_text() == "x"
    for connection in got:
        connection.close()
    os.waitpid(-1, 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no torch\\x1b[31m here')", "could not be started: no torch\\[31m here"),
        ("", "it ended at once"),
    ],
)
def test_why_a_host_did_not_start_is_its_last_line(environ: dict[str, str], code: str, said: str) -> None:
    Path(make(environ).log).write_text("an older line\n")
    with pytest.raises(HostError, match=said):
        reach(environ, lambda: [sys.executable, "-S", "-c", code])


def test_a_host_that_does_not_listen_and_one_that_cannot_be_run(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError, match=r"could not be started .no such file or directory"):
        reach(environ, lambda: ["/none/python"])
    monkeypatch.setattr(finding, "START_S", 0.1)
    (wait, go) = os.pipe()
    os.set_inheritable(wait, True)
    command = ["sh", "-c", f"read line < /proc/{os.getpid()}/fd/{wait}"]
    with pytest.raises(HostError, match="did not listen within"):
        reach(environ, lambda: command)
    os.write(go, b"\n")
    os.waitpid(-1, 0)
    os.close(wait)
    os.close(go)


def test_bytes_go_both_ways_until_one_side_ends() -> None:
    ours, theirs = socket.socketpair()
    (read, keyboard), (screen, write) = os.pipe(), os.pipe()
    thread = threading.Thread(target=pump, args=(ours, read, write, b"\nabc\n"))
    thread.start()
    os.write(keyboard, b"hello" * 50_000)
    got = b""
    while len(got) < 250_000:
        got += theirs.recv(1 << 16)
    assert got == b"hello" * 50_000
    theirs.sendall(b"answer")
    assert _read(screen, 11) == b"\nabc\nanswer"
    os.close(keyboard)
    thread.join(10)
    assert not thread.is_alive()
    assert theirs.recv(1) == b""
    for each in (ours, theirs):
        each.close()
    for descriptor in (read, screen, write):
        os.close(descriptor)


def test_where_nobody_takes_anything_nothing_is_read() -> None:
    ours, theirs = socket.socketpair()
    (read, keyboard), (screen, write) = os.pipe(), os.pipe()
    thread = threading.Thread(target=pump, args=(ours, read, write))
    thread.start()
    os.set_blocking(keyboard, False)
    sent = 0
    stalled = threading.Event()
    while not stalled.wait(0.02):
        before = sent
        try:
            while True:
                sent += os.write(keyboard, b"x" * 65536)
        except BlockingIOError:
            if sent == before:
                stalled.set()
    assert sent < 4 << 20
    theirs.close()  # the host ends
    thread.join(10)
    assert not thread.is_alive()
    ours.close()
    for descriptor in (keyboard, read, screen, write):
        os.close(descriptor)


def _read(descriptor: int, count: int) -> bytes:
    got = b""
    while len(got) < count:
        got += os.read(descriptor, count - len(got))
    return got


def test_the_log_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab") as log:
        log.write(b"".join(b"line %d\n" % number for number in range(1000)))
        log.flush()
        assert bound_log(str(path), 4000)
        log.write(b"and on\n")
    lines = path.read_text().splitlines()
    assert lines[-2:] == ["line 999", "and on"]
    assert all(line.startswith("line ") for line in lines[:-1])
    assert len(path.read_bytes()) < 2100
    assert not bound_log(str(path), 4000)
    assert last_line(str(path)) == "and on"
    assert last_line(str(tmp_path / "none")) == ""


def test_the_command_lists_hosts(
    listener: HostSocket,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    document: Document,
    refusal: Refusal,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    (found,) = document("host", "list")["hosts"]
    assert found["pid"] == os.getpid()
    assert (found["clients"], found["busy"], found["protocol"]) == (2, ["job"], PROTOCOL)
    assert "no host of yours" in refusal("host", "stop", "123")
    listener.close()
    assert document("host", "list") == {"schema": 1, "hosts": []}
    assert document("host", "stop") == {"schema": 1, "stopped": [], "hanging": []}


def test_the_place_of_a_host_names_its_files() -> None:
    place = HostPlace("/run/devexplorer", "abc")
    assert [place.socket, place.lock, place.log] == [
        f"/run/devexplorer/abc{suffix}" for suffix in (".sock", ".lock", ".log")
    ]


def test_virtual_gpus_beside_cards_have_a_host_of_their_own_without_the_cards(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environ, "CUDA_VISIBLE_DEVICES": "0"}.items():
        monkeypatch.setenv(name, value)
    near, far = socket.socketpair()
    started: list[dict[str, str]] = []

    def played(variables: dict[str, str], command: object) -> socket.socket:
        started.append(variables)
        return near

    monkeypatch.setattr(routes, "reach", played)
    channel = routes.virtual_route().open()
    (variables,) = started
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["HIP_VISIBLE_DEVICES"]) == ("", "")
    assert places(variables)[0].folder == places(environ)[0].folder
    assert places(variables)[0].name != places(environ)[0].name, "not the host that ssh finds"
    far.sendall(b"hello")
    assert (channel.read(5), channel.write(b"here"), far.recv(9)) == (b"hello", 4, b"here")
    channel.close()
    assert far.recv(1) == b""
    far.close()


def test_a_host_for_virtual_gpus_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> socket.socket:
        raise HostError("the host could not be started: no space")

    monkeypatch.setattr(routes, "reach", fails)
    with pytest.raises(CannotReach, match="no space") as caught:
        routes.virtual_route().open()
    assert caught.value.final
