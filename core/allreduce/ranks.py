"""The ranks of one engine: their processes, what they are told and what they answer. On the thread that runs the
benchmark; no torch.

Each rank leads a session of its own, as everything in `core.isolation.parent`; it ends with this process, and `close`
kills it with everything that it started. Rank 0's engine opens the socket at which the ranks meet, so that the port is
known before any of them has started, belongs to that address alone, and is gone with rank 0.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from devexplorer.core.allreduce.messages import Order, Reply, Setup
from devexplorer.core.base import Unavailable, list_text, module_command
from devexplorer.core.isolation.parent import SPARE_SECONDS, exit_text, has_ended, reap

RANK = "devexplorer.core.allreduce.rank"
LOOPBACK = "127.0.0.1"
ASK_MS = 50
"""Between two looks whether the run was stopped."""
GRACE_SECONDS = 1.0
"""For the other ranks to say what they have seen, after the first has failed; and to end, when they are asked to."""
START_SECONDS = 30.0
"""For the processes to import torch."""
QUIET = {"TORCH_CPP_LOG_LEVEL": "FATAL", "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0"}
"""In the environment of a rank, where the user has nothing else there."""


def listen(address: str, port: int) -> socket.socket:
    """Where the ranks meet; port 0: any that is free. Raises `Unavailable` in one line."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"{address} cannot be found: {error.strerror}") from None
    if _is_loopback(str(place[0])) and not _is_loopback(address) and address != "localhost":
        listener.close()
        raise Unavailable(
            f"{address} is {place[0]} on this machine itself, where no other reaches it; give its address in"
            " the network"
        )
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        why = "is no address of this machine" if error.errno == errno.EADDRNOTAVAIL else error.strerror
        raise Unavailable(f"rank 0 cannot listen at {address}:{port}: {why}") from None
    return listener


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Ranks:
    """A context of processes, one a setup; the first use is `wait`, until they have found each other."""

    def __init__(
        self, setups: Sequence[Setup], listener: socket.socket | None, *, module: str = RANK, limit_seconds: float
    ) -> None:
        """`listener` goes to rank 0, if that is one of these."""
        self._limit = limit_seconds
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._readable: dict[int, int] = {}
        self._data: dict[int, bytearray] = {}
        try:
            for setup in setups:
                self._start(setup, listener if setup.rank == 0 else None, module)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise Unavailable(f"no process could be started for a rank: {error}") from None
            raise
        finally:
            if listener is not None:
                listener.close()

    def _start(self, setup: Setup, listener: socket.socket | None, module: str) -> None:
        readable, writable = os.pipe()
        self._readable[setup.rank], self._data[setup.rank] = readable, bytearray()
        passed = [writable] if listener is None else [writable, listener.fileno()]
        try:
            process = self._processes[setup.rank] = subprocess.Popen(
                module_command(module, str(writable)),
                stdin=subprocess.PIPE,
                stdout=2,  # standard output may be a document
                stderr=2,
                pass_fds=passed,
                start_new_session=True,
                env=QUIET | dict(os.environ),
            )
        finally:
            os.close(writable)
        first = replace(setup, listener=None if listener is None else listener.fileno())
        _write(process, msgspec.json.encode(first))

    def tell(self, order: Order) -> None:
        """Give all of them the same order; `wait` for what they answer."""
        line = msgspec.json.encode(order)
        for process in self._processes.values():
            _write(process, line)

    def meet(self, stopped: Callable[[], bool]) -> bool:
        """Wait until they have found all others; False when the run was stopped before. Raises what `wait` raises."""
        longest = START_SECONDS + 2 * self._limit  # for what they import, then for each other
        return self._answers(stopped, longest, late=longest) is not None

    def wait(self, stopped: Callable[[], bool]) -> dict[int, Reply] | None:
        """The reply of every rank; None when the run was stopped before. Raises `Unavailable`, in one line, when one of
        them fails, ends or stays silent, or when another engine has ended the run."""
        replies = self._answers(stopped, self._limit + SPARE_SECONDS, late=self._limit)
        over = next((reply for reply in (replies or {}).values() if reply.kind == "over"), None)
        if over is not None:
            raise Unavailable(over.text or "another engine of this all-reduce has stopped it")
        return replies

    def _answers(self, stopped: Callable[[], bool], seconds: float, late: float) -> dict[int, Reply] | None:
        """After `late` seconds it is a rank that says nothing that holds up the others."""
        began = time.monotonic()
        replies: dict[int, Reply] = {}
        while len(replies) < len(self._processes):
            if stopped():
                return None
            replies |= self._read(self._readable.keys() - replies.keys(), ASK_MS)
            failed, spent = any(reply.kind == "failed" for reply in replies.values()), time.monotonic() - began
            if failed or spent > seconds:
                raise Unavailable(self._why(replies, late=spent > late))
        return replies

    def _read(self, ranks: set[int], milliseconds: int) -> dict[int, Reply]:
        """What some of these ranks have answered within that time; of one that has ended, that it failed."""
        waiting = select.poll()
        by_descriptor = {self._readable[rank]: rank for rank in ranks}
        for descriptor in by_descriptor:
            waiting.register(descriptor, select.POLLIN)
        replies = {}
        for descriptor, _ in waiting.poll(milliseconds):
            rank = by_descriptor[descriptor]
            data = self._data[rank]
            piece = os.read(descriptor, 1 << 16)
            data += piece
            line, newline, rest = data.partition(b"\n")
            if newline:
                self._data[rank] = bytearray(rest)
                replies[rank] = _reply(bytes(line))
            elif not piece:
                replies[rank] = Reply(kind="failed")
        return replies

    def _why(self, replies: Mapping[int, Reply], *, late: bool) -> str:
        """What went wrong, in one line: of all that failed, the rank whose failure is not that of another. `late`: the
        time for an answer is over."""
        replies, end = dict(replies), time.monotonic() + GRACE_SECONDS
        while len(replies) < len(self._processes) and time.monotonic() < end:
            replies |= self._read(self._readable.keys() - replies.keys(), ASK_MS)
        failed = {rank: reply.text for rank, reply in replies.items() if reply.kind == "failed"}
        ended = next((rank for rank, text in failed.items() if not text), None)
        silent = sorted(self._processes.keys() - replies.keys())
        if silent and (late or not failed):  # the others gave up waiting for these, and may have ended for that
            names = list_text([f"rank {rank}" for rank in silent])
            return f"{names} did not answer within {self._limit:g} s and {'was' if len(silent) == 1 else 'were'} ended"
        if ended is not None:
            process = self._processes[ended]
            while not has_ended(process) and time.monotonic() < end:
                time.sleep(ASK_MS / 1e3)  # its descriptors are closed; the process ends next
            return f"rank {ended} ended its process {exit_text(reap(process))}"
        rank, text = next(iter(failed.items()))
        return f"rank {rank}: {text}"

    def end(self, *, wrong: bool = False) -> None:
        """Let the ranks of every engine end after what they do now, then close."""
        self.tell(Order(kind="end", wrong=wrong))
        going, end = set(self._processes), time.monotonic() + GRACE_SECONDS
        while going and time.monotonic() < end:  # a block that was interrupted is answered first
            going -= {rank for rank, reply in self._read(going, ASK_MS).items() if reply.kind in ("over", "failed")}
        self.close()

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._processes.values():
            if process.returncode is None:
                reap(process)
        for descriptor in self._readable.values():
            os.close(descriptor)
        self._processes, self._readable = {}, {}


def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + b"\n")
        process.stdin.flush()
    except (BrokenPipeError, ValueError):
        pass  # it has ended; `wait` says how


def _reply(line: bytes) -> Reply:
    try:
        return msgspec.json.decode(line, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Reply(kind="failed", text="it wrote something else than an answer")
