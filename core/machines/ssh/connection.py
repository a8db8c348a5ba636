"""A connection over ssh: from the child process to a program of ours at the far end, which then has it to itself. Used
by one thread, where every call waits; `cancel`, `answer` and `interrupt` come from any other.

    shell of the login -> /bin/sh -> Python, which says the marker and reads stage 2 (`far_side.py`) -> our program

What was printed before the marker is a login script's, and is thrown away. Afterwards every frame is read to its last
byte and no further, so that the streams can be handed over. The far side is not trusted: frames have a limit, what it
says is shown as plain text.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, get_args

import msgspec

from devexplorer.core.base import BadInput, Unavailable, printable
from devexplorer.core.environments import finding, probe, whole_folders
from devexplorer.core.environments.environment import LEFT_OUT, Environment, Probe, as_probe
from devexplorer.core.machines.ssh import far_side
from devexplorer.core.machines.ssh.child import Askpass, Ended, SshChild, TimedOut
from devexplorer.core.machines.ssh.hosts import checked
from devexplorer.core.machines.ssh.records import (
    OWN_CODE,
    ConnectionFailed,
    ConnectionFailure,
    ConnectProgress,
    FailureKind,
    Report,
    Said,
    Step,
    cut,
    is_final,
    of_login,
    of_ssh,
    one_line_each,
)

# What is run: the arguments of ssh, and the one line that its shell at the far end gets.

CONNECT_S = 15
"""Until the host answers at all; a jump host has its own."""
ALIVE_S = 5
"""Between two questions whether the far end is still there, and after `ALIVE_MISSED` without an answer ssh ends."""
ALIVE_MISSED = 5

PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9", "python3.8",
    "python", "/usr/bin/python3", "/usr/libexec/platform-python",
)  # fmt: skip
"""In this order; what PATH finds can be a script that fails. The last is where Red Hat hides its own."""
NONE, OLD = "none", "old"
"""Said in place of the marker: no Python there, or none that is new enough."""

_CHECK = "import sys; sys.exit(sys.version_info < (3, 6))"
# no string in it, because both kinds of quotation marks are in use around it
_LOADER = (
    "import sys, os; a = sys.argv; end = bytes([10]); os.write(1, end + a[1][::-1].encode() + end);"
    " exec(compile(sys.stdin.buffer.read(int(a[2])), a[0], a[3]))"
)
# -I -S: no variable, no user's folder, no sitecustomize that prints. The second round is for a library path that keeps
# Python from starting.
_SCRIPT = (
    "PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin; export PATH; found=" + NONE + "; for round in 1 2; do"
    " for python in " + " ".join(PYTHONS) + "; do"
    " command -v $python >/dev/null 2>&1 && found=" + OLD + ";"
    f' if $python -I -S -c "{_CHECK}" </dev/null >/dev/null 2>&1; then'
    f' exec $python -I -S -c "{_LOADER}" $0 $1 exec; fi; done; unset LD_LIBRARY_PATH LD_PRELOAD; done;'
    " echo; echo $0 $found"
)


def ssh_command(host: str, marker: str, stage_2_bytes: int) -> Sequence[str]:
    """The arguments of ssh, with the line for the shell at the far end. All else is as the user's own configuration has
    it.

    A connection that they share (`ControlPath`) is used where there is one. None is made: it would end with ours, or
    stay behind. Their forwardings are not repeated: the ports are taken already, or would be given away.
    """
    settings = {
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": ALIVE_MISSED,
        "ControlMaster": "no",
        "ClearAllForwardings": "yes",
        "RemoteCommand": "none",  # theirs, for their terminal
        "LogLevel": "INFO",  # why something failed is read from what it prints
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    far_command = f"exec /bin/sh -c '{_SCRIPT}' {marker[::-1]} {stage_2_bytes}"
    return ["ssh", "-T", "-a", "-x", *options, "--", checked(host), far_command]


T = TypeVar("T")

SENT_ALONG = {"finding": finding, "probe": probe, "whole_folders": whole_folders}
"""Modules that stage 2 uses, by the names that it has for them."""
MOST_BEFORE_START = 1 << 16
"""Bytes that a program may print before its own marker."""
LARGEST_JSON = 4 << 20
LARGEST_BYTES = 1 << 20
_HEAD = struct.Struct(">II")
_OUTPUTS = {"out": 1, "err": 2}
KEPT_NOISE = 1 << 14
"""Bytes of what login scripts print that are kept for an error's text."""
MOST_NOISE = 64 << 20
"""Bytes; login scripts that print more print without end."""
NO_SIZE = os.terminal_size((0, 0))
"""Of a terminal that does not know its own."""


