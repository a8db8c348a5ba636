"""Reads every device for `devexplorer watch`, one reading after the other. Main thread.

NVIDIA's cards are read on threads of the sampler, AMD's and Intel's on one of their own, so that one that hangs holds up nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

import msgspec

from devexplorer.core.cli.devices import Machine, machine
from devexplorer.core.cli.watch_table import Reading
from devexplorer.core.devices import apple
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.records.devices import DeviceInfo, DeviceSample, Problem
from devexplorer.core.records.messages import Event
from devexplorer.core.telemetry.alerts import says_nothing
from devexplorer.core.telemetry.drm_watch import DrmWatch
from devexplorer.core.telemetry.sampler import PATIENCE_S, Sampler

CLOSE_S = 2.0
"""For threads to end."""


class WatchedDevices:
    """Every device with its readers. A context: in the end NVML is given back and no thread is left."""

    def __init__(self, virtual_spec: str | None, interval_s: float, nvml: Nvml, drm: Drm | None = None) -> None:
        self._events: deque[Event] = deque()
        try:
            self._here = machine(virtual_spec, nvml, drm)
        except BaseException:
            nvml.close()
            raise
        self._found, self._cards = self._here.found, nvml.cards()
        self._sampler = Sampler(self._events.append, nvml, CpuReader(), interval_s)
        self._sampler.set_names(self._here.found.names)
        self._kernel = _Kernel(self._here, interval_s)
        self._elsewhere = [*_virtual_readers(self._here), *self._torch_readers()]

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """What each device is; other ones when a card or a MIG instance came or went."""
        return self._found.devices

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be found out at present, by device id. The sampler knows cards by NVML's numbers."""
        names = {f"nvml:{info.nvml_index}": info.id for info in self.infos if info.nvml_index is not None and info.parent is None}
        return tuple(msgspec.structs.replace(p, device=names.get(p.device or "", p.device)) for p in self._sampler.problems)

    def __enter__(self) -> WatchedDevices:
        self._kernel.start()
        self._sampler.read_round()  # utilization is a difference: this reading only starts it; what came with it waits for `read`
        for read in self._elsewhere:
            read()
        self._events += _standing(self._here)
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.stop()
        self._sampler.stop(CLOSE_S)

    def read(self) -> tuple[list[Reading], list[Event]]:
        """A reading of each device in the order of `infos`, and everything since the last one that is worth recording."""
        read = [*self._sampler.read_round(), *(sample for one in self._elsewhere if (sample := one()) is not None)]
        said = [self._events.popleft() for _ in range(len(self._events))]  # what comes meanwhile comes with the next reading
        events = [*said, *self._kernel.new_events(), *read]
        samples = {sample.device: sample for sample in read} | self._kernel.latest()
        self._follow_cards()
        problems, now = self.problems, time.time()
        readings = []
        for info in self.infos:
            sample = samples.get(info.id) or DeviceSample(device=info.id, time_unix_s=now, simulated=info.simulated)
            readings.append(Reading(info, sample, _why_nothing(info, sample, problems)))
        return readings, events

    def _follow_cards(self) -> None:
        """Join everything anew when other cards or MIG instances are there than last time; what is new is read next time."""
        cards = self._sampler.cards
        if cards != self._cards:
            self._found, self._cards = self._here.joined(cards), cards
            self._sampler.set_names(self._found.names)

    def _torch_readers(self) -> list[Callable[[], DeviceSample | None]]:
        """Of what only torch can ask: Apple's, Intel's and other accelerators. A card that the kernel tells more of is completed."""

        def reader(device: str) -> Callable[[], DeviceSample | None]:
            def read() -> DeviceSample | None:
                sample: DeviceSample | None = self._here.torch_side.device_sample(device, time.time())
                return None if sample is None else self._kernel.completed(sample)

            return read

        return [reader(info.id) for info in self.infos if info.usable and info.kind not in ("cpu", "cuda", "virtual")]


class _Kernel:
    """AMD's and Intel's cards, read on a thread; `latest` has what it said last."""

    def __init__(self, here: Machine, interval_s: float) -> None:
        self._said: SimpleQueue[Event] = SimpleQueue()
        self._cards = here.drm_cards
        self._patience_s = PATIENCE_S + 2 * interval_s
        self._samples: dict[str, tuple[float, DeviceSample]] = {}
        self._new: list[Event] = []
        self._watch = DrmWatch(self._said.put, here.drm, interval_s=interval_s)
        self._watch.set_names(here.found.drm_names)
        self.completed = self._watch.completed

    def start(self) -> None:
        """Start the thread, where there is something to read, and wait for its first readings, but not for ever."""
        if not self._cards:
            return
        self._watch.start()
        until = time.monotonic() + PATIENCE_S
        for _ in self._cards:
            try:
                self._take(self._said.get(timeout=max(until - time.monotonic(), 0)))
            except Empty:
                return

    def stop(self) -> None:
        """End the thread; one that a card holds up is a daemon and is left behind."""
        if self._cards:
            self._watch.stop(CLOSE_S)

    def new_events(self) -> list[Event]:
        """What was said since this was last asked."""
        while True:
            try:
                self._take(self._said.get_nowait())
            except Empty:
                break
        found, self._new = self._new, []
        return found

    def latest(self) -> dict[str, DeviceSample]:
        """The newest sample of each card; none of a card that has been silent for long."""
        now = time.monotonic()
        return {device: sample for device, (heard, sample) in self._samples.items() if now - heard < self._patience_s}

    def _take(self, event: Event) -> None:
        self._new.append(event)
        if isinstance(event, DeviceSample):
            self._samples[event.device] = (time.monotonic(), event)


def _why_nothing(info: DeviceInfo, sample: DeviceSample, problems: Sequence[Problem]) -> str:
    """Why nothing can be read from a device; empty where something can."""
    own = next((problem.reason for problem in problems if problem.device == info.id and problem.field is None), "")
    if own or info.nvml_index is None or not says_nothing(sample):
        return own
    of_all = (problem.reason for problem in problems if problem.device is None and problem.field == "nvml")
    of_a_field = (problem.reason for problem in problems if problem.device == (info.parent or info.id))
    return next(of_all, "") or next(of_a_field, "")


def _virtual_readers(here: Machine) -> list[Callable[[], DeviceSample | None]]:
    def reader(device: str) -> Callable[[], DeviceSample | None]:
        return lambda: here.virtual.device_sample(device, time.time())

    return [reader(gpu.id) for gpu in here.virtual.gpus] if here.virtual is not None else []


def _standing(here: Machine) -> list[Event]:
    """What holds for as long as it is watched and the sampler does not say: of virtual GPUs, and of Apple's."""
    now = time.time()
    said: list[Event] = [apple.details(info.id, now) for info in here.found.devices if info.kind == "mps" and info.usable]
    if here.virtual is not None:
        from devexplorer.core.virtual.details import details
        from devexplorer.core.virtual.topology import topology

        said += [details(gpu.id, gpu.profile, now) for gpu in here.virtual.gpus]
        said.append(topology([(gpu.id, gpu.profile) for gpu in here.virtual.gpus]))
    return said
