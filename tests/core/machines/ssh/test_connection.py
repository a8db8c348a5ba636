"""What a connection does behind the marker: requests, programs that get it to themselves or are run there, prompts,
cancelling, and the end of everything that belongs to it."""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fakes.ssh import RUNS_HERE, fake_ssh

from devexplorer.core.base import Cancelled
from devexplorer.core.machines.ssh import connection as connection_module
from devexplorer.core.machines.ssh import far_side
from devexplorer.core.machines.ssh.child import kind_of
from devexplorer.core.machines.ssh.connection import SENT_ALONG, Connection
from devexplorer.core.machines.ssh.records import ConnectionFailed, ConnectProgress, Prompt, Report, Said, Withdrawn

MARKER = "5" * 32


@contextmanager
def connected(environ: dict[str, str], report: Callable[[Report], None] = lambda _: None) -> Iterator[Connection]:
    connection = Connection("gpu1", report, environ=environ)
    try:
        connection.open()
        yield connection
    finally:
        connection.close()


def gone(pid: int) -> bool:
    """Whether a process ends within the time that it gets."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        threading.Event().wait(0.01)
    return False


@pytest.mark.parametrize("module", [far_side, *SENT_ALONG.values()], ids=lambda module: module.__name__)
def test_what_is_sent_is_in_the_syntax_of_python_3_6(module: object) -> None:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "torch"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.14"])
def test_other_pythons_serve_a_connection(version: str, tmp_path: Path) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}*/bin/python3"))
    if not found:
        pytest.skip(f"pyenv has no Python {version} here")
    environ = fake_ssh(tmp_path, f"PATH={found[0].parent}:$PATH; {RUNS_HERE}")
    with connected(environ) as connection:
        assert connection.find(str(tmp_path))
        assert connection.probe(str(found[0])).version.startswith(version)


def test_environments_are_found_and_asked(tmp_path: Path) -> None:
    venv = tmp_path / "home" / "project" / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("version = 3.11.7\n")
    reports: list[Report] = []
    with connected(fake_ssh(tmp_path), reports.append) as connection:
        found = connection.find("~/project")
        assert connection.interpreter("~/project") == str(venv / "bin" / "python")
        with pytest.raises(ConnectionFailed, match="there is no file /nowhere"):
            connection.interpreter("/nowhere")
        probe = connection.probe("/bin/true")
    assert found[0].python == str(venv / "bin" / "python")
    assert found[0].version == "3.11.7"
    assert probe.problem
    assert [report.step for report in reports if isinstance(report, ConnectProgress)] == [
        "connecting",
        "python",
        "python",
    ]


ECHO = f"""
import os, sys
os.write(1, b"sitecustomize says hello\\n")
os.write(1, b"\\n{MARKER}\\n" + bytes([0, 255, 10]))
while data := os.read(0, 1 << 16):
    os.write(1, data)
