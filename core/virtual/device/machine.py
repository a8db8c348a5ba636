"""The virtual GPUs of this process: memory, clock and identity of each, and the answers that the engine asks of a kind
of device. No torch.

Computing threads change a `VirtualGpu`, the gauge thread reads it: what they share is behind the locks of the allocator
and the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from devexplorer.core.base.dtypes import item_bytes, product_dtype
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.formats import bytes_text
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.cuda_visible_devices import hidden_by, virtual_uuid, visible_cards
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile
from devexplorer.core.records.devices import AllocatorSample, DeviceInfo, DeviceSample, Problem
from devexplorer.core.virtual.device.cost import Roofline, SimulatedClock
from devexplorer.core.virtual.device.memory import Block, CachingAllocator, Figures
from devexplorer.core.virtual.device.snapshot import snapshot

CONTEXT_BYTES = 400 << 20
"""What a CUDA context with PyTorch's kernels takes, from the first tensor on: about 400 MB with lazy loading, CUDA 11.7
and newer (pytorch/pytorch issue 109888; issue 107667 says 300 MB). A real one differs by card and grows with the
kernels that are used."""


class MemoryStats(NamedTuple):
    """The memory of a virtual GPU at one moment: everything that is shown of that moment comes from one of these."""

    figures: Figures
    context: int
    total: int

    @property
    def used(self) -> int:
        """What nvidia-smi would show: reserved, and the context."""
        return self.figures.reserved + self.context


class VirtualGpu:
    """One virtual GPU. `id` is what torch and the interface call it."""

    def __init__(
        self, index: int, profile: Profile, context_bytes: int = CONTEXT_BYTES, *, card: int | None = None
    ) -> None:
        """`card` is its own number, which stays when CUDA_VISIBLE_DEVICES changes what is counted; None: the same as
        `index`."""
        self.index = index
        self.card = index if card is None else card
        self.id = f"vgpu:{index}"
        self.profile = profile
        self.memory = CachingAllocator(profile.memory_bytes, context_bytes, index)
        self.clock = SimulatedClock()
        self.roofline = Roofline(profile)
        self.values_bytes: int | None = None
        """Not None, for plans: floating tensors here have no values but for single ones, others up to so many bytes."""
        self.used = False
        """Whether a tensor was ever put here; from then on the context counts."""

    def allocate(self, nbytes: int) -> Block:
        """Take memory for a storage; the first one creates the context. Raises `OutOfDeviceMemory`."""
        self.used = True
        return self.memory.allocate(nbytes)

    def copy_seconds(self, other: VirtualGpu | None, nbytes: int) -> float:
        """Seconds of a copy between this card and another one, or the host (None)."""
        return self.roofline.copy_seconds(None if other is None else other.profile, nbytes)

    @property
    def context_bytes(self) -> int:
        """What the context takes: nothing before the first tensor."""
        return self.memory.context_bytes if self.used else 0

    def look(self) -> MemoryStats:
        """The figures of one moment, also while other threads allocate."""
        # The context last: it is there before the first block, so that nothing is reserved in a look without it.
        return MemoryStats(self.memory.figures(), self.context_bytes, self.profile.memory_bytes)

    @property
    def used_bytes(self) -> int:
        """What nvidia-smi would show: reserved, and the context."""
        return self.look().used

    def info(self) -> DeviceInfo:
        """What this device is."""
        return replace(_described(self.id, self.card, self.profile), memory_used_bytes=self.used_bytes)


def _described(device: str, card: int, profile: Profile) -> DeviceInfo:
    """A card of this profile under that id."""
    return DeviceInfo(
        id=device,
        kind="virtual",
        name=profile.name,
        uuid=virtual_uuid(card, profile.name),
        memory_total_bytes=profile.memory_bytes,
        compute_capability=profile.compute_capability,
        sm_count=profile.sm_count,
        datasheet_tflops=dict(profile.tflops),
        memory_gb_s=profile.memory_gb_s,
        simulated=True,
    )


def _inside(device: str, time_unix_s: float, look: MemoryStats) -> AllocatorSample:
    figures = look.figures
    return AllocatorSample(
        device=device,
        time_unix_s=time_unix_s,
        allocated_bytes=figures.allocated,
        reserved_bytes=figures.reserved,
        peak_allocated_bytes=figures.peak,
        largest_free_block_bytes=figures.largest_free,
        segments=figures.segments,
        context_bytes=look.context,
        simulated=True,
    )


class VirtualMachine:
    """All virtual GPUs of this process: the `Backend` of `core.devices.backend` for `vgpu:N`."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, host_free: Callable[[], int | None] | None = None
    ) -> None:
        self._now = clock
        self._host_free = host_free or CpuReader().free_bytes
        self._lock = threading.Lock()
        self._cards: tuple[Profile, ...] = ()
        """All there are, by their own numbers; the visible ones among them are `_gpus`."""
        self._visible: str | None = None
        self._gpus: tuple[VirtualGpu, ...] = ()
        self._recording = False
        self._read: dict[str, tuple[float, float]] = {}
        """Device -> (time, busy seconds) of its last reading."""

    def obey(self, visible: str | None) -> None:
        """Let this CUDA_VISIBLE_DEVICES choose among the cards that are added from now on; None: all of them are
        visible.

        For an engine that was started with a list of its own: the variable that a user's shell has set never hides a
        virtual GPU.
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
            # What is there stays where it is: a card more can only make the list longer.
            numbered = list(enumerate(order))[len(self._gpus) :]
            added = tuple(VirtualGpu(index, self._cards[card], card=card) for index, card in numbered)
            now = self._now()
            self._read.update({gpu.id: (now, 0.0) for gpu in added})
            self._gpus += added
            for gpu in added:
                gpu.memory.record(self._recording)
        return added

    def _uuids(self) -> list[str]:
        return [virtual_uuid(card, profile.name) for card, profile in enumerate(self._cards)]

    def reset(self) -> None:
        """Drop every device and its counters. Tensors that still live keep their old device's books to themselves."""
        with self._lock:
            self._gpus, self._cards, self._visible, self._recording = (), (), None, False
            self._read.clear()

    @property
    def gpus(self) -> tuple[VirtualGpu, ...]:
        """Every device, by index."""
        return self._gpus

    def gpu(self, device: str | int) -> VirtualGpu:
        """The device with this id or index; `KeyError` when there is none."""
        index = (
            device
            if isinstance(device, int)
            else int(device.removeprefix("vgpu:"))
            if device.startswith("vgpu:")
            else -1
        )
        gpus = self._gpus
        if not 0 <= index < len(gpus):
            raise KeyError(device)
        return gpus[index]

    def devices(self) -> tuple[DeviceInfo, ...]:
        """What each virtual GPU is; those that CUDA_VISIBLE_DEVICES hides come last, as `virtual:N` with the number of
        the card."""
        with self._lock:
            gpus, cards, visible = self._gpus, self._cards, self._visible
        if len(gpus) == len(cards):
            return tuple(gpu.info() for gpu in gpus)
        shown, reason = {gpu.card for gpu in gpus}, hidden_by(visible or "")
        hidden = [
            _described(f"virtual:{card}", card, profile) for card, profile in enumerate(cards) if card not in shown
        ]
        return (*(gpu.info() for gpu in gpus), *(replace(info, usable=False, reason=reason) for info in hidden))

    def problems(self) -> tuple[Problem, ...]:
        """Nothing about a virtual GPU is unknown."""
        return ()

    def free_bytes(self, device: str) -> int:
        """Bytes that new tensors with values can take: the device must have them free, and the host, whose memory holds
        the values."""
        free, host = self.device_free_bytes(device), self._host_free()
        return free if host is None else min(free, host)

    def device_free_bytes(self, device: str) -> int:
        """Bytes that the device itself has for new tensors; the context is subtracted also before the first tensor."""
        return self.gpu(device).memory.free_bytes

    def shortage(self, device: str, needed: int) -> str | None:
        """Which memory has fewer than `needed` bytes free, and how many, as the end of a sentence; None when both have
        them."""
        free, host = self.device_free_bytes(device), self._host_free()
        if needed > free:
            return f"{bytes_text(free)} are free on {device}"
        if host is not None and needed > host:
            return f"{bytes_text(host)} are free on this machine, whose memory holds the values of {device}"
        return None

    def footprint_bytes(self, device: str, sizes: Sequence[int]) -> int:
        """Bytes of `free_bytes` that new tensors of these sizes would use up."""
        return self.gpu(device).memory.would_take(sizes)

    def synchronize(self, device: str) -> None:
        """Nothing to wait for: operations are done when they return."""

    def clock_seconds(self, device: str) -> float:
        """Seconds that the card would have been busy with the calling thread's work: what others do there meanwhile is
        not its time."""
        return self.gpu(device).clock.thread_seconds

    def stand_in_seconds(self, device: str) -> float:
        """Wall seconds that the CPU spent in place of the card."""
        return self.gpu(device).clock.stand_in_seconds

    def allocator_sample(self, device: str, time_unix_s: float) -> AllocatorSample:
        """The allocator's numbers of this moment."""
        return _inside(device, time_unix_s, self.gpu(device).look())

    def device_sample(self, device: str, time_unix_s: float) -> DeviceSample:
        """Memory in use, and how busy the card would have been since the last reading (100 % at most).

        A virtual GPU has no temperature, power or clock rate: those stay None.
        """
        return self._outside(device, time_unix_s, self.gpu(device).look())

    def readings(self, device: str, time_unix_s: float) -> tuple[AllocatorSample, DeviceSample]:
        """Both of one moment: reserved and context add up to what is used, to the byte."""
        look = self.gpu(device).look()
        return _inside(device, time_unix_s, look), self._outside(device, time_unix_s, look)

    def _outside(self, device: str, time_unix_s: float, look: MemoryStats) -> DeviceSample:
        busy, now = self.gpu(device).clock.busy_seconds, self._now()
        with self._lock:
            then, busy_then = self._read.get(device, (now, busy))
            self._read[device] = (now, busy)
        share = (busy - busy_then) / (now - then) if now > then else None
        return DeviceSample(
            device=device,
            time_unix_s=time_unix_s,
            memory_used_bytes=look.used,
            memory_free_bytes=look.total - look.used,
            memory_total_bytes=look.total,
            utilization_percent=None if share is None else min(100.0, 100 * share),
            simulated=True,
        )

    def used_bytes(self, device: str) -> int:
        """What nvidia-smi would show."""
        return self.gpu(device).used_bytes

    def record(self, on: bool) -> tuple[str, ...]:
        """Let the allocators keep the stack of each new block; devices that are added later do so too."""
        with self._lock:
            self._recording = on
            gpus = self._gpus
        for gpu in gpus:
            gpu.memory.record(on)
        return tuple(gpu.id for gpu in gpus)

    def snapshot(self, device: str) -> dict[str, Any]:
        """The allocator's blocks as torch's snapshots have them."""
        return snapshot(self.gpu(device))

    def empty_cache(self, device: str) -> None:
        """Give cached segments back."""
        self.gpu(device).memory.empty_cache()

    def matmul_seconds(self, device: str, m: int, n: int, k: int, dtype: str) -> float:
        """Seconds of one product (M×K)·(K×N) on that card, `tf32` meaning TF32 products of float32 tensors."""
        nbytes = (m * k + k * n) * item_bytes(dtype) + m * n * item_bytes(product_dtype(dtype))
        return self.gpu(device).roofline.operation_seconds(2 * m * n * k, nbytes, dtype)

    def advance(self, device: str, seconds: float) -> None:
        """Let a device be busy for `seconds` of its simulated time."""
        self.gpu(device).clock.advance(seconds)
