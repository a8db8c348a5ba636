"""Memory of the devices of a run: its peaks, and whether it grows at every step. The thread that is observed."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch

from devexplorer.core.observe.records import DeviceUse

PAUSE_NS = 1_000_000_000
"""Between two looks once the first steps are over."""
EARLY_STEPS = 100
"""At the end of each of these there is a look."""
KEPT = 512
"""Looks that are kept; then every second one is left out, and the pauses are twice as long."""
PAGE_BYTES = mmap.PAGESIZE
LEAST_LOOKS = 12
WARM_SHARE = 0.3
"""The first looks are left out: so much of all; caches fill, optimizers make their state."""
RISING_SHARE = 0.7
"""Of ten parts of a run that creeps at least so many end higher than they began."""
LEAST_GROWTH = {"cpu": 16 << 20}
"""What has to be added in the looks that count; of a process more, as its heap grows and shrinks."""
LEAST_GROWTH_OF_CARDS = 1 << 20
LEAST_GROWTH_SHARE = 0.02


def virtual_machine() -> Any:
    """The virtual GPUs of this process, where there are some. Their module is not imported for that."""
    backend = sys.modules.get("devexplorer.core.virtual.backend")
    installed: Any = getattr(backend, "installed", None)  # another thread may be importing it just now
    machine = None if installed is None else installed()
    return machine if machine is not None and machine.gpus else None


def device_of(tensor: Any) -> str:
    """Its device as the script calls it: that of a virtual GPU is CUDA's where it stands in for a card."""
    device = tensor.device
    machine = virtual_machine()
    if device.type == "vgpu" and machine is not None:
        return str(machine.gpus[device.index or 0].spoken)
    return str(device)


def bytes_here(tensor: Any) -> int:
    """What its values take in this process, and the indices of a sparse one; of a DTensor the part that is here."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    else:
        parts = [tensor]
    return sum(int(part.numel() * part.element_size()) for part in parts)


class Growth(NamedTuple):
    """Memory of a device that gets more at every step."""

    device: str
    bytes_per_step: float
    first_bytes: int
    last_bytes: int


class MemoryWatch:
    """Looks at the end of steps."""

    def __init__(self) -> None:
        self.trained = False
        self.due_ns = 0
        self._pause = PAUSE_NS
        self._peaks: dict[str, tuple[int, int | None]] = {}
        self._looks: dict[str, list[tuple[int, int]]] = {}
        self._simulated = False

    def step_ended(self, step: int) -> None:
        """A look, at the end of a step: of each early one, and then once `due_ns` has come."""
        if step >= EARLY_STEPS:
            self.due_ns = perf_counter_ns() + self._pause
        for device, (allocated, _) in self.look().items():
            looks = self._looks.setdefault(device, [])
            looks.append((step, allocated))
            if len(looks) > KEPT:
                del looks[1::2]
                self._pause *= 2

    def look(self) -> dict[str, tuple[int, int | None]]:
        """Bytes allocated and reserved of every device now; peaks are kept, of the process with what is free in its
        heap."""
        resident = self._resident()
        found: dict[str, tuple[int, int | None]] = {"cpu": (resident - _free_in_heap(), None)}
        peaks: dict[str, tuple[int, int | None]] = {"cpu": (resident, None)}
        machine = virtual_machine()
        if machine is not None:
            self._simulated = True
            for gpu in machine.gpus:
                figures = gpu.memory.figures()
                found[gpu.spoken] = figures.allocated_bytes, figures.reserved_bytes
                peaks[gpu.spoken] = figures.peak_allocated_bytes, figures.reserved_bytes
        else:
            _look_at_accelerators(found, peaks)
        for device, (allocated, reserved) in peaks.items():
            most, most_reserved = self._peaks.get(device, (0, None))
            if reserved is not None:
                most_reserved = max(reserved, most_reserved or 0)
            self._peaks[device] = max(most, allocated), most_reserved
        return found

    def _resident(self) -> int:
        """Bytes that this process has in memory. On Linux without psutil, which takes ten times as long, and a part of
        the script's start."""
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                return int(file.read().split()[1]) * PAGE_BYTES
        except (OSError, IndexError):
            import psutil

            return int(psutil.Process().memory_info().rss)

    def devices(self) -> tuple[DeviceUse, ...]:
        """Every device that was used."""
        growing = self.growth()
        used = []
        for device, (allocated, reserved) in self._peaks.items():
            if device != "cpu" and not allocated:
                continue
            grows = growing is not None and growing.device == device
            used.append(
                DeviceUse(
                    device=device,
                    peak_allocated_bytes=allocated,
                    peak_reserved_bytes=reserved,
                    growth_bytes_per_step=growing.bytes_per_step if grows and growing is not None else None,
                    simulated=self._simulated and device != "cpu",
                    name=_name_of(device),
                )
            )
        return tuple(used)

    def growth(self) -> Growth | None:
        """The device whose memory grows at every step; of several the one that is no CPU."""
        for device in sorted(self._looks, key=lambda name: name == "cpu"):
            found = _growth(device, self._looks[device], self._looks_like_host_values(device))
            if found is not None:
                return found
        return None

    def _looks_like_host_values(self, device: str) -> bool:
        """Values of virtual GPUs are in the process: what grows there is said of the card."""
        return device == "cpu" and self._simulated


