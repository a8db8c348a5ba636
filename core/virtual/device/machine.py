"""The virtual GPUs of this process, the links between them, and the `Backend` through which the engine uses them. Any
thread; no torch.

Assumed of the links: all cards hang below one host bridge, and each pair has the whole link of the slower one for
itself, as behind a switch. A pair of different kinds of links (NVLink and PCIe, NVLink and xGMI) goes over PCIe.

Computing threads change a `VirtualGpu` while the sampling thread reads it; the allocator and the clock have locks.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, bytes_text
from devexplorer.core.devices.board_model import (
    IDLE,
    IDLE_C,
    LIMIT_C,
    LOADED_C,
    TOO_HOT,
    clock_share,
    power_share,
    settled_c,
    warmed,
)
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.cuda_visible_devices import hidden_by, virtual_uuid, visible_cards
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile, parse_virtual
from devexplorer.core.records import (
    AllocatorSample,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    PeerLink,
    Problem,
    Topology,
)
from devexplorer.core.virtual.device.cost import HostCall, Roofline, SimulatedClock
from devexplorer.core.virtual.device.memory import CachingAllocator, MemoryFigures, snapshot

NVLINK_GB_S = {1: (20.0,), 2: (25.0,), 3: (25.0, 14.0625), 4: (25.0,), 5: (50.0,)}
"""One direction of one link by generation, decimal GB/s: NVIDIA's whitepapers of Pascal (20), Volta, Ampere and Hopper
(25) and Blackwell (50); the GA102 whitepaper gives its four narrower links 14.0625."""

_GENERATION = re.compile(r"NVLink (\d+)")


def topology(gpus: Sequence[tuple[str, Profile]]) -> Topology:
    """Every pair of these virtual GPUs (id and profile), in their order. Atomics between cards are not modelled."""
    return Topology(source="virtual", links=tuple(_pair(*a, *b) for a, b in combinations(gpus, 2)))


def _pair(a: str, first: Profile, b: str, second: Profile) -> PeerLink:
    slower = min(first, second, key=lambda profile: profile.link_gb_s)
    same = _kind(first) == _kind(second)
    kind = _kind(first) if same else "PCIe"
    count = nvlinks(slower) if kind == "NVLink" else 0
    code = {"NVLink": f"NV{count or ''}", "xGMI": "XGMI"}.get(kind, "PHB")
    return PeerLink(
        a=a,
        b=b,
        level=slower.link if same else "host bridge",
        code=code,
        nvlinks=count,
        peer_read="ok",
        peer_write="ok",
        gb_s=slower.link_gb_s,
        simulated=True,
    )


def _kind(profile: Profile) -> str:
    return next((kind for kind in ("NVLink", "xGMI") if profile.link.startswith(kind)), "PCIe")


def nvlinks(profile: Profile) -> int | None:
    """NVLinks that make up the rate of a profile's peer link; None where the rate is no whole number of them.

    >>> from devexplorer.core.devices.profiles import load_profiles
    >>> nvlinks(load_profiles()["NVIDIA A100-SXM4-40GB"])
    12
    """
    generation = _GENERATION.match(profile.link)
    for each in NVLINK_GB_S.get(int(generation.group(1)), ()) if generation else ():
        count = profile.link_gb_s / each
        if count.is_integer():
            return int(count)
    return None


CONTEXT_BYTES = 400 << 20
"""What a CUDA context with PyTorch's kernels takes, from the first tensor on: about 400 MB with lazy loading, CUDA 11.7
and newer (pytorch/pytorch issue 109888; issue 107667 says 300 MB). A real one differs by card and grows with the
kernels that are used."""


class VirtualGpu:
    """One virtual GPU. `id` is what torch and the interface call it."""

    def __init__(self, index: int, profile: Profile, *, card: int | None = None) -> None:
        """`card` is the physical number, which CUDA_VISIBLE_DEVICES does not change; None: the same as `index`."""
        self.index = index
        self.card = index if card is None else card
        self.id = f"vgpu:{index}"
        self.spoken = self.id
        """What code that uses it calls it: `cuda:N` in a script that runs as it would on cards."""
        self.profile = profile
        self._info = profile.simulated_card(self.id, virtual_uuid(self.card, profile.name))
        self.memory = CachingAllocator(profile.usable_bytes, CONTEXT_BYTES, index)
        self.clock = SimulatedClock()
        self.roofline = Roofline(profile)
        self.values_bytes: int | None = None
        """Set for plans: larger tensors get no values."""
        self.lost_values = False
        """Whether a result without values was ever written into a tensor that had some."""
        self.host_reads = 0
        """How often the host asked for a value, and waited."""
        self.loaded_c = LOADED_C
        """The temperature that it approaches under full load; more where its fan is to be blocked."""
        self.attention_by_card = False
        """Whether attention ran that another card has another kernel for."""

    def copy_seconds(self, other: VirtualGpu | None, nbytes: int) -> float:
        """Seconds of a copy between this card and another one, or the host (None)."""
        return self.roofline.copy_seconds(None if other is None else other.profile, nbytes)

    @property
    def used_bytes(self) -> int:
        """What nvidia-smi would show: reserved, and the context."""
        return self.memory.figures().used

    def info(self) -> DeviceInfo:
        """What this device is."""
        return replace(self._info, memory_used_bytes=self.used_bytes)

    def details(self, time_unix_s: float) -> DeviceDetails:
        """The profile's multiprocessors, power limit and highest clock, and the temperature from which the modelled
        driver lowers it; the rest is not modelled."""
        return DeviceDetails(
            device=self.id,
            time_unix_s=time_unix_s,
            sm_count=self.profile.sm_count,
            power_limit_default_w=self.profile.tdp_w,
            temperature_slowdown_c=LIMIT_C,
            sm_clock_max_mhz=self.clock_mhz(1.0),
            simulated=True,
        )

    def clock_mhz(self, share: float) -> int | None:
        """So much of the highest SM clock; None where that is not known."""
        highest = self.profile.boost_clock_mhz
        return None if highest is None else round(share * highest)


def _reasons(busy: float, temperature_c: float) -> tuple[str, ...]:
    """Why the clock is lower than it could be."""
    if busy <= 0:
        return (IDLE,)
    return (TOO_HOT,) if temperature_c >= LIMIT_C else ()


def _allocator_sample(device: str, time_unix_s: float, figures: MemoryFigures) -> AllocatorSample:
    return AllocatorSample(device=device, time_unix_s=time_unix_s, simulated=True, **figures._asdict())


class VirtualMachine:
    """All virtual GPUs of this process: the `Backend` of `core.devices.backend` for `vgpu:N`."""

    def __init__(self, clock: Clock = time.monotonic, host_free: Callable[[], int | None] | None = None) -> None:
        self._now = clock
        self._host_free = host_free or CpuReader().free_bytes
        self._lock = threading.Lock()
        self._cards: tuple[Profile, ...] = ()
        """All cards by physical number; `gpus` are the visible ones."""
        self._visible: str | None = None
        self.gpus: tuple[VirtualGpu, ...] = ()
        """Every visible device, by index."""
        self._recording = False
        self._last_reading: dict[str, tuple[float, float, float, float]] = {}
        """Device -> (time, busy seconds, seconds of work that were still to do, temperature) of its last reading."""
        self._occupied_until: dict[str, float] = {}

    def set_visible(self, visible: str | None) -> None:
        """Apply a CUDA_VISIBLE_DEVICES list to the cards added from now on; None: all are visible.

        Only for a list that the engine was started with: the variable in a user's shell never hides a virtual GPU.
        """
        with self._lock:
            self._visible = visible

    def add(self, profiles: Sequence[Profile]) -> tuple[VirtualGpu, ...]:
        """Add a card per profile; returns the devices that became visible, numbered on from those that are there."""
        with self._lock:
            if len(self._cards) + len(profiles) > MAX_DEVICES:
                raise BadInput(
                    f"there are {len(self._cards)} virtual GPUs already, and {MAX_DEVICES} is the most there can be"
                )
            self._cards += tuple(profiles)
            order = visible_cards(self._visible, self._uuids()).order
            # Existing devices keep their index: another card can only make the list longer.
            numbered = list(enumerate(order))[len(self.gpus) :]
            added = tuple(VirtualGpu(index, self._cards[card], card=card) for index, card in numbered)
            now = self._now()
            self._last_reading.update({gpu.id: (now, 0.0, 0.0, IDLE_C) for gpu in added})
            self.gpus += added
            for gpu in added:
                gpu.memory.record(self._recording)
        return added

    def _uuids(self) -> list[str]:
        return [virtual_uuid(card, profile.name) for card, profile in enumerate(self._cards)]

    def reset(self) -> None:
        """Remove every device. Tensors that are still alive keep their old device object."""
        with self._lock:
            self.gpus, self._cards, self._visible, self._recording = (), (), None, False
            self._last_reading.clear()
            self._occupied_until.clear()

    def gpu(self, device: str | int) -> VirtualGpu:
        """The device with this id or index; `KeyError` when there is none."""
        gpus, index = self.gpus, device
        if isinstance(index, str):
            index = int(index.removeprefix("vgpu:")) if index.startswith("vgpu:") else -1
        if not 0 <= index < len(gpus):
            raise KeyError(device)
        return gpus[index]

    def devices(self) -> tuple[DeviceInfo, ...]:
        """What each virtual GPU is; those that CUDA_VISIBLE_DEVICES hides come last, as `virtual:N` with the number of
        the card."""
        with self._lock:
            gpus, cards, visible = self.gpus, self._cards, self._visible
        if len(gpus) == len(cards):
            return tuple(gpu.info() for gpu in gpus)
        shown, reason = {gpu.card for gpu in gpus}, hidden_by(visible or "")
        hidden = [
            profile.simulated_card(f"virtual:{card}", virtual_uuid(card, profile.name))
            for card, profile in enumerate(cards)
            if card not in shown
        ]
        return (*(gpu.info() for gpu in gpus), *(replace(info, usable=False, reason=reason) for info in hidden))

    def problems(self) -> tuple[Problem, ...]:
        """None: everything about a virtual GPU is known."""
        return ()

    def free_bytes(self, device: str) -> int:
        """Bytes available to new tensors with values: limited by the device and by the host memory that holds the
        values."""
        free, host = self.device_free_bytes(device), self._host_free()
        return free if host is None else min(free, host)

    def device_free_bytes(self, device: str) -> int:
        """Bytes available on the device itself; the context is always subtracted."""
        return self.gpu(device).memory.free_bytes

    def shortage(self, device: str, needed: int) -> str | None:
        """A clause that says which memory, the device's or the host's, has too little free; None when both have
        enough."""
        free, host = self.device_free_bytes(device), self._host_free()
        if needed > free:
            return f"{bytes_text(free)} are free on {device}"
        if host is not None and needed > host:
            return f"{bytes_text(host)} are free on this machine, whose memory holds the values of {device}"
        return None

    def footprint_bytes(self, device: str, sizes: Sequence[int]) -> int:
        """Bytes of `free_bytes` that new tensors of these sizes would use up."""
        return self.gpu(device).memory.footprint(sizes)

    def synchronize(self, device: str) -> None:
        """Nothing to wait for: operations are done when they return."""

    def clock_seconds(self, device: str) -> float:
        """Simulated busy seconds caused by the calling thread; work of other threads is not included."""
        return self.gpu(device).clock.thread_seconds

    def host_seconds(self, device: str) -> float:
        """What the calling thread's launches would have kept the host busy for."""
        return self.gpu(device).clock.thread_host_seconds

    def module_called(self, device: str) -> None:
        """A module was called on the calling thread, which would have kept the host busy."""
        gpu = self.gpu(device)
        gpu.clock.call(gpu.roofline.call_seconds(HostCall.MODULE))

    def cpu_seconds(self, device: str) -> float:
        """Real CPU seconds spent simulating this card."""
        return self.gpu(device).clock.cpu_seconds

    def allocator_sample(self, device: str, time_unix_s: float) -> AllocatorSample:
        """The allocator's numbers of this moment."""
        return _allocator_sample(device, time_unix_s, self.gpu(device).memory.figures())

    def device_sample(self, device: str, time_unix_s: float) -> DeviceSample:
        """Memory in use, and how busy the card would have been since the last reading. Work that is more than the card
        can have done in that time fills the time until the next reading, and no longer. Temperature, power and SM clock
        follow from that by `core.devices.board_model`.
        """
        return self.readings(device, time_unix_s)[1]

    def readings(self, device: str, time_unix_s: float) -> tuple[AllocatorSample, DeviceSample]:
        """Both from the same moment, so reserved + context equals used to the byte."""
        gpu = self.gpu(device)
        figures, busy, now = gpu.memory.figures(), gpu.clock.busy_seconds, self._now()
        with self._lock:
            then, busy_then, left, before_c = self._last_reading.get(device, (now, busy, 0.0, IDLE_C))
            occupied = min(now, self._occupied_until.get(device, then)) - then
            seconds, work = now - then, max(busy - busy_then + left, occupied)
            share = min(1.0, work / seconds) if seconds > 0 else 0.0
            temperature = warmed(before_c, settled_c(share, gpu.loaded_c), seconds)
            self._last_reading[device] = (now, busy, min(max(work - seconds, 0.0), seconds), temperature)
        limit = gpu.profile.tdp_w
        sample = DeviceSample(
            device=device,
            time_unix_s=time_unix_s,
            memory_used_bytes=figures.used,
            memory_free_bytes=gpu.profile.usable_bytes - figures.used,
            memory_reserved_bytes=gpu.profile.memory_bytes - gpu.profile.usable_bytes,
            memory_total_bytes=gpu.profile.memory_bytes,
            utilization_percent=100 * share if seconds > 0 else None,
            temperature_c=round(temperature, 1),
            power_w=None if limit is None else round(limit * power_share(share), 1),
            power_cap_w=limit,
            sm_clock_mhz=gpu.clock_mhz(clock_share(share, temperature)),
            throttle_reasons=_reasons(share, temperature),
            simulated=True,
        )
        return _allocator_sample(device, time_unix_s, figures), sample

    def used_bytes(self, device: str) -> int:
        """What nvidia-smi would show."""
        return self.gpu(device).used_bytes

    def record(self, on: bool) -> tuple[str, ...]:
        """Record the stack of each new block, or stop; applies to devices added later as well."""
        with self._lock:
            self._recording = on
            gpus = self.gpus
        for gpu in gpus:
            gpu.memory.record(on)
        return tuple(gpu.id for gpu in gpus)

    def snapshot(self, device: str) -> dict[str, Any]:
        """The allocator's blocks as torch's snapshots have them."""
        return snapshot(self.gpu(device))

    def empty_cache(self, device: str) -> None:
        """Give cached segments back."""
        self.gpu(device).memory.empty_cache()

    def advance(self, device: str, seconds: float) -> None:
        """Let a device be busy for `seconds` of its simulated time."""
        self.gpu(device).clock.advance(seconds)

    def occupy(self, device: str, seconds: float) -> None:
        """Let readings say that a device is busy for so long from now on, with work that was booked already."""
        with self._lock:
            self._occupied_until[device] = self._now() + seconds


def machine_of(spec: str) -> VirtualMachine:
    """The virtual GPUs of `--virtual`, as they are before anything runs on them; no torch is needed for that."""
    machine = VirtualMachine()
    machine.add(parse_virtual(spec))
    return machine
