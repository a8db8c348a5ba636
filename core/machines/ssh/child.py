"""The ssh process: bytes in and out with a time limit, what it prints beside, its end, and its questions, which a
program of ours passes on (`askpass_program.py`). Used by one thread; `cancel` and `answer` may come from any other.

Nothing is stored: an answer is written to that program, and forgotten.

Thread `ssh-errors` reads standard error, as long as the process lives: ssh stops when nobody does. Time that a person
takes for an answer does not count.
"""

from __future__ import annotations

import math
import os
import queue
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from devexplorer.core.base import Cancelled, Unavailable, printable
from devexplorer.core.machines.ssh import askpass_program
from devexplorer.core.machines.ssh.records import Prompt, PromptKind, Withdrawn

LONGEST = 1 << 14
"""Characters of a question; the server's part of it has no limit of its own."""
QUESTION_S = 2.0
"""For the program to say it, once it is connected."""
LONGEST_PATH = 100
"""Bytes; a Unix socket's path has 108 at most."""
_KINDS: tuple[tuple[PromptKind, str], ...] = (
    ("host key", r"\(yes/no|'yes', 'no' or the fingerprint"),
    ("passphrase", r"^Enter passphrase for|^Enter PIN for"),
    ("password", r"password( for .*)?:\s*$"),
    ("code", r"code|token|one.?time|OTP|factor|duo|verification|passcode"),
)
"""What the questions of OpenSSH, and of most servers, say; anything else is asked for as a password is."""


class _Question(msgspec.Struct):
    text: str
    prompt: str = ""


class Askpass:
    """Makes a private folder with the socket and the program; `close` removes it. `report` gets each question."""

    def __init__(self, report: Callable[[Prompt | Withdrawn], None]) -> None:
        self._report = report
        self._answers: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
        self._asking: dict[int, tuple[socket.socket, Prompt]] = {}
        """By the number of the descriptor."""
        self._last = 0
        self.refused: Prompt | None = None
        """The question that was answered with None: ssh would ask again, and is ended instead."""
        self._folder = _folder()
        try:
            self._path = self._folder / "askpass"
            self._program = self._folder / "ask"
            source = str(askpass_program.__file__)
            command = shlex.join([sys.executable, "-I", "-S", source])
            self._program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            self._program.chmod(0o700)
            self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._door.bind(str(self._path))
            self._path.chmod(0o600)
            self._door.listen(8)
            self._door.setblocking(False)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise Unavailable(f"ssh could not ask for a password: {error}") from error

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables for ssh. Before 8.4 it asks this way only where there is a display and no terminal."""
        return {
            "DISPLAY": ":",
            **environ,
            "SSH_ASKPASS": str(self._program),
            "SSH_ASKPASS_REQUIRE": "force",
            askpass_program.SOCKET: str(self._path),
        }

    def answer(self, number: int, text: str | None) -> None:
        """Answer a question; None: the login is given up. From any thread, which then wakes the connection's."""
        self._answers.put((number, text))

    # --- the thread of the connection

    @property
    def pending(self) -> bool:
        """Whether a person is being asked."""
        return bool(self._asking)

    def descriptors(self) -> list[int]:
        """Where something can come in."""
        return [self._door.fileno(), *self._asking]

    def serve(self, ready: set[int]) -> None:
        """Take what has come in on these descriptors, and pass answers on."""
        if self._door.fileno() in ready:
            self._accept()
        for number in ready & self._asking.keys():  # it says nothing more: ssh has ended it
            connection, prompt = self._asking.pop(number)
            connection.close()
            self._report(Withdrawn(number=prompt.number))
        while not self._answers.empty():
            self._pass_on(*self._answers.get())

    def close(self) -> None:
        """Withdraw what is asked, and remove the folder."""
        for connection, prompt in self._asking.values():
            connection.close()
            self._report(Withdrawn(number=prompt.number))
        self._asking.clear()
        self._door.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._door.accept()
        except OSError:
            return
        connection.settimeout(QUESTION_S)
        try:
            with connection.makefile("rb") as lines:
                question = msgspec.json.decode(lines.readline(LONGEST * 6), type=_Question)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            connection.close()
            return
        self._last += 1
        prompt = Prompt(number=self._last, kind=kind_of(question.text, question.prompt), text=shown(question.text))
        self._asking[connection.fileno()] = connection, prompt
        self._report(prompt)

    def _pass_on(self, number: int, text: str | None) -> None:
        found = next((key for key, (_, prompt) in self._asking.items() if prompt.number == number), None)
        if found is None:  # withdrawn meanwhile
            return
        connection, prompt = self._asking.pop(found)
        with connection:
            if text is None:
                self.refused = prompt
                return
            try:
                connection.sendall(text.replace("\n", " ").encode() + b"\n")
            except OSError:
                pass


