"""`--ssh HOST`: a command on another machine, with its documents, exit codes and errors as if it ran here."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.command_line import CLI
from fakes.ssh import RUNS_HERE, fake_ssh
from fakes.sshd import HOST, Sshd, shared_sshd  # noqa: F401 - a fixture

from devexplorer.core.cli.run import main
from devexplorer.core.machines.commands.command import _Output
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.session.settings import KnownMachine, Settings, SettingsFile


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the other machine: our code is copied, and compiled, once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def host(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that is this one, by a fake ssh."""
    for name, value in fake_ssh(tmp_path, XDG_CACHE_HOME=str(cache)).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def command(*words: str, python: str = sys.executable) -> list[str]:
    return ["--ssh", "gpu1", "--python", python, *words]


def without_readings(value: Any) -> Any:
    """What is the same a second later."""
    if isinstance(value, dict):
        readings = ("time_unix_s", "memory_used_bytes", "memory_free_bytes", "utilization_percent")
        return {key: without_readings(part) for key, part in value.items() if key not in readings}
    return [without_readings(part) for part in value] if isinstance(value, list) else value


def test_the_document_is_that_of_the_machine(
    shared_sshd: Sshd,  # noqa: F811
    no_virtual_gpus_left: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a real sshd; a login script that prints does no harm."""
    threads = f"export OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}" if "OMP_NUM_THREADS" in os.environ else ""
    shared_sshd.login_script(f"echo Welcome; printf '\\033[2J'; echo Your quota is exceeded >&2\n{threads}\n")
    monkeypatch.setenv("PATH", shared_sshd.environ()["PATH"])
    words = ["--virtual", "Tesla T4", "devices", "--json"]
    assert main(words) == 0
    here = capfd.readouterr()
    assert main(["--ssh", HOST, "--python", sys.executable, *words]) == 0
    there = capfd.readouterr()
    assert without_readings(json.loads(there.out)) == without_readings(json.loads(here.out))
    assert there.err == "Your quota is exceeded\ndevexplorer: copying DevExplorer's code\n"


def test_a_pipe_gets_no_codes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Another program may show it on a terminal; a character that is cut in two is put together."""
    output = _Output(sys.stdout)
    text = "\x1b[2J\x1b]0;title\x07A100 \u202egnp.exe\u202c \x9b31m µ\tred\r\n".encode()
    for byte in text:
        output.write(bytes([byte]))
    output.end()
    shown = capfdbinary.readouterr().out.decode()
    assert shown == "␛[2J␛]0;title␇A100 ⟨U+202E⟩gnp.exe⟨U+202C⟩ ⟨U+009B⟩31m µ\tred␍\n"


def test_exit_codes_and_errors_are_kept(host: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command("place", "no-such-model")) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "copying" not in line]
    assert len(lines) == 1
    assert "no-such-model" in lines[0]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "gpu1 is not known"),
        ("ssh: connect to host gpu1 port 22: Connection refused", "gpu1 refuses the connection"),
        ("me@gpu1: Permission denied (publickey,password).", "gpu1 did not accept the login"),
    ],
)
def test_a_host_that_cannot_be_reached_is_one_line(
    said: str, expected: str, host: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_ssh(host, f"echo '{said}' >&2; exit 255")
    assert main(command("devices")) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"devexplorer: {expected}")
    assert err.count("\n") == 1


def test_a_python_that_is_not_there_is_one_line(host: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command("devices", python="/nowhere/python")) == 2
    assert capfd.readouterr().err == "devexplorer: there is no file /nowhere/python\n"


def test_where_no_python_will_do_one_can_be_named(
    host: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "find", lambda *_: ())
    assert main(["--ssh", "gpu1", "devices"]) == 2
    assert "(found: none); name one with --python" in capfd.readouterr().err


def test_the_python_that_the_window_remembers_for_the_host_is_used(
    host: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(host / "config"))
    monkeypatch.setattr(Connection, "find", lambda *_: ())
    known = (KnownMachine("gpu2"), KnownMachine("gpu1", sys.executable))
    SettingsFile().save(Settings(machines=known))
    words = ["watch", "--count", "1", "--json"]
    assert main(["--ssh", "gpu1", *words]) == 0
    out, err = capfd.readouterr()
    assert "cpu" in out
    assert f"devexplorer: using {sys.executable}, chosen in the window for gpu1; --python names another\n" in err
    assert main(command(*words)) == 0
    assert capfd.readouterr().err == ""
    assert main(["--ssh", "gpu2", *words]) == 2, "none was chosen there, and none is found"


