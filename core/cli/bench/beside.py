"""What is read beside a benchmark: clocks, power, temperature and throttle reasons of the NVIDIA cards under test, for
its conditions.

Main thread; the cards are read on the sampler's threads, which end with the context. Where no such card is measured,
nothing runs beside.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType

from devexplorer.core.benchmark.conditions import ConditionsWatch, here
from devexplorer.core.benchmark.kinds import devices_of
from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records.benchmark import BenchResult, BenchSpec, Conditions
from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.records.messages import BenchPreparing, BenchStarted, EngineReady, Event
from devexplorer.core.telemetry.sampler import Sampler

CLOSE_S = 2.0
"""For a driver that does not answer."""


class Beside:
    """A context around benchmark runs, one after the other: shown every event, it knows the conditions of the run that
    ended last."""

    def __init__(self, infos: Sequence[DeviceInfo], specs: Iterable[BenchSpec], nvml: Nvml | None = None) -> None:
        """`infos`: every device as the engine lists them; `specs`: what will be measured. `nvml` stands in for the real
        one."""
        self._infos = {info.id: info for info in infos}
        measured = {name for spec in specs for name in devices_of(spec)}
        self._cards_wanted = any(self._infos[name].kind == "cuda" for name in measured if name in self._infos)
        self._nvml = nvml
        self._sampler: Sampler | None = None
        self._read: deque[Event] = deque()
        """Filled by the sampler's threads."""
        self._details: dict[str, DeviceDetails] = {}
        self._engine: EngineReady | None = None
        self._here = here()
        self._watch: ConditionsWatch | None = None

    def __enter__(self) -> Beside:
        if not self._cards_wanted:
            return self
        nvml, cpu = self._nvml or Nvml(), CpuReader()
        try:
            nvml.start()
            found = join(cpu.info(), nvml.cards(), tuple(self._infos.values()))
        except BaseException:
            nvml.close()
            raise
        self._infos = {info.id: info for info in found.devices}
        if not found.names:  # no driver, or no card that it knows
            nvml.close()
            return self
        self._sampler = Sampler(self._read.append, nvml, cpu)
        self._sampler.set_names(found.names)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sampler is not None:
            self._sampler.stop(CLOSE_S)

    def see(self, event: Event) -> None:
        """Take note of an event of the engine."""
        match event:
            case EngineReady():
                self._engine = event
            case BenchPreparing(spec=spec):
                self._watch = self._watching(spec)
            case BenchStarted(time_unix_s=started) if self._watch is not None:
                self._catch_up()
                self._watch.begin(started)
        self._catch_up()

    def _watching(self, spec: BenchSpec) -> ConditionsWatch:
        info = self._infos.get(spec.device)
        details = self._details.get(spec.device)
        return ConditionsWatch(
            spec.device, started_unix_s=time.time(), info=info, details=details, engine=self._engine, here=self._here
        )

    def _catch_up(self) -> None:
        while self._read:
            match self._read.popleft():
                case DeviceSample() as sample if self._watch is not None:
                    self._watch.see(sample)
                case DeviceDetails() as details:
                    self._details[details.device] = details

    def conditions(self, result: BenchResult, ended_unix_s: float) -> Conditions:
        """Of the run that has just ended."""
        self._catch_up()
        watch = self._watch or self._watching(result.spec)
        return watch.finish(ended_unix_s, torch_version=result.torch_version or None, threads=result.threads)
