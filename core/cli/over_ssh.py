"""`--ssh HOST`: this command on another machine, with its output here. Main thread.

Files that the command names are that machine's. ssh asks for passwords on the terminal; Ctrl-C ends the command there
first, a second one the connection.
"""

from __future__ import annotations

import argparse
import codecs
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TextIO

from devexplorer.core.base import Unavailable, printable
from devexplorer.core.cli.other_python import say_chosen
from devexplorer.core.cli.terminal.interrupt import Raising
from devexplorer.core.cli.terminal.refusal import say
from devexplorer.core.environments.chosen import chosen
from devexplorer.core.records.ssh import Progress, Report, Said
from devexplorer.core.ssh.connection import Connection
from devexplorer.core.ssh.failures import ConnectionFailed
from devexplorer.core.ssh.putting import choose, prepare

MODULE = "devexplorer.core.cli"
UTF_8 = {"PYTHONIOENCODING": "utf-8"}
"""What is printed there is read as that here."""


def over_ssh(arguments: argparse.Namespace) -> int:
    """Run the same command there; returns its exit code. Raises `ConnectionFailed` where it cannot be run."""
    outputs = {1: _Output(sys.stdout), 2: _Output(sys.stderr)}

    def write(number: int, data: bytes) -> None:
        outputs[number].write(data)

    with Raising(), closing(Connection(arguments.ssh, _Teller().tell, on_terminal=True)) as connection:
        connection.open()
        command = prepare(connection, arguments.python or _chosen(connection) or _found(connection))
        with _interrupting(connection):
            return connection.run([*command, MODULE, *arguments.argv], write, UTF_8)


def _chosen(connection: Connection) -> str | None:
    """In the window, for this machine."""
    python = chosen().for_machine(connection.host)
    if python is not None:
        say_chosen(python, connection.host)
    return python


def _found(connection: Connection) -> str:
    try:
        return choose(connection)
    except ConnectionFailed as error:
        if error.failure.kind != "no torch":
            raise
        raise Unavailable(f"{error}; name one with --python") from None


class _Teller:
    """Says on standard error what ssh and login scripts say, and what takes long: nothing where all is there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, report: Report) -> None:
        """Print what is worth it."""
        if isinstance(report, Said):
            print(report.text, file=sys.stderr, flush=True)
        elif isinstance(report, Progress) and (report.done is not None or report.step == "packages"):
            words = {"code": "copying DevExplorer's code", "packages": "adding what the Python there lacks"}
            if report.step in words and report.step not in self._told:
                self._told.add(report.step)
                say(words[report.step])


class _Output:
    """One stream of that machine's: byte by byte into a file or a pipe; a terminal gets no control characters."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> None:
        """Pass it on at once."""
        if self._stream is None:  # the shell closed it
            return
        if self._stream.isatty():
            text = "".join(c if c in "\n\t" else printable(c) for c in self._decode(data))
            self._stream.write(text)
        else:
            self._stream.flush()
            self._stream.buffer.write(data)
        self._stream.flush()


@contextmanager
def _interrupting(connection: Connection) -> Iterator[None]:
    """Ctrl-C is the command's; a second one ends the connection."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        connection.interrupt()

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
