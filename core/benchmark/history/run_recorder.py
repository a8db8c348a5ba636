"""Hands every run that ends to the history, with the conditions under which it was measured. Main thread; one short
thread at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from devexplorer.core.benchmark.conditions import ConditionsWatch, HostInfo, here
from devexplorer.core.records.benchmark import BenchResult, BenchSpec, Conditions
from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, EngineLost, EngineReady, Event


class RunRecorder:
    """`see` every event and `set_devices` every list; `keep` is called with what is to be kept."""

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

    def see(self, event: Event) -> None:
        """Follow one event."""
        match event:
            case DeviceSample():
                for watch in self._watches.values():
                    watch.see(event)
            case DeviceDetails(device=device):
                self._details[device] = event
            case EngineReady():
                self._engine = event
            case EngineLost():
                self._watches.clear()
            case BenchPreparing(run=run, spec=spec):
                self._watches[run] = self._watch(spec)
            case BenchStarted(run=run, time_unix_s=started) if run in self._watches:
                self._watches[run].begin(started)
            case BenchEnded(run=run, result=result, time_unix_s=ended):
                begun = self._watches.pop(run) if run in self._watches else None
                if result is not None:
                    watch = begun or self._watch(result.spec)
                    self.keep(
                        result, watch.finish(ended, torch_version=result.torch_version or None, threads=result.threads)
                    )

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
