"""What is read beside a benchmark: clocks, power, temperature and throttle reasons of the NVIDIA cards under test, for
its conditions.

Main thread; the cards are read on the sampler's threads, which end with the context. Where no such card is measured,
nothing runs beside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from devexplorer.core.benchmark.conditions import RunConditions, here
from devexplorer.core.benchmark.kind import devices_of
from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import BenchPreparing, BenchResult, BenchSpec, Conditions, DeviceInfo, Event
from devexplorer.core.telemetry.sampler import Sampler

CLOSE_S = 2.0
"""For a driver that does not answer."""


class Beside:
    """A context around benchmark runs, one after the other: shown every event, it knows the conditions of the run that
    ended last."""

    def __init__(self, infos: Sequence[DeviceInfo], specs: Iterable[BenchSpec], nvml: Nvml | None = None) -> None:
        """`infos`: every device as the engine lists them; `specs`: what will be measured. `nvml` replaces the real one
        in tests."""
        measured = {name for spec in specs for name in devices_of(spec)}
        self._infos = tuple(infos)
        self._cards_wanted = any(info.kind == "cuda" for info in infos if info.id in measured)
        self._nvml = nvml
        self._sampler: Sampler | None = None
        self._read: deque[Event] = deque()
        """Filled by the sampler's threads."""
        self._runs = RunConditions(here())
        self._runs.set_devices(infos)

    def __enter__(self) -> Beside:
        if not self._cards_wanted:
            return self
        nvml, cpu = self._nvml or Nvml(), CpuReader()
        try:
            nvml.start()
            catalog = join(cpu.info(), nvml.cards(), self._infos)
        except BaseException:
            nvml.close()
            raise
        self._runs.set_devices(catalog.devices)
        if not catalog.names:  # no driver, or no card that it knows
            nvml.close()
            return self
        self._sampler = Sampler(self._read.append, nvml, cpu)
        self._sampler.set_names(catalog.names)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is not None:
            self._sampler.stop(CLOSE_S)

    def see(self, event: Event) -> None:
        """Take note of an event of the engine."""
        if not isinstance(event, BenchPreparing):  # what was read before a run counts for it
            self._catch_up()
        self._runs.handle(event)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._read:
            self._runs.handle(self._read.popleft())

    def conditions(self, result: BenchResult, ended_unix_s: float) -> Conditions:
        """Of the run that has just ended."""
        self._catch_up()
        return self._runs.conditions(result, ended_unix_s)
