"""A Ray cluster as a source of a fleet: starts the process that is attached to it, here or on a node behind ssh, and
ends it. Main thread; its output is read on the thread `cluster-in`, and it is told what to do on `cluster-out`.

The window never imports Ray: a driver belongs to its process, and what comes from other nodes is unpickled there.
"""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, BinaryIO, NamedTuple, Protocol, cast

from msgspec.structs import replace

from devexplorer.core.base import Cancelled, DevExplorerError, LinkError, Unavailable, module_command
from devexplorer.core.engine.link import frame
from devexplorer.core.fleet.cluster.messages import (
    CancelMeasuring,
    CannotAttach,
    Frames,
    FromCluster,
    Measure,
    ToCluster,
)
from devexplorer.core.fleet.events import MOST_EVENTS, FleetEvent, GroupEnded, MachineChanged, MeasureOrder
from devexplorer.core.fleet.hosts.host_fleet import silently
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.putting import choose, prepare
from devexplorer.core.machines.ssh.records import ConnectionFailed

MODULE = "devexplorer.core.fleet.cluster"
QUIET = {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class Streams(NamedTuple):
    """Of the process."""

    output: IO[bytes]
    """What it says."""
    into: IO[bytes]
    """What it is told; it leaves the cluster when that ends."""


class ClusterWay(Protocol):
    """`open` once, `close` at the end."""

    def open(self, arguments: Sequence[str]) -> Streams:
        """Start it; waits. Raises `Unavailable` in one line."""
        ...

    def close(self) -> None:
        """End what is left of it."""
        ...


class Here:
    """A process of this machine."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, arguments: Sequence[str]) -> Streams:
        """Start it."""
        try:
            process = self._process = subprocess.Popen(
                module_command(MODULE, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=os.environ | QUIET,
                start_new_session=True,  # Ctrl-C is for who started it
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"no process could be started for the cluster: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        return Streams(process.stdout, process.stdin)

    def close(self) -> None:
        """Kill it where it still runs; Ray removes what it had."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


class OverSsh:
    """A process of a node behind the user's own ssh: a driver needs a node of the cluster beside it."""

    def __init__(self, host: str, python: str = "") -> None:
        """`python`: the interpreter there; empty: the one that is most likely meant. A login that asks something is
        given up, because the connection of the window has asked already."""
        self._host, self._python = host, python
        self._connection: Connection | None = None

    def open(self, arguments: Sequence[str]) -> Streams:
        """Log in, make the Python there ready, start it."""
        connection = self._connection = silently(self._host, lambda report: None)
        marker = secrets.token_hex(16)
        try:
            connection.open()
            command = prepare(connection, self._python or choose(connection))
            return Streams(*connection.launch([*command, MODULE, *arguments, "--marker", marker], marker, QUIET))
        except ConnectionFailed as error:
            connection.close()
            raise Unavailable(str(error)) from None
        except Cancelled:
            raise Unavailable("it was given up") from None

    def close(self) -> None:
        """End the connection; what runs there sees that its orders have ended, and leaves the cluster."""
        if self._connection is not None:
            self._connection.close()


LEAVE_S = 15.0
"""For the cluster to be given back; the process is killed after that, and Ray removes what it had."""


class ClusterFleet:
    """`problem` says why there is no cluster."""

    def __init__(self, address: str, virtual_spec: str | None = None, way: ClusterWay | None = None) -> None:
        """`address`: `auto`, or HOST:PORT of the cluster's head. `virtual_spec`: virtual GPUs for each node. `way`: to
        the node on which the process runs; None: it is this machine."""
        self.address = address
        self.problem = ""
        self._virtual = [] if virtual_spec is None else ["--virtual", virtual_spec]
        self._came: deque[FromCluster] = deque()
        self._way = way or Here()
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """None: it is to leave."""
        self._reader: threading.Thread | None = None
        self._opened = self._ended = False
        self._machines: dict[str, MachineChanged] = {}

    def start(self) -> None:
        """Begin to attach; returns at once."""
        self._reader = threading.Thread(target=self._run, name="cluster-in", daemon=True)
        self._reader.start()

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call."""
        events: list[FleetEvent] = []
        for _ in range(min(len(self._came), MOST_EVENTS)):
            match record := self._came.popleft():
                case CannotAttach():
                    self.problem = self.problem or record.reason
                    events += self._lost()
                case MachineChanged():
                    self._machines[record.machine.name] = record
                    events.append(record)
                case _:
                    events.append(record)
        return events

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        """Measure on cards of the cluster; they are reserved meanwhile."""
        if not self._say(Measure(order=order)):
            for group in range(len(order.groups)):
                self._came.append(GroupEnded(number=order.number, group=group, failure=self.problem))

    def cancel(self) -> None:
        """End what is being measured."""
        self._say(CancelMeasuring())

    def close(self, deadline_s: float = LEAVE_S) -> bool:
        """Give the cluster back as it was."""
        reader = self._reader
        if reader is None:
            return True
        self._orders.put(None)
        if not self._opened:  # a login that waits
            self._way.close()
        reader.join(deadline_s)
        self._way.close()
        reader.join(1.0)
        return not reader.is_alive()

    def _say(self, order: ToCluster) -> bool:
        if self._ended or self._reader is None:
            return False
        self._orders.put(frame(order))
        return True

    def _lost(self) -> list[FleetEvent]:
        """Every machine, when the process has ended."""
        return [
            MachineChanged(machine=replace(changed.machine, state="lost", problem=self.problem))
            for changed in self._machines.values()
        ]

    def _run(self) -> None:
        """Its thread."""
        try:
            streams = self._way.open([self.address, *self._virtual])
        except DevExplorerError as error:
            self._end(str(error))
            return
        self._opened = True
        threading.Thread(target=self._tell, args=(streams.into,), name="cluster-out", daemon=True).start()
        self._read(cast(BinaryIO, streams.output))
        self._orders.put(None)
        self._end("the process that was attached to the cluster has ended")

    def _end(self, why: str) -> None:
        self._ended = True
        self._came.append(CannotAttach(reason=why))

    def _tell(self, into: IO[bytes]) -> None:
        with suppress(OSError, ValueError):  # it has ended, which its output tells
            while (order := self._orders.get()) is not None:
                rest = memoryview(order)
                while rest:
                    rest = rest[into.write(rest) or 0 :]
                into.flush()
        with suppress(OSError, ValueError):
            into.close()

    def _read(self, stream: BinaryIO) -> None:
        records = Frames[FromCluster](stream, cast(type[FromCluster], FromCluster))
        while True:
            try:
                record = records.next()
            except LinkError:
                continue
            except (OSError, ValueError):
                record = None
            if record is None:
                return
            self._came.append(record)