# How long what may take, in seconds; the time in which a person is asked for something does not count.
LOGIN_S = 60.0
"""Without a word of the far side, until our first line."""
ANSWER_S = 30.0
"""For what is done at once."""
PROBE_S = 30.0
"""For a Python there to say what it has."""
START_S = 60.0
"""For a program of ours to say its marker."""


class Connection:
    """One ssh process. `open` first; `launch` or `run` last; `close` always.

    Everything that waits raises `ConnectionFailed` with what is the matter, and `Cancelled`.
    """

    def __init__(
        self,
        host: str,
        report: Callable[[Report], None],
        *,
        login_s: float = LOGIN_S,
        on_terminal: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`report` is told of progress and prompts, from the connection's thread, and of what ssh prints, from another.
        `on_terminal`: ssh itself asks for passwords on the terminal of this process."""
        self.host = host
        self._report = report
        self._login_s = login_s
        self._on_terminal = on_terminal
        self._environ = os.environ if environ is None else environ
        self._askpass: Askpass | None = None
        self._child: SshChild | None = None
        self.is_cancelled = False
        """Whether it was given up."""

    # --- any thread

    def cancel(self) -> None:
        """Give it up: the call that waits raises `Cancelled`."""
        self.is_cancelled = True
        if self._child is not None:
            self._child.cancel()

    def answer(self, number: int, text: str | None) -> None:
        """Answer a `Prompt`; None gives the login up."""
        if self._askpass is not None and self._child is not None:
            self._askpass.answer(number, text)
            self._child.wake()

    def interrupt(self) -> None:
        """While a program runs there: Ctrl-C for it."""
        self._tell({"do": "interrupt"})

    def resize(self, size: os.terminal_size) -> None:
        """While a program runs there: its terminal has this size now."""
        self._tell({"do": "resize", "columns": size.columns, "lines": size.lines})

    def _tell(self, wish: Mapping[str, object]) -> None:
        try:
            os.write(self._running.stdin.fileno(), _frame(wish))  # small enough to be taken whole
        except (OSError, ValueError):
            pass

    # --- the thread of the connection

    def open(self) -> None:
        """Log in, and find a Python that serves us."""
        self.progress("connecting")
        source, marker = stage_2(), secrets.token_hex(16)
        child = self._child = self._start(marker, len(source))
        if self.is_cancelled:
            child.cancel()
        self._log_in(child, marker)
        child.stop_asking()
        self.progress("python")
        self._write(source)
        self._result(ANSWER_S)

    def _log_in(self, child: SshChild, marker: str) -> None:
        """Read up to the marker, however much is printed before it."""
        printed, count = b"\n", 0
        missing: dict[str, FailureKind] = {NONE: "no python", OLD: "old python"}
        try:
            while f"\n{marker}\n".encode() not in printed:
                for how, kind in missing.items():
                    if f"\n{marker[::-1]} {how}\n".encode() in printed:
                        self.fail(kind)
                if count > MOST_NOISE:
                    self.fail("login floods", _last_line(printed))
                piece = child.read_some(self._login_s)
                count += len(piece)
                printed = printed[-KEPT_NOISE:] + piece
        except Ended:
            self._refused(child, printed)
        except TimedOut:
            last = _last_line(printed) or _last_line(child.words.encode())
            self.fail("login waits" if last else "timed out", last, self._login_s)

    def _refused(self, child: SshChild, printed: bytes) -> NoReturn:
        """ssh ended, or was not given what it asked for."""
        refused = None if self._askpass is None else self._askpass.refused
        if refused is not None and refused.kind == "host key":
            self.fail("host key unknown")
        if refused is not None:
            self.fail("prompt refused", f"the {refused.kind} was not given")
        code, words = child.ended()
        if code == OWN_CODE:
            raise ConnectionFailed(of_ssh(self.host, words, CONNECT_S))
        raise ConnectionFailed(of_login(self.host, printed.decode("utf-8", "replace"), words, code))

    def find(self, folder: str = "~") -> tuple[Environment, ...]:
        """The Python environments there, for somebody who works in that folder."""
        rows = self._understood(self.ask({"do": "find", "folder": folder}), tuple[Environment, ...])
        return rows[: finding.MOST]

    def interpreter(self, path: str) -> str:
        """The interpreter that a path there names."""
        return self._understood(self.ask({"do": "interpreter", "path": path}), str)

    def probe(self, python: str, *, with_torch: bool = True) -> Probe:
        """What that Python has; `problem` says why it has nothing. With torch also its devices, which takes longer."""
        self.progress("python", detail=python)
        request = {"do": "probe", "python": python, "seconds": PROBE_S, "with_torch": with_torch}
        return as_probe(_plain(self.ask(request | {"without": LEFT_OUT}, PROBE_S + ANSWER_S)))

    def launch(
        self, command: Sequence[str], marker: str, environ: Mapping[str, str] | None = None
    ) -> tuple[IO[bytes], IO[bytes]]:
        """Become that program, which says the marker on a line of its own; returns its output, positioned right behind
        the marker, and its input: plain pipes, which live until `close`."""
        self.progress("starting")
        self.ask({"do": "launch", "command": command, "without": LEFT_OUT, "environ": environ or {}})
        child = self._running
        expected, printed = f"\n{marker}\n".encode(), bytearray(b"\n")
        try:
            while not printed.endswith(expected):
                printed += child.read_exactly(1, START_S)
                if len(printed) > MOST_BEFORE_START:
                    self._garbage("it prints, and does not start")
        except (Ended, TimedOut):
            code, words = child.ended()
            if code == OWN_CODE:
                self.fail("lost", of_ssh(self.host, words).detail)
            lines = one_line_each(words) or one_line_each(printed.decode("utf-8", "replace")) or [f"exit code {code}"]
            self.fail("not started", lines[-1].removeprefix("devexplorer: "))
        child.hand_over()
        return child.stdout, child.stdin

    def run(
        self,
        command: Sequence[str],
        write: Callable[[int, bytes], None],
        environ: Mapping[str, str] | None = None,
        terminals: Sequence[int] = (),
        size: os.terminal_size = NO_SIZE,
    ) -> int:
        """Run that program without input; `write` gets what it prints and on which descriptor, 1 or 2. Those in
        `terminals` are one terminal of this size there, and come as the first of them. Returns the exit code."""
        self.progress("starting")
        request = {"do": "run", "command": command, "without": LEFT_OUT, "environ": environ or {}}
        names = [name for name, number in _OUTPUTS.items() if number in terminals]
        self._write(_frame(request | {"terminals": names, "columns": size.columns, "lines": size.lines}))
        while True:
            answer, data = self._answer(None)
            if "progress" not in answer:
                return self._understood(self._value(answer), int) & 0xFF
            output = _OUTPUTS.get(str(answer["progress"]))
            if output is None:
                self._garbage("it prints on a descriptor that there is not")
            write(output, data)

    def ask(
        self,
        request: Mapping[str, object],
        seconds: float = ANSWER_S,
        data: bytes = b"",
        sent: Callable[[float], None] = lambda _: None,
    ) -> object:
        """The result of any request; `sent` is told which share of `data` is there."""
        self._write(_frame(request, data), sent)
        return self._result(seconds)

    def progress(self, step: Step, done: float | None = None, detail: str = "") -> None:
        """Say what is being done."""
        self._report(ConnectProgress(step=step, done=done, detail=printable(detail)))

    def close(self) -> None:
        """End ssh with all that belongs to it; at the far end everything ends with the connection."""
        self.is_cancelled = True
        if self._child is not None:
            self._child.close()

    # --- inside

    def _start(self, marker: str, stage_2_bytes: int) -> SshChild:
        try:
            command = ssh_command(self.host, marker, stage_2_bytes)
        except BadInput as error:
            self.fail("bad host", str(error))
        environ = self._environ
        if not self._on_terminal:
            try:
                self._askpass = Askpass(self._report)
            except Unavailable as error:
                self.fail("other", str(error))
            environ = self._askpass.environ(environ)
        try:
            return SshChild(command, environ, self._heard, self._askpass)
        except OSError as error:
            if self._askpass is not None:
                self._askpass.close()
            self.fail("no ssh", str(error))

    def _heard(self, line: str) -> None:
        """A line of standard error. The reason of a failure is told in our own words instead."""
        if line.strip() and not is_final(line):
            self._report(Said(text=cut(printable(line.rstrip()))))

    @property
    def _running(self) -> SshChild:
        if self._child is None:
            raise RuntimeError("open the connection first")
        return self._child

    def _write(self, data: bytes, sent: Callable[[float], None] = lambda _: None) -> None:
        with self._failing():
            self._running.write(data, ANSWER_S, sent)

    def _result(self, seconds: float) -> object:
        answer, _ = self._answer(seconds)
        return self._value(answer)

    def _answer(self, seconds: float | None) -> tuple[dict[str, object], bytes]:
        """The next frame."""
        with self._failing():
            head, body = _HEAD.unpack(self._running.read_exactly(_HEAD.size, seconds))
            if head > LARGEST_JSON or body > LARGEST_BYTES:
                self._garbage("a frame that is too large")
            text = self._running.read_exactly(head, ANSWER_S)
            data = self._running.read_exactly(body, ANSWER_S)
        try:
            return msgspec.json.decode(text, type=dict[str, Any]), data
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._garbage("a frame that is not readable")

    def _value(self, answer: Mapping[str, object]) -> object:
        """The result in a frame; raises what it says went wrong."""
        kind, detail = answer.get("error"), str(answer.get("detail", ""))
        if kind in get_args(FailureKind):
            self.fail(kind, detail)  # type: ignore[arg-type]  # it is one of them
        if "result" not in answer:
            self._garbage(detail)
        return answer["result"]

    def _understood(self, value: object, kind: type[T]) -> T:
        try:
            return msgspec.convert(_plain(value), kind)
        except msgspec.ValidationError:
            self._garbage("an answer that is not understood")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What goes wrong between two frames, as a failure."""
        try:
            yield
        except Ended:
            code, words = self._running.ended()
            own = code == OWN_CODE
            self.fail("lost", of_ssh(self.host, words).detail if own else f"Python there ended with exit code {code}")
        except TimedOut:
            self.fail("lost", "it does not answer any more")

    def _garbage(self, detail: str) -> NoReturn:
        self.fail("garbage", detail)

    def fail(self, kind: FailureKind, detail: str = "", seconds: float = 0.0) -> NoReturn:
        """Raise the failure of this connection."""
        detail = cut(" ".join(printable(detail).split()))
        raise ConnectionFailed(ConnectionFailure(kind=kind, host=printable(self.host), detail=detail, seconds=seconds))


def stage_2() -> bytes:
    """What the Python at the far end reads: `far_side.py` and the files that it uses."""
    texts = {name: _text(module) for name, module in SENT_ALONG.items()}
    return f"{_text(far_side)}\nSOURCES.update({texts!a})\nserve()\n".encode()


def _plain(value: object) -> object:
    """What the far side says, without control characters: it is shown."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return printable(value) if isinstance(value, str) else value


def _text(module: object) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")  # type: ignore[attr-defined]


def _frame(request: Mapping[str, object], data: bytes = b"") -> bytes:
    text = msgspec.json.encode(request)
    return _HEAD.pack(len(text), len(data)) + text + data


def _last_line(printed: bytes) -> str:
    lines = one_line_each(printed.decode("utf-8", "replace"))
    return cut(lines[-1]) if lines else ""
