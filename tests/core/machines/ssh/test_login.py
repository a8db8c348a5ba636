"""From the start of ssh to the marker: login scripts, failures of ssh and of what is there, and nothing left behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from fakes.ssh import fake_ssh

from devexplorer.core.machines.ssh.connection import LOGIN_S, Connection
from devexplorer.core.machines.ssh.records import ConnectionFailed, ConnectionFailure, ConnectProgress, Report, Said

SCRIPTS = sorted(Path(__file__).with_name("login_scripts").glob("*.sh"))
IN_SH = ("prints", "exits", "traps", "traces", "no_path", "closes_descriptors")
"""Those that another shell may understand in another way."""
SHORT = 1.0
"""For those that never come to the marker."""


def connect(environ: dict[str, str], login_s: float = LOGIN_S) -> tuple[list[Report], ConnectionFailure | None]:
    """Open a connection and close it; what was reported, and why it failed."""
    reports: list[Report] = []
    connection = Connection("gpu1", reports.append, environ=environ, login_s=login_s)
    try:
        connection.open()
        return reports, None
    except ConnectionFailed as failed:
        text, failure = str(failed), failed.failure
    finally:
        connection.close()
    assert text.isprintable(), "one line, without control characters"
    return reports, failure


@pytest.mark.parametrize(
    ("script", "shell"),
    [(path, shell) for path in SCRIPTS for shell in ("bash", "sh") if shell == "bash" or path.stem in IN_SH],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_noisy_login(script: Path, shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    expected = re.findall("# expect: (.*)", script.read_text())[0]
    runs = {"bash": f"BASH_ENV='{script}' exec bash -c \"unset BASH_ENV; $far\"", "sh": f'. "{script}"; eval "$far"'}
    environ = fake_ssh(tmp_path, runs[shell])
    reports, failure = connect(environ, SHORT if expected == "login waits" else LOGIN_S)
    assert ("ready" if failure is None else failure.kind) == expected, failure
    assert ConnectProgress(step="connecting") in reports
    assert all(report.text.isprintable() for report in reports if isinstance(report, Said))


@pytest.mark.parametrize("shell", ["dash", "zsh", "fish", "tcsh", "ksh", "mksh", "busybox"])
def test_shells_of_the_login(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    word = f"{shell} sh" if shell == "busybox" else shell
    assert connect(fake_ssh(tmp_path, f'exec {word} -c "$far"'))[1] is None


FAILURES = {
    "unknown host": "ssh: Could not resolve hostname gpu1: Name or service not known",
    "refused": "ssh: connect to host gpu1 port 22: Connection refused",
    "timed out": "ssh: connect to host gpu1 port 22: Connection timed out",
    "unreachable": "ssh: connect to host gpu1 port 22: No route to host",
    "denied": "me@gpu1: Permission denied (publickey,password).",
    "host key unknown": "Host key verification failed.",
    "host key changed": (
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nOffending ED25519 key in known_hosts:1\n"
        "Host key verification failed."
    ),
    "bad configuration": "/root/.ssh/config: line 3: Bad configuration option: frobnicate",
    "closed": "kex_exchange_identification: Connection closed by remote host",
    "other": "ssh: something that there has never been\x1b[2J",
}


@pytest.mark.parametrize("kind", FAILURES)
def test_what_ssh_says_becomes_one_line(kind: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(f"a banner\x1b[31m\n{FAILURES[kind]}\n")
    reports, failure = connect(fake_ssh(tmp_path, f"cat '{tmp_path}/said' >&2; exit 255"))
    assert failure is not None
    assert failure.kind == kind
    said = [report.text for report in reports if isinstance(report, Said)]
    assert said[0] == "a banner?[31m"
    assert ("WARNING" in "".join(said)) == (kind == "host key changed"), "its own words say what to do"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("no shell", "echo 'This account is currently not available.'; exit 1"),
        ("no shell", "echo \"fatal: unrecognized command 'exec /bin/sh -c'\" >&2; exit 128"),
        ("no shell", "echo 'This service allows sftp connections only.'; exit 1"),
        ("restricted shell", "echo 'bash: line 1: exec: restricted' >&2; exit 1"),
        ("login ended", "echo 'Only backups here'; exit 0"),
        ("no python", "echo; echo $(backwards) none; exec sleep 9"),
        ("old python", "echo; echo $(backwards) old; exec sleep 9"),
        ("lost", "say_marker; head -c 9000 >/dev/null; exit 255"),
        ("lost", "say_marker; exit 0"),
        ("garbage", "say_marker; head -c 9000 >/dev/null; exec yes"),
        (
            "garbage",
            "say_marker; head -c 9000 >/dev/null; printf '%b[1]' '\\0\\0\\0\\3\\0\\0\\0\\0'; exec sleep 9",
        ),
        (
            "garbage",
            "say_marker; head -c 9000 >/dev/null; printf '%b{}' '\\0\\0\\0\\2\\0\\0\\0\\0'; exec sleep 9",
        ),
        ("timed out", "exec sleep 9"),
    ],
)
def test_what_the_far_side_does_becomes_one_line(kind: str, body: str, tmp_path: Path) -> None:
    _, failure = connect(fake_ssh(tmp_path, body), SHORT if kind == "timed out" else LOGIN_S)
    assert failure is not None
    assert failure.kind == kind, failure


def test_the_restricted_shell_of_bash(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    _, failure = connect(fake_ssh(tmp_path, 'exec bash -r -c "$far"'))
    assert failure is not None
    assert failure.kind == "restricted shell"


def test_no_ssh_at_all(tmp_path: Path) -> None:
    _, failure = connect({"PATH": str(tmp_path)})
    assert failure is not None
    assert failure.kind == "no ssh"


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", "", "a b", "a\nb"])
def test_what_is_no_host_is_not_given_to_ssh(host: str, tmp_path: Path) -> None:
    connection = Connection(host, lambda report: None, environ=fake_ssh(tmp_path))
    with pytest.raises(ConnectionFailed) as refused:
        connection.open()
    connection.close()
    assert refused.value.failure.kind == "bad host"
    assert not (tmp_path / "arguments").exists()
