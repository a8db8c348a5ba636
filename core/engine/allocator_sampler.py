"""Reads allocators, and devices that cannot be read from outside the engine, ten times a second. On its own thread,
`allocator-sampler`."""

from __future__ import annotations

import threading
import time

import msgspec

from devexplorer.core.base import Clock
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import EventSink, Log
from devexplorer.core.workspace import Workspace


class AllocatorSampler:
    """`read` sends one reading of everything; `start` does so every `interval_s` seconds until `stop`."""

    def __init__(self, send: EventSink, registry: DeviceRegistry, workspace: Workspace, clock: Clock) -> None:
        self._send, self._registry, self._workspace, self._clock = send, registry, workspace, clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._complaints: dict[str, str] = {}

    def start(self, interval_s: float) -> None:
        """Read from a thread."""
        self._thread = threading.Thread(target=self._run, args=(interval_s,), name="allocator-sampler", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> bool:
        """End the thread; False when it is stuck in a driver call."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(max(deadline_s, 0))
        return self._thread is None or not self._thread.is_alive()

    def read(self) -> None:
        """One reading of each device; a failure is logged once and does not affect the others."""
        for device in self._registry.usable():
            try:
                self._read(device)
            except Exception as error:  # on a real card any call can fail at any time
                complaint = f"{device} could not be read: {error}"
                if self._complaints.get(device) != complaint:
                    self._complaints[device] = complaint
                    self._send(Log(level="warning", text=complaint, time_unix_s=self._clock()))

    def _read(self, device: str) -> None:
        now, backend = self._clock(), self._registry.backend(device)
        allocator, reading = backend.readings(device, now)
        if allocator is not None:
            held = self._workspace.holdings()
            self._send(
                msgspec.structs.replace(
                    allocator, workspace_bytes=held.totals.get(device, 0), objects=held.objects.get(device, ())
                )
            )
        if reading is not None:
            self._send(reading)

    def _run(self, interval_s: float) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.read()
            due = max(due + interval_s, time.monotonic())  # a late reading is not followed by a burst
            self._stop.wait(due - time.monotonic())
