"""A real sshd on this machine with its own configuration, keys and port, for as long as a test lasts, and the `ssh`
that knows it by the name `HOST`. A fixture for whoever imports it.

Whoever runs the tests logs in as himself, with a home folder of the test's own: what stands in its `.bashrc` is the
login script.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

HOST = "devexplorer-test"
STARTS_S = 10.0


class Sshd:
    """Started at once."""

    host = HOST

    def __init__(self, folder: Path, program: str, **variables: str) -> None:
        """`variables`: of every login."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.port = _free_port()
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        home = {"HOME": str(self.home), "XDG_CACHE_HOME": f"{self.home}/.cache"}
        self.settings = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(folder / "host_key"),
            "AuthorizedKeysFile": str(folder / "authorized_keys"),
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "SetEnv": " ".join(f"{name}={value}" for name, value in (home | variables).items()),
        }
        self._program = program
        self._process: subprocess.Popen[str] | None = None
        self._write_ssh()
        self.start()

    def start(self, **settings: str) -> None:
        """Start it, with other settings than before."""
        self.settings |= settings
        lines = "".join(f"{name} {value}\n" for name, value in self.settings.items())
        (self.folder / "sshd_config").write_text(lines)
        command = [self._program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stderr is not None
        killer = threading.Timer(STARTS_S, self._process.kill)
        killer.start()
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "Server listening" in line:
                break
        else:
            pytest.fail("sshd did not start: " + "".join(said))
        killer.cancel()
        killer.join()
        self._log = threading.Thread(target=_read, args=(self._process.stderr,), name="sshd-log", daemon=True)
        self._log.start()

    def stop(self) -> None:
        """End it with every connection that it serves."""
        if self._process is None:
            return
        connections = psutil.Process(self._process.pid).children(recursive=True)
        for process in [*connections, psutil.Process(self._process.pid)]:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass
        self._process.wait()
        self._process = None
        psutil.wait_procs(connections, STARTS_S)
        self._log.join(STARTS_S)

    def vanish(self) -> None:
        """As when a network fails: every connection ends, nobody listens until `start`; what was started goes on."""
        assert self._process is not None
        connections = psutil.Process(self._process.pid).children()
        self._process.kill()
        for process in connections:
            process.kill()
        self._process.wait()
        self._process = None
        psutil.wait_procs(connections, STARTS_S)
        self._log.join(STARTS_S)

    def cut(self) -> None:
        """End every connection, as a broken network does; it goes on listening."""
        assert self._process is not None
        for process in psutil.Process(self._process.pid).children():
            process.kill()

    def login_script(self, text: str) -> None:
        """What every login runs first."""
        (self.home / ".bashrc").write_text(text)

    def environ(self) -> dict[str, str]:
        """The variables of a process whose `ssh` knows this host."""
        path = os.pathsep.join([str(self.folder / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]])
        return {**os.environ, "PATH": path}

    def _write_ssh(self) -> None:
        """Called `ssh`, first on PATH, with a configuration of its own."""
        public = (self.folder / "host_key.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(public)}\n")
        (self.folder / "ssh_config").write_text(
            f"Host {HOST}\nHostName 127.0.0.1\nPort {self.port}\nUser {getpass.getuser()}\n"
            f"IdentityFile {self.folder / 'user_key'}\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {self.folder / 'known_hosts'}\nGlobalKnownHostsFile /dev/null\n"
            "StrictHostKeyChecking ask\n"
        )
        real = shutil.which("ssh")
        program = self.folder / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec {real} -F '{self.folder / 'ssh_config'}' \"$@\"\n")
        program.chmod(0o755)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """One for this test."""
    yield from _running(tmp_path / "sshd")


@pytest.fixture(scope="module")
def shared_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One for all tests of a module, which change no setting."""
    yield from _running(tmp_path_factory.mktemp("sshd") / "sshd")


def program() -> str | None:
    """The sshd of this machine; None: it cannot be used."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return None
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself up; systemd makes it otherwise
    return found


def _running(folder: Path) -> Iterator[Sshd]:
    found = program()
    if found is None:
        pytest.skip("there is no sshd here (Debian and Ubuntu: apt-get install openssh-server openssh-client)")
    server = Sshd(folder, found)
    try:
        yield server
    finally:
        server.stop()


def _read(log: IO[str]) -> None:
    with log:
        log.read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
