"""Hands every run that ends to the history, with the conditions under which it was measured. Main thread; one short
thread at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from devexplorer.core.base.event_handlers import EventHandlers, handles
from devexplorer.core.benchmark.conditions import ConditionsWatch, HostInfo, here
from devexplorer.core.records.benchmark import BenchResult, BenchSpec, Conditions
from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, EngineLost, EngineReady


class RunRecorder(EventHandlers):
    """`handle` every event and `set_devices` every list; `keep` is called with what is to be kept."""

    def __init__(
        self,
        keep: Callable[[BenchResult, Conditions], None],
        *,
        find_here: Callable[[], HostInfo] = here,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keep = keep
        self._clock = clock
        self._here = HostInfo()
        self._infos: dict[str, DeviceInfo] = {}
        self._details: dict[str, DeviceDetails] = {}
        self._engine: EngineReady | None = None
        self._watches: dict[int, ConditionsWatch] = {}
        self._finder = threading.Thread(target=self._find, args=(find_here,), name="here", daemon=True)

    def start(self) -> None:
        """Find out what this machine and this program are called: files are read for that, so on a thread that ends at
        once."""
        self._finder.start()

    def join(self, deadline_s: float) -> bool:
        """Wait for that thread."""
        if self._finder.ident is not None:
            self._finder.join(max(deadline_s, 0.0))
        return not self._finder.is_alive()

    def set_devices(self, devices: Sequence[DeviceInfo]) -> None:
        """What there is from now on."""
        self._infos = {info.id: info for info in devices}

    @handles(DeviceSample)
    def _sample(self, sample: DeviceSample) -> None:
        for watch in self._watches.values():
            watch.see(sample)

    @handles(DeviceDetails)
    def _device_details(self, details: DeviceDetails) -> None:
        self._details[details.device] = details

    @handles(EngineReady)
    def _engine_ready(self, event: EngineReady) -> None:
        self._engine = event

    @handles(EngineLost)
    def _engine_lost(self, event: EngineLost) -> None:
        self._watches.clear()

    @handles(BenchPreparing)
    def _preparing(self, event: BenchPreparing) -> None:
        self._watches[event.run] = self._watch(event.spec)

    @handles(BenchStarted)
    def _started(self, event: BenchStarted) -> None:
        if event.run in self._watches:
            self._watches[event.run].begin(event.time_unix_s)

    @handles(BenchEnded)
    def _ended(self, event: BenchEnded) -> None:
        result, watch = event.result, self._watches.pop(event.run, None)
        if result is not None:
            watch = watch or self._watch(result.spec)
            conditions = watch.finish(
                event.time_unix_s, torch_version=result.torch_version or None, threads=result.threads
            )
            self.keep(result, conditions)

    def _watch(self, spec: BenchSpec) -> ConditionsWatch:
        return ConditionsWatch(
            spec.device,
            started_unix_s=self._clock(),
            info=self._infos.get(spec.device),
            details=self._details.get(spec.device),
            engine=self._engine,
            here=self._here,
        )

    def _find(self, find_here: Callable[[], HostInfo]) -> None:
        self._here = find_here()
