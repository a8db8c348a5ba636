"""A Ray cluster as a source of a fleet: starts the process that is attached to it, and ends it. Main thread; its output
is read on the thread `cluster-in`.

The window never imports Ray: a driver belongs to its process, and what comes from other nodes is unpickled there.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

from msgspec.structs import replace

from devexplorer.core.base import LinkError, module_command
from devexplorer.core.fleet.cluster.frames import Frames, frame
from devexplorer.core.fleet.cluster.messages import (
    Attached,
    CancelMeasuring,
    CannotAttach,
    CopyObjects,
    DoneThere,
    DoThere,
    FromCluster,
    Measure,
    ToCluster,
)
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.records import Command
from devexplorer.core.records.fleet_events import FleetEvent, GroupEnded, MachineChanged, MeasureOrder

LEAVE_S = 15.0
"""For the cluster to be given back; the process is killed after that, and Ray removes what it had."""


class ClusterFleet:
    """`problem` says why there is no cluster."""

    def __init__(self, address: str, virtual_spec: str | None = None) -> None:
        """`address`: `auto`, or HOST:PORT of the cluster's head. `virtual_spec`: virtual GPUs for each node."""
        self.address = address
        self.attached = False
        self.problem = ""
        self.on_done: Callable[[DoneThere], None] = lambda done: None
        """Told when a command or a copy is over."""
        self._virtual = [] if virtual_spec is None else ["--virtual", virtual_spec]
        self._came: deque[FromCluster] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._started = threading.Event()
        """Whether the process has been started, or could not be."""
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
        if self._reader is None:
            return True
        self._started.wait(deadline_s)
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return not self._reader.is_alive()
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(1.0)
        process.stdout.close()
        self._process = None
        return True

    def _say(self, order: ToCluster) -> bool:
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(frame(order))
            process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _lost(self) -> list[FleetEvent]:
        """Every machine, when the process has ended."""
        return [
            MachineChanged(machine=replace(changed.machine, state="lost", problem=self.problem))
            for changed in self._machines.values()
        ]

    def _run(self) -> None:
        """Its thread."""
        command = module_command("devexplorer.core.fleet.cluster", self.address, *self._virtual)
        environ = os.environ | {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ,
                start_new_session=True,  # Ctrl-C is for who started it
            )  # fmt: skip
        except OSError as error:
            self._came.append(CannotAttach(reason=f"no process could be started for the cluster: {error.strerror}"))
            return
        finally:
            self._started.set()
        self._read(cast(BinaryIO, process.stdout))

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
                self._came.append(CannotAttach(reason="the process that was attached to the cluster has ended"))
                return
            self._came.append(record)
