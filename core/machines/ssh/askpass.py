"""Questions of ssh without a terminal: its `SSH_ASKPASS` is a program of ours (`askpass_program.py`), which asks here,
over a socket that only this user can open. Served by the thread of the connection; `answer` comes from any other.

Nothing is stored: an answer is written to that program, and forgotten.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from devexplorer.core.base import Unavailable, printable
from devexplorer.core.machines.ssh import askpass_program
from devexplorer.core.machines.ssh.records import Prompt, PromptKind, Withdrawn

LONGEST = 1 << 14
"""Bytes of a question; the server's part of it has no limit of its own."""
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
        self._reading: dict[int, tuple[socket.socket, bytearray]] = {}
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
        return [self._door.fileno(), *self._reading, *self._asking]

    def serve(self, ready: set[int]) -> None:
        """Take what has come in on these descriptors, and pass answers on."""
        if self._door.fileno() in ready:
            self._accept()
        for number in ready & self._asking.keys():  # it says nothing more: ssh has ended it
            connection, prompt = self._asking.pop(number)
            connection.close()
            self._report(Withdrawn(number=prompt.number))
        for number in ready & self._reading.keys():
            self._read(number)
        while not self._answers.empty():
            self._pass_on(*self._answers.get())

    def close(self) -> None:
        """Withdraw what is asked, and remove the folder."""
        for connection, prompt in self._asking.values():
            connection.close()
            self._report(Withdrawn(number=prompt.number))
        for connection, _ in self._reading.values():
            connection.close()
        self._asking.clear()
        self._reading.clear()
        self._door.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._door.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._reading[connection.fileno()] = connection, bytearray()

    def _read(self, number: int) -> None:
        connection, data = self._reading[number]
        try:
            piece = connection.recv(LONGEST)
        except OSError:
            piece = b""
        data += piece
        if piece and not data.endswith(b"\n") and len(data) <= LONGEST * 6:  # as JSON a character can take six
            return
        del self._reading[number]
        try:
            question = msgspec.json.decode(data, type=_Question)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            connection.close()
            return
        self._last += 1
        prompt = Prompt(number=self._last, kind=kind_of(question.text, question.prompt), text=shown(question.text))
        self._asking[number] = connection, prompt
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
                connection.setblocking(True)
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
