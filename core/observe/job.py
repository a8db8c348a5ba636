"""All ranks of a job as one engine: the first rank as it is, and the virtual GPUs of the others under names that say
the rank. Threads: `attached` for each rank, `ranks`, which looks for those that come later."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import msgspec

from devexplorer.core.observe.running import AttachedEngine, running
from devexplorer.core.records import AllocatorSample, DeviceSample, EngineDevices, Event, EventSink

LOOK_S = 2.0
"""Ranks start, and import torch, at different times."""


def name_in_job(rank: int, device: str) -> str:
    """`rank 2 · vgpu:0`."""
    return f"rank {rank} · {device}"


class JobEngine(AttachedEngine):
    """As the engine of its first rank, which is the process `pid`."""

    def __init__(self, pid: int, put: EventSink, *arguments: Any) -> None:
        super().__init__(pid, partial(self._said, 0), *arguments)
        self._tell = put
        self._lock = threading.Lock()
        self._devices: dict[int, EngineDevices] = {}
        """What each rank has said of its devices; 0: the first one, whichever rank it is."""
        self._others: dict[int, AttachedEngine] = {}
        """By their processes."""
        self._finder = threading.Thread(target=self._find, name="ranks", daemon=True)

    def start(self) -> None:
        """Connect to all."""
        super().start()
        self._finder.start()

    def close(self) -> None:
        """Look at none of them any more."""
        super().close()
        for other in list(self._others.values()):
            other.close()

    def _find(self) -> None:
        while self.goodbye is None:
            scripts = running()
            job = next((script.job for script in scripts if script.pid == self._pid), "")
            for script in scripts:
                if job and script.job == job and script.pid != self._pid and script.pid not in self._others:
                    other = AttachedEngine(script.pid, partial(self._said, script.rank or 0))
                    self._others[script.pid] = other
                    other.start()
            if self._closing.wait(LOOK_S):
                return

    def _said(self, rank: int, event: Event) -> None:
        """Of other ranks only what their virtual GPUs are and do: their models are those of the first one."""
        if isinstance(event, EngineDevices):
            with self._lock:
                self._devices[rank] = event
                if 0 in self._devices:
                    self._tell(self._together())
        elif not rank:
            self._tell(event)
        elif isinstance(event, (AllocatorSample, DeviceSample)) and event.simulated:
            self._tell(msgspec.structs.replace(event, device=name_in_job(rank, event.device)))

    def _together(self) -> EngineDevices:
        first = self._devices[0]
        others = tuple(
            msgspec.structs.replace(info, id=name_in_job(rank, info.id), uuid=None)
            for rank, said in sorted(self._devices.items())
            if rank
            for info in said.devices
            if info.simulated
        )
        return msgspec.structs.replace(first, devices=first.devices + others)
