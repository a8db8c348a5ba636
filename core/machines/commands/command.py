"""`devexplorer host`: the hosts of this user on this machine; and `--ssh HOST`: this command on another machine, with
its output here. Main thread; neither torch nor Qt.

Files that the command names are that machine's. ssh asks for passwords on the terminal; Ctrl-C ends the command there
first, a second one the connection. Where the output is a terminal here, it is one there, of the same size and kind.
"""

from __future__ import annotations

import argparse
import codecs
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import TextIO

from devexplorer.core.base import BadInput, Unavailable, elapsed_text
from devexplorer.core.base.chosen_python import chosen
from devexplorer.core.cli.run import say_chosen
from devexplorer.core.cli.startup import Raising, say
from devexplorer.core.cli.terminal import OwnCodes, console, print_document, table
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.host.finding import HostError, find, proxy, reach, serve_command
from devexplorer.core.machines.ssh.connection import NO_SIZE, Connection
from devexplorer.core.machines.ssh.putting import choose, prepare
from devexplorer.core.machines.ssh.records import ConnectionFailed, ConnectProgress, Report, Said
from devexplorer.core.machines.window.uplink import visible

DESCRIBED = ("since_unix_s", "clients", "busy", "python", "protocol", "devexplorer")


def host(arguments: argparse.Namespace) -> int:
    """Do what the word behind `host` says."""
    words = {"serve": _serve, "proxy": _proxy, "list": _list, "stop": _stop}
    return words[arguments.word](arguments)


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.foreground:
        from devexplorer.core.machines.host.daemon import serve

        return serve(arguments.virtual)
    was_there = _runs()
    try:
        reach(os.environ, lambda: serve_command(_virtual(arguments))).close()
    except HostError as error:
        raise Unavailable(str(error)) from error
    print("a host of this Python environment runs already" if was_there else "the host runs")
    return 0


def _proxy(arguments: argparse.Namespace) -> int:
    return proxy(arguments.marker, lambda: reach(os.environ, lambda: serve_command(_virtual(arguments))))


def _list(arguments: argparse.Namespace) -> int:
    hosts = listing.running()
    if arguments.json:
        print_document(hosts=[_document(host) for host in hosts])
        return 0
    if not hosts:
        print("no host of yours runs on this machine")
        return 0
    rows = table(">pid", "runs for", ">windows", "under way", "Python", ">protocol")
    for found in hosts:
        about = found.hello
        if about is None:
            rows.add_row(str(found.pid), "", "", "", "", "")
            continue
        rows.add_row(
            str(found.pid), elapsed_text(time.time() - about.since_unix_s), str(about.clients), ", ".join(about.busy),
            about.python, str(about.protocol),
        )  # fmt: skip
    console().print(rows)
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    hosts = listing.running()
    if arguments.pid is not None:
        hosts = [found for found in hosts if str(found.pid) == arguments.pid]
        if not hosts:
            raise BadInput(f"no host of yours on this machine has the process id {arguments.pid}; see 'host list'")
    stopped: list[int] = []
    hanging: list[int] = []
    for found in hosts:
        (stopped if listing.stop(found) else hanging).append(found.pid)
    if arguments.json:
        print_document(stopped=stopped, hanging=hanging)
    else:
        for pid in stopped:
            print(f"host {pid} ended")
        if not hosts:
            print("no host of yours runs on this machine")
    if hanging:
        raise Unavailable(f"it does not end: host {', '.join(map(str, hanging))}; kill -9 ends it with its engine")
    return 0


def _document(found: listing.Running) -> dict[str, object]:
    return {
        "pid": found.pid,
        **{name: getattr(found.hello, name, None) for name in DESCRIBED},
        "socket": found.socket,
        "log": found.log,
    }


def _runs() -> bool:
    connection = find(os.environ)
    if connection is not None:
        connection.close()
    return connection is not None


def _virtual(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.virtual is None else ["--virtual", arguments.virtual]


MODULE = "devexplorer.core.cli"
OF_TERMINAL = ("TERM", "COLORTERM", "NO_COLOR")
"""Variables that say what a terminal can do and its user wants."""


def over_ssh(arguments: argparse.Namespace) -> int:
    """Run the same command there; returns its exit code. Raises `ConnectionFailed` where it cannot be run."""
    outputs = {1: _Output(sys.stdout), 2: _Output(sys.stderr)}
    terminals = [number for number, output in outputs.items() if output.is_terminal]
    environ = {"PYTHONIOENCODING": "utf-8"}  # what is printed there is read as that here
    if terminals:
        environ |= {name: os.environ.get(name, "") for name in OF_TERMINAL}

    size = _size(terminals)

    def write(number: int, data: bytes) -> None:
        nonlocal size
        if (now := _size(terminals)) != size:  # looked at here: once in hundreds of times SIGWINCH was not heard
            size = now
            for terminal in terminals:
                outputs[terminal].codes.resized()
            connection.resize(size)
        outputs[number].write(data)

    with Raising(), closing(Connection(arguments.ssh, _Teller().tell, on_terminal=True)) as connection:
        connection.open()
        command = prepare(connection, arguments.python or _chosen(connection) or _found(connection))
        try:
            with _interrupting(connection.interrupt):
                argv = [*command, MODULE, *arguments.argv]
                return connection.run(argv, write, environ, terminals, size)
        finally:
            for output in outputs.values():
                output.end()


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
        elif isinstance(report, ConnectProgress) and (report.done is not None or report.step == "packages"):
            words = {"code": "copying DevExplorer's code", "packages": "adding what the Python there lacks"}
            if report.step in words and report.step not in self._told:
                self._told.add(report.step)
                say(words[report.step])


class _Output:
    """One stream of that machine's: of codes a terminal gets only our own, and a file or a pipe none, because another
    program may show it on a terminal (`| less -R`, `| tail`)."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_terminal = stream is not None and stream.isatty()
        self.codes = OwnCodes()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> None:
        """Pass it on at once."""
        if self._stream is None:  # the shell closed it
            return
        if self.is_terminal:
            self._stream.write(self.codes.shown(self._decode(data)))
        else:
            self._stream.flush()
            self._stream.buffer.write(visible(self._decode(data)).encode())
        self._stream.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._stream is not None and (last := self.codes.end()):
            self._stream.write(last)
            self._stream.flush()


def _size(terminals: Sequence[int]) -> os.terminal_size:
    """Of the first of these descriptors."""
    try:
        return os.get_terminal_size(terminals[0]) if terminals else NO_SIZE
    except OSError:
        return NO_SIZE


@contextmanager
def _interrupting(then: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C do this; a second one does what it usually does."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        then()

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