"""


def test_a_program_gets_the_connection_to_itself(tmp_path: Path) -> None:
    with connected(fake_ssh(tmp_path)) as connection:
        out, into = connection.launch([sys.executable, "-c", ECHO], MARKER)
        assert os.read(out.fileno(), 3) == bytes([0, 255, 10])
        into.write(b"\x00binary\r\n")
        assert os.read(out.fileno(), 100) == b"\x00binary\r\n"
        into.close()
        assert os.read(out.fileno(), 100) == b""


def test_a_program_that_does_not_start_says_why(tmp_path: Path) -> None:
    missing = "ModuleNotFoundError: No module named 'nowhere'"
    with connected(fake_ssh(tmp_path)) as connection, pytest.raises(ConnectionFailed, match=missing):
        connection.launch([sys.executable, "-c", "import nowhere"], MARKER)
    with connected(fake_ssh(tmp_path)) as connection, pytest.raises(ConnectionFailed, match="is not a program"):
        connection.launch(["/nowhere/python"], MARKER)


def run(connection: Connection, code: str) -> tuple[int, bytes, bytes]:
    printed = {1: b"", 2: b""}

    def write(number: int, data: bytes) -> None:
        printed[number] += data
        if b"interrupt me" in data:
            connection.interrupt()

    number = connection.run([sys.executable, "-c", code], write, {"COLUMNS": "93"})
    return number, printed[1], printed[2]


PROGRAMS = [
    ("import os, sys; print(os.environ['COLUMNS']); sys.stderr.write('no'); sys.exit(2)", (2, b"93\n", b"no")),
    ("import os; os.kill(os.getpid(), 9)", (137, b"", b"")),
    ("import os; os.write(1, b'x' * 3000000)", (0, b"x" * 3000000, b"")),
    ("import sys; print(repr(sys.stdin.read()))", (0, b"''\n", b"")),
    ("import subprocess; subprocess.Popen(['sleep', '30']); print(1)", (0, b"1\n", b"")),
    (
        "import os, time\ntry: os.write(1, b'interrupt me'); time.sleep(9)\nexcept KeyboardInterrupt: print(' ok')",
        (0, b"interrupt me ok\n", b""),
    ),
]


def test_programs_are_run_there(tmp_path: Path) -> None:
    with connected(fake_ssh(tmp_path)) as connection:
        for code, expected in PROGRAMS:
            assert run(connection, code) == expected


def test_what_runs_there_ends_with_the_connection(tmp_path: Path) -> None:
    code = "import os, signal, time; signal.signal(2, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    pids: list[int] = []

    def write(_: int, data: bytes) -> None:
        pids.append(int(data))
        connection.cancel()

    with connected(fake_ssh(tmp_path)) as connection, pytest.raises(Cancelled):
        connection.run([sys.executable, "-c", code], write)
    assert gone(pids[0])


@pytest.mark.parametrize("step", ["connecting", "python", "starting"])
def test_cancelled_between_two_steps(step: str, tmp_path: Path) -> None:
    def report(about: Report) -> None:
        if isinstance(about, ConnectProgress) and about.step == step:
            connection.cancel()

    connection = Connection("gpu1", report, environ=fake_ssh(tmp_path))

    def start() -> None:
        connection.open()
        connection.launch([sys.executable, "-c", ECHO], MARKER)

    with closing(connection), pytest.raises(Cancelled):
        start()


@pytest.mark.parametrize("body", ["", "ask code", "say_marker"], ids=["connecting", "asking", "logged in"])
def test_cancelled_while_it_waits(body: str, tmp_path: Path) -> None:
    connection = Connection(
        "gpu1",
        lambda about: connection.cancel() if isinstance(about, Said | Prompt) else None,
        environ=fake_ssh(tmp_path, f"echo $$ > '{tmp_path}/pid'; {body or ':'}; echo now >&2; exec sleep 60"),
    )
    with pytest.raises(Cancelled):
        connection.open()
    connection.close()
    assert gone(int((tmp_path / "pid").read_text()))


def test_ssh_and_all_that_it_started_are_gone(tmp_path: Path) -> None:
    stubborn = f"trap '' TERM; (trap '' TERM HUP; echo $$ > '{tmp_path}/pid'; exec sleep 60) & {RUNS_HERE}"
    with connected(fake_ssh(tmp_path, stubborn)) as connection:
        folder = connection.ask({"do": "interpreter", "path": sys.executable})
        assert folder == sys.executable
    assert gone(int((tmp_path / "pid").read_text()))


# --- prompts

ASKS_A_PASSWORD = f"""
echo "$SSH_ASKPASS" > '%s'
answer=$(ask "me@gpu1's password: ") || answer=
[ "$answer" = "s3 cret" ] || {{ echo "me@gpu1: Permission denied (password)." >&2; exit 255; }}
code=$(ask "Verification code: ") || exit 255
[ "$code" = 123456 ] || exit 255
{RUNS_HERE}
"""


def logging_in(tmp_path: Path, body: str, *answers: str | None) -> tuple[list[Report], str]:
    """What is reported, and the kind of the failure."""
    reports: list[Report] = []
    left = list(answers)

    def report(about: Report) -> None:
        reports.append(about)
        if isinstance(about, Prompt) and left:
            connection.answer(about.number, left.pop(0))

    connection = Connection("gpu1", report, environ=fake_ssh(tmp_path, body), login_s=5.0)
    try:
        connection.open()
        failure = ""
    except ConnectionFailed as failed:
        failure = failed.failure.kind
    finally:
        connection.close()
    return [about for about in reports if isinstance(about, Prompt | Withdrawn)], failure


def test_a_password_and_a_code(tmp_path: Path) -> None:
    reports, failure = logging_in(tmp_path, ASKS_A_PASSWORD % (tmp_path / "askpass"), "s3 cret", "123456")
    assert failure == ""
    assert reports == [
        Prompt(number=1, kind="password", text="me@gpu1's password:"),
        Prompt(number=2, kind="code", text="Verification code:"),
    ]
    assert not Path((tmp_path / "askpass").read_text().strip()).parent.exists(), "socket and program are removed"


@pytest.mark.parametrize(
    ("answers", "kind"),
    [(("wrong",), "denied"), ((None,), "prompt refused"), (("s3 cret", None), "prompt refused")],
    ids=["a wrong password", "no password", "no code"],
)
def test_a_login_that_fails(answers: tuple[str | None, ...], kind: str, tmp_path: Path) -> None:
    assert logging_in(tmp_path, ASKS_A_PASSWORD % (tmp_path / "askpass"), *answers)[1] == kind


HOST_KEY = (
    "The authenticity of host 'gpu1 (192.0.2.1)' can't be established.\\n"
    "ED25519 key fingerprint is SHA256:abc.\\nAre you sure you want to continue connecting (yes/no/[fingerprint])? "
)


@pytest.mark.parametrize(("answer", "kind"), [("yes", ""), ("no", "host key unknown"), (None, "host key unknown")])
def test_the_key_of_a_host_that_is_not_known(answer: str | None, kind: str, tmp_path: Path) -> None:
    refuse = "{ echo 'Host key verification failed.' >&2; exit 255; }"
    body = f'[ "$(ask "$(printf "{HOST_KEY}")")" = yes ] || {refuse}\n{RUNS_HERE}'
    reports, failure = logging_in(tmp_path, body, answer)
    assert failure == kind
    assert isinstance(reports[0], Prompt)
    assert reports[0].kind == "host key"
    assert "\nED25519 key fingerprint is SHA256:abc.\n" in reports[0].text, "word for word, line by line"


def test_a_notice_is_withdrawn_and_needs_no_answer(tmp_path: Path) -> None:
    body = (
        f"SSH_ASKPASS_PROMPT=none \"$SSH_ASKPASS\" 'Confirm user presence for key' & asking=$!\n"
        f"until [ -e '{tmp_path}/shown' ]; do :; done; kill $asking; wait $asking\n{RUNS_HERE}"
    )
    reports: list[Report] = []

    def report(about: Report) -> None:
        reports.append(about)
        if isinstance(about, Prompt):
            (tmp_path / "shown").touch()

    body = f"echo $SSH_ASKPASS > '{tmp_path}/askpass'\n{body}"
    with connected(fake_ssh(tmp_path, body), report):
        assert not Path((tmp_path / "askpass").read_text().strip()).parent.exists(), "it is logged in"
    prompts = [about for about in reports if isinstance(about, Prompt | Withdrawn)]
    text = "Confirm user presence for key"
    assert prompts == [Prompt(number=1, kind="notice", text=text), Withdrawn(number=1)]


def test_a_question_cannot_move_the_cursor(tmp_path: Path) -> None:
    reports, _ = logging_in(tmp_path, "ask \"$(printf 'Code\\033[2J\\007\\342\\200\\256x:')\"; exit 255", "1")
    assert isinstance(reports[0], Prompt)
    assert reports[0].text == "Code?[2J??x:"


@pytest.mark.parametrize(
    ("text", "prompt", "kind"),
    [
        ("me@gpu1's password: ", "", "password"),
        ("(me@gpu1) Password: ", "", "password"),
        ("(me@gpu1) Mot de passe : ", "", "password"),
        ("Enter passphrase for key '/home/me/.ssh/id_ed25519': ", "", "passphrase"),
        ("Enter PIN for ECDSA-SK key /home/me/.ssh/id: ", "", "passphrase"),
        ("(me@gpu1) Verification code: ", "", "code"),
        ("Duo two-factor login for me\n\nPasscode or option (1-2): ", "", "code"),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", "", "host key"),
        ("Please type 'yes', 'no' or the fingerprint: ", "", "host key"),
        ("Allow use of key me@laptop?", "confirm", "confirmation"),
        ("Confirm user presence for key ED25519-SK", "none", "notice"),
    ],
)
def test_kinds_of_questions(text: str, prompt: str, kind: str) -> None:
    assert kind_of(text, prompt) == kind


def test_on_a_terminal_ssh_asks_itself(tmp_path: Path) -> None:
    """And Ctrl-C, which reaches it there as well, is not for it: the far side is to end first."""
    group = f"cut -d' ' -f5 /proc/$$/stat > '{tmp_path}/group'"
    body = f'[ -z "$DEVEXPLORER_ASKPASS" ] || exit 255\nkill -INT $$\n{group}\n{RUNS_HERE}'
    connection = Connection("gpu1", lambda _: None, on_terminal=True, environ=fake_ssh(tmp_path, body))
    connection.open()
    connection.close()
    assert int((tmp_path / "group").read_text()) == os.getpgrp()


def test_what_a_hostile_far_side_says_is_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = r"""
def evil(link, request, _):
    if request["do"] == "find":
        return [{"python": "/bin/python\x1b]0;x\x07", "label": "\u202egnp.exe"}] * 500
    raise FarRefusal("denied" if request["folder"] else "no such kind", "\x1b[31mred\nand more")
REQUESTS["find"] = REQUESTS["interpreter"] = evil
"""
    source = connection_module.stage_2().replace(b"\nserve()\n", f"\n{evil}\nserve()\n".encode())
    monkeypatch.setattr(connection_module, "stage_2", lambda: source)
    with connected(fake_ssh(tmp_path)) as connection:
        found = connection.find()
        assert (found[0].python, found[0].label, len(found)) == ("/bin/python?]0;x?", "?gnp.exe", 200)
        for folder, kind in (("x", "denied"), ("", "garbage")):
            with pytest.raises(ConnectionFailed) as failed:
                connection.ask({"do": "interpreter", "folder": folder})
            assert failed.value.failure.kind == kind
            assert failed.value.failure.detail == "?[31mred?and more"