def kind_of(text: str, prompt: str = "") -> PromptKind:
    """What is asked for; `prompt` is what ssh says of it in `SSH_ASKPASS_PROMPT`."""
    if prompt == "none":
        return "notice"
    if prompt == "confirm":
        return "confirmation"
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text, re.IGNORECASE)), "password")


def shown(text: str) -> str:
    """A question word for word, line by line, without what a server could do harm with."""
    return "\n".join(map(printable, text[:LONGEST].splitlines())).strip()


def _folder() -> Path:
    """A new folder for this user alone, with a short path, where programs can be run."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp", os.path.expanduser("~/.cache")):
        try:
            if not base or len(os.fsencode(base)) > LONGEST_PATH - 40 or os.statvfs(base).f_flag & os.ST_NOEXEC:
                continue
            return Path(tempfile.mkdtemp(prefix="devexplorer-ssh-", dir=base))
        except OSError:
            continue
    raise Unavailable("ssh could not ask for a password: there is no folder for a program of this user's alone")


GRACE_SECONDS = 1.0
"""For ssh to say goodbye, before its group is killed."""
KEPT = 1 << 14
"""Characters of standard error that are kept."""
LONGEST_LINE = 1 << 12
PIECE = 1 << 16


class Ended(Exception):
    """ssh has closed its output, or takes no more input."""


class TimedOut(Exception):
    """It took too long."""


class SshChild:
    """Started at once; raises `OSError` where it cannot be. `close` ends it, however far it came."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        heard: Callable[[str], None],
        askpass: Askpass | None,
    ) -> None:
        """`heard` gets each line of standard error, from another thread. Without `askpass` ssh asks on the terminal of
        this process, and so stays in its group."""
        self._askpass = askpass
        self._own_session = askpass is not None
        self._heard = heard
        self.words = ""
        """What it printed on standard error, the end of it."""
        self._cancelled = threading.Event()
        self._closing, self._closed = threading.Lock(), False
        self._process = _start(command, environ, own_session=self._own_session)
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout
        os.set_blocking(self.stdin.fileno(), False)
        self._errors = threading.Thread(target=self._listen, name="ssh-errors", daemon=True)
        self._errors.start()

    # --- any thread

    def cancel(self) -> None:
        """Let the call that waits raise `Cancelled`, and each one after it."""
        self._cancelled.set()
        self.wake()

    def wake(self) -> None:
        """Let the call that waits look around."""
        try:
            self._wake.send(b"w")
        except OSError:  # full, or closed: it is awake, or has ended
            pass

    # --- the thread of the connection

    def read_some(self, seconds: float) -> bytes:
        """What comes next; raises `Ended`, `TimedOut`, `Cancelled`."""
        self._wait(self.stdout.fileno(), select.POLLIN, seconds)
        return self._read(PIECE)

    def read_exactly(self, count: int, seconds: float | None) -> bytes:
        """So many bytes and not one more; `seconds` is the longest time without any, None: there is no limit."""
        data = bytearray()
        while len(data) < count:
            self._wait(self.stdout.fileno(), select.POLLIN, seconds)
            data += self._read(min(count - len(data), PIECE))
        return bytes(data)

    def write(self, data: bytes, seconds: float, sent: Callable[[float], None] = lambda _: None) -> None:
        """Send everything; `seconds` is the longest time in which nothing is taken. `sent` is told the share."""
        rest = memoryview(data)
        while rest:
            self._wait(self.stdin.fileno(), select.POLLOUT, seconds)
            try:
                rest = rest[os.write(self.stdin.fileno(), rest[:PIECE]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Ended from None
            sent(1 - len(rest) / len(data))

    def stop_asking(self) -> None:
        """ssh has logged in, and asks for nothing any more."""
        askpass, self._askpass = self._askpass, None
        if askpass is not None:
            askpass.close()

    def hand_over(self) -> None:
        """From here on the streams are somebody else's: plain, blocking ones."""
        os.set_blocking(self.stdin.fileno(), True)

    def ended(self) -> tuple[int | None, str]:
        """After `Ended`: ssh's exit code, None if it goes on without output, and what it printed on standard error."""
        code = self._exit_code(GRACE_SECONDS)
        if code is not None:
            self._errors.join(GRACE_SECONDS)
        return code, self.words

    def close(self) -> None:
        """End ssh and what it started; returns when they are gone. From any thread, also while another one reads or
        writes: its streams are closed when ssh has ended."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self.cancel()
        if self._exit_code(0) is None:
            self._process.terminate()  # it says goodbye to the host, and ends its own jump host's command
            self._exit_code(GRACE_SECONDS)
        if self._own_session:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        else:
            self._process.kill()
        self._process.wait()
        self._errors.join(GRACE_SECONDS)
        for stream in (self.stdin, self.stdout, self._woken, self._wake):
            stream.close()
        self.stop_asking()

    # --- inside

    def _wait(self, descriptor: int, event: int, seconds: float | None) -> None:
        """Until the descriptor is ready; meanwhile prompts are passed on."""
        left = math.inf if seconds is None else seconds
        while True:
            if self._cancelled.is_set():
                raise Cancelled("cancelled; nothing has changed")
            poll = select.poll()
            poll.register(descriptor, event)
            poll.register(self._woken, select.POLLIN)
            asked = self._askpass is not None and self._askpass.pending
            for doors in () if self._askpass is None else self._askpass.descriptors():
                poll.register(doors, select.POLLIN)
            began = time.monotonic()
            ready = {number for number, _ in poll.poll(None if asked or left == math.inf else max(left, 0) * 1000)}
            if not asked:
                left -= time.monotonic() - began
            if self._woken.fileno() in ready:
                self._woken.recv(PIECE)
            if self._askpass is not None:
                self._askpass.serve(ready)
                if self._askpass.refused is not None:
                    raise Ended
            if descriptor in ready and not self._cancelled.is_set():
                return
            if left <= 0 and not asked:
                raise TimedOut

    def _read(self, count: int) -> bytes:
        try:
            data = os.read(self.stdout.fileno(), count)
        except OSError:
            raise Ended from None
        if not data:
            raise Ended
        return data

    def _exit_code(self, seconds: float) -> int | None:
        """Without reaping it: until then the number of its group is its own."""
        until = time.monotonic() + seconds
        while (result := os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            if time.monotonic() >= until:
                return None
            time.sleep(0.005)
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        line = b""
        with stream:
            while piece := os.read(stream.fileno(), PIECE):
                self.words = (self.words + piece.decode("utf-8", "replace"))[-KEPT:]
                *lines, line = (line + piece).split(b"\n")
                line = line[-LONGEST_LINE:]
                for whole in lines:
                    self._heard(whole[-LONGEST_LINE:].decode("utf-8", "replace"))
            if line:
                self._heard(line.decode("utf-8", "replace"))


def _start(command: Sequence[str], environ: Mapping[str, str], *, own_session: bool) -> subprocess.Popen[bytes]:
    """On a terminal Ctrl-C reaches ssh as well. It ignores it, as it inherits that: the far side is to end first."""
    here = not own_session and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(environ),
            start_new_session=own_session,
        )
    finally:
        if here:
            signal.signal(signal.SIGINT, before)