def test_what_asks_no_device_runs_here(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--ssh", "gpu1", "install-desktop"]) == 2
    assert "--ssh means nothing to install-desktop" in capfd.readouterr().err


def test_ctrl_c_ends_the_command_there(host: Path) -> None:
    """`watch` goes on until it is interrupted; then it ends there, and says here how."""
    process = subprocess.Popen(
        [*CLI, *command("watch", "--json", "--interval", "0.1")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"cpu" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_the_reader_has_seen_enough(host: Path) -> None:
    """As with `| head`: the command there ends with the connection, quietly."""
    process = subprocess.Popen(
        [*CLI, *command("watch", "--json", "--interval", "0.01")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(20) == 0


PATIENCE_S = 60.0


class Terminal:
    """A command on a terminal of its own; `shown` is what it has printed."""

    def __init__(self, words: Sequence[str], columns: int = 90, **variables: str) -> None:
        self._ours, theirs = os.openpty()
        self.resize(columns)
        sizes = {"COLUMNS", "LINES"}  # would be believed instead of the terminal
        known = {name: value for name, value in os.environ.items() if name not in sizes}
        environ = {**known, "TERM": "xterm-256color", **variables}
        with_terminal = ["setsid", "--ctty", "--wait", *CLI, *words]
        self._process = subprocess.Popen(with_terminal, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        self.shown = b""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until(self, happened: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            ready, _, _ = select.select([self._ours], [], [], max(end - time.monotonic(), 0.0))
            assert ready, self.shown[-1000:]
            assert time.monotonic() < end, self.shown[-1000:]
            self.shown += os.read(self._ours, 4096)

    def end(self) -> int:
        """Its exit code."""
        try:
            self.until(lambda: False)
        except OSError:  # the other side is closed
            pass
        os.close(self._ours)
        return self._process.wait(20)

    @property
    def codes(self) -> list[bytes]:
        return re.findall(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b", self.shown)

    @property
    def tables(self) -> list[bytes]:
        """What `watch` has drawn, without the codes."""
        return re.split(rb"device  +name", re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\r", b"", self.shown))[1:]


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("watch --count 2 --interval 0.1", {}),
        ("watch --count 2 --interval 0.1", {"TERM": "dumb"}),
        ("devices", {"NO_COLOR": "1"}),
    ],
)
def test_on_a_terminal_it_looks_as_here(host: Path, line: str, variables: dict[str, str]) -> None:
    """The same codes and lines, also where that machine's login has other wishes."""
    words = shlex.split(line)
    fake_ssh(host, f"export NO_COLOR=1 TERM=vt52\n{RUNS_HERE}")
    here, there = Terminal(words, **variables), Terminal(command(*words), **variables)
    assert here.end() == there.end()
    assert there.codes == here.codes
    assert bool(there.codes) == ("TERM" not in variables)
    plain = [re.sub(rb"[\d.]+|  +", b" ", one.shown) for one in (here, there)]  # readings are others a second later
    assert "watch" in line or plain[1].endswith(plain[0])


def test_the_table_follows_the_size_of_the_terminal_and_ctrl_c_leaves_it_in_order(host: Path) -> None:
    there = Terminal(command("--virtual", "Tesla T4", "watch", "--interval", "0.1"), columns=100)
    there.until(lambda: len(there.tables) > 1)
    assert b"\x1b[2J" not in there.codes
    there.resize(60)
    there.until(lambda: b"\x1b[2J\x1b[H" in there.shown)
    drawn = len(there.tables)
    there.until(lambda: len(there.tables) > drawn + 2)
    table = there.tables[-2].decode()
    assert 50 < max(map(len, table.splitlines()[1:])) <= 60
    there.type(b"\x03")
    assert there.end() == 130
    assert there.codes.count(b"\x1b[?25l") == there.codes.count(b"\x1b[?25h") == 1
    assert there.codes[-1] == b"\x1b[?25h"


def test_on_a_terminal_ssh_asks_there_and_no_control_characters_arrive(host: Path) -> None:
    asks = (
        'printf "me@gpu1\'s password: " > /dev/tty; read -r answer < /dev/tty\n'
        "[ \"$answer\" = secret ] || { echo 'me@gpu1: Permission denied (password).' >&2; exit 255; }\n"
    )
    fake_ssh(host, f"printf 'banner \\033]0;title\\007\\n' >&2; {asks}{RUNS_HERE}")
    evil = "print('\\033[2Jhello\\007')\ndef make():\n    raise ValueError('\\033[1;31m')\n"
    (host / "home" / "evil.py").write_text(evil)
    there = Terminal(command("place", str(host / "home" / "evil.py") + ":make"))
    there.until(lambda: b"password: " in there.shown)
    there.type(b"secret\n")
    assert there.end() == 2
    assert b"banner ?]0;title?" in there.shown
    assert b"ValueError" in there.shown
    assert b"?[2Jhello?" in there.shown
    assert set(there.codes) <= {b"\x1b[K"}, "our own line of progress is removed"
    assert b"\x07" not in there.shown
