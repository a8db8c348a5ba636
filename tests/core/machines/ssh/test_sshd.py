"""Over a real sshd: login scripts, shells, forced commands, keys, and a connection that breaks."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from fakes.sshd import HOST, Sshd, shared_sshd, sshd  # noqa: F401 - fixtures

from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.records import ConnectionFailed, Report, Said

SCRIPTS = Path(__file__).with_name("login_scripts")
MARKER = "7" * 32


def failure(server: Sshd, reports: list[Report] | None = None) -> str:
    """The kind of the failure of a login; empty: it succeeded."""
    report = ([] if reports is None else reports).append
    connection = Connection(HOST, report, environ=server.environ())
    with closing(connection):
        try:
            connection.open()
        except ConnectionFailed as failed:
            return failed.failure.kind
    return ""


def test_a_connection_carries_a_program(shared_sshd: Sshd) -> None:  # noqa: F811
    shared_sshd.login_script("")
    echo = f"import os; print('noise'); os.write(1, b'\\n{MARKER}\\n'); os.write(1, os.read(0, 100)); os.read(0, 1)"
    with closing(Connection(HOST, lambda _: None, environ=shared_sshd.environ())) as connection:
        connection.open()
        assert connection.find()
        out, into = connection.launch([sys.executable, "-c", echo], MARKER)
        into.write(b"\x03\x04~.\r\n")
        assert os.read(out.fileno(), 100) == b"\x03\x04~.\r\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [("picture_in_colours", ""), ("leaves_a_process_behind", ""), ("exits", "login ended")],
)
def test_login_scripts(script: str, kind: str, shared_sshd: Sshd) -> None:  # noqa: F811
    if not pwd.getpwuid(os.getuid()).pw_shell.endswith("bash"):
        pytest.skip("the shell of this login is not bash")
    shared_sshd.login_script((SCRIPTS / f"{script}.sh").read_text())
    assert failure(shared_sshd) == kind


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/sbin/nologin", "no shell"),
        ("internal-sftp", "no shell"),
    ],
)
def test_a_forced_command(command: str, kind: str, sshd: Sshd) -> None:  # noqa: F811
    key = (sshd.folder / "user_key.pub").read_text()
    (sshd.folder / "authorized_keys").write_text(f'command="{command}" {key}')
    assert failure(sshd) == kind


def test_keys_that_are_wrong(sshd: Sshd) -> None:  # noqa: F811
    known, key = sshd.folder / "known_hosts", (sshd.folder / "user_key.pub").read_text()
    (sshd.folder / "authorized_keys").write_text("")
    assert failure(sshd) == "denied"
    (sshd.folder / "authorized_keys").write_text(key)
    known.write_text(" ".join([known.read_text().split()[0], *key.split()[:2]]) + "\n")
    before = known.read_text()
    reports: list[Report] = []
    assert failure(sshd, reports) == "host key changed"
    assert "SOMETHING NASTY" in "".join(report.text for report in reports if isinstance(report, Said))
    assert known.read_text() == before, "what to do about it is for the user to decide"


def test_a_key_that_is_not_known_is_asked_for(sshd: Sshd) -> None:  # noqa: F811
    (sshd.folder / "known_hosts").write_text("")

    def answering(text: str | None) -> str:
        def report(about: Report) -> None:
            if getattr(about, "kind", "") == "host key":
                connection.answer(about.number, text)  # type: ignore[union-attr]

        with closing(Connection(HOST, report, environ=sshd.environ())) as connection:
            try:
                connection.open()
            except ConnectionFailed as failed:
                return failed.failure.kind
        return ""

    assert answering(None) == "host key unknown"
    assert (sshd.folder / "known_hosts").read_text() == ""
    assert answering("yes") == ""
    assert answering(None) == "", "it is known now"


def test_nothing_listens_and_then_the_connection_breaks(sshd: Sshd) -> None:  # noqa: F811
    with closing(Connection(HOST, lambda _: None, environ=sshd.environ())) as connection:
        connection.open()
        sshd.stop()
        with pytest.raises(ConnectionFailed) as lost:
            connection.find()
        assert lost.value.failure.kind == "lost"
    assert failure(sshd) == "refused"


def test_a_connection_that_the_user_shares_is_used_and_not_ended(sshd: Sshd) -> None:  # noqa: F811
    """Theirs goes on when ours ends, and one of ours is never left behind as theirs."""
    config = sshd.folder / "ssh_config"
    socket = Path(tempfile.mkdtemp(dir="/tmp")) / "shared"
    config.write_text(config.read_text() + f"ControlMaster auto\nControlPersist yes\nControlPath {socket}\n")
    try:
        assert failure(sshd) == ""
        assert not socket.exists()
        subprocess.run(["ssh", "-fN", HOST], env=sshd.environ(), check=True, stderr=subprocess.DEVNULL)
        (sshd.folder / "authorized_keys").write_text("")
        assert failure(sshd) == "", "there is no login of our own"
        subprocess.run(["ssh", "-O", "check", HOST], env=sshd.environ(), check=True, stderr=subprocess.DEVNULL)
    finally:
        subprocess.run(["ssh", "-O", "exit", HOST], env=sshd.environ(), check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(socket.parent)
