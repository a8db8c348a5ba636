"""A Ray cluster as a source of a fleet: starts the process that is attached to it, and ends it. Main thread; its output
is read on the thread `cluster-in`, and it is told what to do on `cluster-out`.

The window never imports Ray: a driver belongs to its process, and what comes from other nodes is unpickled there.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, BinaryIO, cast

from msgspec.structs import replace

from devexplorer.core.base import DevExplorerError, LinkError
from devexplorer.core.engine.link import frame
from devexplorer.core.fleet.cluster.messages import (
    Attached,
    CancelMeasuring,
    CannotAttach,
    CopyObjects,
    DoneThere,
    DoThere,
    Frames,
    FromCluster,
    Measure,
    ToCluster,
)
from devexplorer.core.fleet.cluster.ways import ClusterWay, Here
from devexplorer.core.fleet.events import FleetEvent, GroupEnded, MachineChanged, MeasureOrder
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.records import Command

LEAVE_S = 15.0
"""For the cluster to be given back; the process is killed after that, and Ray removes what it had."""


class ClusterFleet:
    """`problem` says why there is no cluster."""

    def __init__(self, address: str, virtual_spec: str | None = None, way: ClusterWay | None = None) -> None:
        """`address`: `auto`, or HOST:PORT of the cluster's head. `virtual_spec`: virtual GPUs for each node. `way`: to
        the node on which the process runs; None: it is this machine."""
        self.address = address
        self.attached = False
        self.problem = ""
        self.on_done: Callable[[DoneThere], None] = lambda done: None
        """Told when a command or a copy is over."""
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
                case Attached():
                    self.attached = True
                case CannotAttach():
                    self.problem = self.problem or record.reason
                    events += self._lost()
                case DoneThere():
                    self.on_done(record)
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

    def do(self, machine: str, command: Command) -> None:
        """Have a command carried out by the session of a node; `on_done` is told."""
        self._say(DoThere(machine=machine, command=command))

    def copy(self, names: tuple[str, ...], source: str, target: str, device: str = "cpu") -> None:
        """Copy objects from one node to another through the object store; `on_done` is told."""
        self._say(CopyObjects(names=names, source=source, target=target, device=device))

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