class _HeapCounts(ctypes.Structure):
    """What glibc counts of its heap; `fordblks`: the bytes that are free in it."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


@cache
def _heap_counts() -> Any:
    """None where the C library is another one, or older."""
    try:
        counts = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return None
    counts.restype = _HeapCounts
    return counts


def _free_in_heap() -> int:
    """Bytes that were given back to the heap, which keeps them for later: a process looks larger by them after a window
    has asked something, and by more or less of them from step to step, though nothing is held."""
    counts = _heap_counts()
    return 0 if counts is None else int(counts().fordblks)


def _name_of(device: str) -> str:
    """Of the card; empty where it is not known."""
    machine = virtual_machine()
    if machine is not None:
        return next((str(gpu.profile.name) for gpu in machine.gpus if gpu.spoken == device), "")
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""


def _growth(device: str, looks: list[tuple[int, int]], skipped: bool) -> Growth | None:
    looks = looks[int(len(looks) * WARM_SHARE) :]
    if skipped or len(looks) < LEAST_LOOKS:
        return None
    (first_step, first), (last_step, last) = looks[0], looks[-1]
    grown = last - first
    least = max(LEAST_GROWTH.get(device, LEAST_GROWTH_OF_CARDS), LEAST_GROWTH_SHARE * first)
    if grown < least or last_step <= first_step:
        return None
    parts = min(10, len(looks) // 2)
    bounds = [looks[number * (len(looks) - 1) // parts][1] for number in range(parts + 1)]
    rising = sum(1 for before, after in pairwise(bounds) if after > before)
    largest = max(after - before for before, after in pairwise(bounds))
    if rising < RISING_SHARE * parts or largest > 0.5 * grown:
        return None  # it grew once, or it goes up and down
    return Growth(device, grown / (last_step - first_step), first, last)


def _look_at_accelerators(found: dict[str, tuple[int, int | None]], peaks: dict[str, tuple[int, int | None]]) -> None:
    """torch's allocators, where there is an accelerator that was used already: asking must not make a context."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or (accelerator.type == "cuda" and not torch.cuda.is_initialized()):
        return
    for index in range(torch.accelerator.device_count()):
        try:
            figures = torch.accelerator.memory_stats(index)
        except (RuntimeError, NotImplementedError, AttributeError):
            return  # a kind of device that keeps no count
        if figures.get("allocated_bytes.all.peak"):
            device = f"{accelerator.type}:{index}"
            reserved = int(figures.get("reserved_bytes.all.current", 0))
            found[device] = int(figures.get("allocated_bytes.all.current", 0)), reserved
            peak_reserved = int(figures.get("reserved_bytes.all.peak", reserved))
            peaks[device] = int(figures["allocated_bytes.all.peak"]), peak_reserved
