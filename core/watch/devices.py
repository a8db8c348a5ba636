"""Reads every device for `devexplorer watch`, one reading after the other. Main thread; torch is not imported
(`without_torch`).

NVIDIA's cards are listed and read on threads of the sampler, AMD's and Intel's on one of their own: one that hangs
holds up no other, and one that is slow keeps its last reading until the next one comes.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from devexplorer.core.devices.catalog import ORDER, Catalog, expected_devices, installed_build, join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.cuda_visible_devices import VARIABLE
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Event, Problem
from devexplorer.core.telemetry.device_facts import Writer
from devexplorer.core.telemetry.metrics import is_empty_sample
from devexplorer.core.telemetry.sampler import CALL_LIMIT_S, PATIENCE_S, Sampler
from devexplorer.core.watch.table import WatchReading

if TYPE_CHECKING:
    from devexplorer.core.devices.drm import DrmSampler
    from devexplorer.core.devices.profiles import Profile
    from devexplorer.core.virtual.device.machine import VirtualMachine

CLOSE_S = 0.3
"""For threads to end. A thread that a slow card blocks is a daemon and is left behind."""
FIRST_S = 1.0
"""How long to wait for the list of cards and for the first readings."""
NEXT_S = 0.25
"""How long the others are: a card that takes longer is shown with its last reading."""
ONCE_S = 60.0
"""The same for a single reading. It ends by itself, because each call has a limit."""
STALE_S = 10.0
"""Older readings are not shown."""
_NOT_READ = ("device", "time_unix_s", "simulated")


class WatchedDevices:
    """Every device with its readers. A context: in the end NVML is given back and no thread is left.

    `once`: there will be one reading, so whatever takes part in it is waited for, within the limits of its calls.
    `datasheets`: figures by the name of a card, for who wants details and topology, too.
    """

    def __init__(
        self,
        virtual_spec: str | None,
        interval_s: float,
        nvml: Nvml,
        drm: Drm | None = None,
        *,
        once: bool = False,
        datasheets: dict[str, Profile] | None = None,
    ) -> None:
        self._events: deque[Event] = deque()
        self._once = once
        self._datasheets = datasheets
        self._cpu = CpuReader()
        self._nvml = nvml
        limit_s = nvml.limit_s if once else CALL_LIMIT_S
        recorded = datasheets is not None
        self._sampler = Sampler(
            self._events.append, nvml, self._cpu, interval_s, call_limit_s=limit_s, details=recorded
        )
        self._build = installed_build()
        drm = drm or Drm()
        self._drm_cards = drm.cards()
        self._virtual: VirtualMachine | None = None
        if virtual_spec is not None:
            from devexplorer.core.virtual.device.machine import machine_of

            self._virtual = machine_of(virtual_spec)
        self._cards: tuple[Card, ...] = ()
        self._found = self._joined()
        self._kernel_events: deque[Event] = deque()
        """Of AMD's and Intel's cards, which have a thread of their own."""
        self._kernel_samples: dict[str, tuple[float, DeviceSample]] = {}
        """Device -> when it was heard of, and its newest sample."""
        self._kernel_patience_s = PATIENCE_S + 2 * interval_s
        self._kernel = self._drm_sampler(drm, interval_s)
        self._details: dict[str, DeviceDetails] = {}
        self._first = True
        self._events += self._standing()

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """What each device is; other ones when a card or a MIG instance came or went."""
        return self._found.devices

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be found out now, by device id. The sampler knows cards by NVML's numbers."""
        names = self._found.card_names
        renamed = tuple(replace(p, device=names.get(p.device or "", p.device)) for p in self._sampler.problems)
        return tuple(
            dict.fromkeys((*renamed, *(problem for problem in self._found.problems if problem.device is None)))
        )

    def __enter__(self) -> WatchedDevices:
        if self._kernel is not None:
            self._kernel.start()
            until = time.monotonic() + PATIENCE_S
            while len(self._kernel_events) < len(self._drm_cards) and time.monotonic() < until:
                time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        if self._kernel is not None:
            self._kernel.stop(CLOSE_S)  # one that a card holds up is a daemon and is left behind
        self._sampler.stop(CLOSE_S)

    def read(self) -> tuple[list[WatchReading], list[Event]]:
        """A reading of each device in the order of `infos`, and everything since the last one that is worth
        recording."""
        if self._once:
            patience_s = ONCE_S
        elif self._first:
            patience_s = FIRST_S
        else:
            patience_s = NEXT_S
        self._first = False
        since = {sample.device: sample.time_unix_s for sample in self._sampler.latest()}
        read = self._sampler.read_round(patience_s, list_patience_s=ONCE_S if self._once else FIRST_S)
        self._follow_cards()
        names = self._found.card_names
        read = [replace(sample, device=names.get(sample.device, sample.device)) for sample in read]
        new = [sample for sample in read if sample.time_unix_s != since.get(sample.device)]
        now = time.time()
        elsewhere = [*self._virtual_samples(now), *self._apple_samples(now)]
        events = [*_taken(self._events), *self._read_kernel(), *new, *elsewhere]
        self._details.update({event.device: event for event in events if isinstance(event, DeviceDetails)})
        samples = {sample.device: sample for sample in (*read, *elsewhere)}
        heard_since = time.monotonic() - self._kernel_patience_s  # none of a card that has been silent for long
        samples |= {device: sample for device, (heard, sample) in self._kernel_samples.items() if heard > heard_since}
        fresh = {sample.device for sample in new}
        problems = self.problems
        readings = [self._reading(info, samples.get(info.id), info.id in fresh, problems, now) for info in self.infos]
        return readings, events

    def _reading(
        self, info: DeviceInfo, sample: DeviceSample | None, fresh: bool, problems: Sequence[Problem], now: float
    ) -> WatchReading:
        sample = sample or DeviceSample(device=info.id, time_unix_s=now, simulated=info.simulated)
        age_s = None
        if info.nvml_index is not None and not fresh and not is_empty_sample(sample):
            age_s = max(now - sample.time_unix_s, 0.0)
            if age_s > STALE_S:
                sample, age_s = DeviceSample(device=info.id, time_unix_s=now), None
        machine = tuple(problem for problem in problems if problem.device is None) if info.kind == "cpu" else ()
        return WatchReading(
            info, sample, _why_nothing(info, sample, problems), age_s, self._reasons(info, sample, problems), machine
        )

    def _reasons(self, info: DeviceInfo, sample: DeviceSample, problems: Sequence[Problem]) -> dict[str, str]:
        empty = [
            field
            for field in DeviceSample.__struct_fields__
            if field not in _NOT_READ and getattr(sample, field) is None
        ]
        writer = Writer(info, sample, self._details.get(info.id), problems)
        card = next((card for card in self._cards if info.nvml_index is not None and _is(card, info)), None)
        missing = {} if card is None or card.broken else self._nvml.missing(card)
        reasons = {field: missing.get(field) or writer.why_null(field) for field in empty}
        if card is not None and not card.named and (why := writer.reason("name")):
            reasons["name"] = why  # the one in its place is made of the card's number
        return reasons

    def _drm_sampler(self, drm: Drm, interval_s: float) -> DrmSampler | None:
        if not self._drm_cards:
            return None
        from devexplorer.core.devices.drm import DrmSampler

        sampler = DrmSampler(self._kernel_events.append, drm, interval_s=interval_s)
        sampler.set_names(self._found.drm_names)
        return sampler

    def _read_kernel(self) -> list[Event]:
        events = _taken(self._kernel_events)
        now = time.monotonic()
        self._kernel_samples |= {event.device: (now, event) for event in events if isinstance(event, DeviceSample)}
        return events

    def _joined(self) -> Catalog:
        buses: dict[str, list[str]] = {}
        for card in self._drm_cards:
            buses.setdefault(card.vendor, []).extend([card.bus_id] if card.bus_id else [])
        torch_side = expected_devices(self._cards, buses, os.environ, self._build, self._cpu.facts.name)
        return join(
            self._cpu.info(),
            self._cards,
            torch_side.devices,
            self._virtual.devices() if self._virtual is not None else (),
            torch_side.problems,
            datasheets=self._datasheets,
            cuda_visible_devices=os.environ.get(VARIABLE),
            cuda_device_order=os.environ.get(ORDER) or "not asked",
            drm=self._drm_cards,
        )

    def _follow_cards(self) -> None:
        """Join everything again when cards or MIG instances came or went."""
        cards = self._sampler.cards
        if cards != self._cards:
            self._cards = cards
            self._found = self._joined()
            self._sampler.set_names(self._found.names)

    def _virtual_samples(self, now: float) -> list[DeviceSample]:
        return (
            [self._virtual.device_sample(gpu.id, now) for gpu in self._virtual.gpus]
            if self._virtual is not None
            else []
        )

    def _apple_samples(self, now: float) -> list[DeviceSample]:
        if not any(info.kind == "mps" for info in self.infos):
            return []
        used, total = self._cpu.used_bytes(), self._cpu.facts.memory_total_bytes
        return [DeviceSample(device="mps", time_unix_s=now, memory_used_bytes=used, memory_total_bytes=total)]

    def _standing(self) -> list[Event]:
        """What holds for as long as it is watched and the sampler does not say: of virtual GPUs, and of Apple's."""
        events: list[Event] = []
        now = time.time()
        if any(info.kind == "mps" for info in self.infos):
            from devexplorer.core.devices import apple

            events.append(apple.details("mps", now))
        if self._virtual is not None:
            from devexplorer.core.virtual.device.machine import topology

            events += [gpu.details(now) for gpu in self._virtual.gpus]
            events.append(topology([(gpu.id, gpu.profile) for gpu in self._virtual.gpus]))
        return events


def _taken(events: deque[Event]) -> list[Event]:
    """Everything that is there now; what comes meanwhile is taken with the next reading."""
    return [events.popleft() for _ in range(len(events))]


def _is(card: Card, info: DeviceInfo) -> bool:
    return (
        card.uuid == info.uuid
        if card.mig_instance is not None
        else card.index == info.nvml_index and info.parent is None
    )


def _why_nothing(info: DeviceInfo, sample: DeviceSample, problems: Sequence[Problem]) -> str:
    """Why nothing can be read from a device; empty where something can."""
    own = next((problem.reason for problem in problems if problem.device == info.id and problem.field is None), "")
    if own or info.nvml_index is None or not is_empty_sample(sample):
        return own
    of_all = (problem.reason for problem in problems if problem.device is None and problem.field == "nvml")
    of_a_field = (problem.reason for problem in problems if problem.device == (info.parent or info.id))
    return next(of_all, "") or next(of_a_field, "")
