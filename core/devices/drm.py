"""AMD and Intel cards as the Linux kernel shows them in /sys/class/drm, without torch and without a vendor's library:
what they are, and their samples once a second, on a thread of their own (`sampler-drm`).

What a driver does not tell stays None, with the reason among the details' `missing`. Sources of names and units: the
kernel's documentation of amdgpu ("GPU Power/Thermal Controls and Monitoring"), of i915 and xe
(ABI/testing/sysfs-driver-intel-*), of hwmon ("Naming and data format standards for sysfs files"). NVIDIA's cards are
read through NVML and never listed here.

A hanging card can block a read, so the CPU and NVIDIA cards are read on other threads. Where the engine samples a
card's memory itself (`xpu`), the readings made here complete its samples (`completed`) instead of competing with them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from devexplorer.core.base import Clock
from devexplorer.core.devices.plausible import without_implausible
from devexplorer.core.records import DeviceDetails, DeviceSample, EventSink

T = TypeVar("T", int, float)

VENDORS = {0x1002: "AMD", 0x8086: "Intel"}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s of a PCIe lane -> generation."""
_MARKETED = re.compile(r"\[(.+)\]")
_CARD = re.compile(r"card(\d+)")
_CHIP = ("edge", "pkg", "junction")
"""Labels of the chip's own temperature, in order of preference."""
_MEMORY = ("mem_info_vram_total", "tile0/physical_vram_size_bytes", "lmem_total_bytes")
"""Bytes of a card's own memory: amdgpu, xe, i915."""
ASLEEP = "idle (the card is asleep)"
"""Why the clocks of a card that sleeps are low: it is there and well, unlike one of which nothing is known."""
_NO_MEMORY = "Intel's driver tells memory in use to each process about itself only"
_NO_BUSY = "Intel's driver counts busy time for the perf interface only, not in sysfs"


class DrmCard(NamedTuple):
    """A card with a render node."""

    number: int
    """The N of /sys/class/drm/cardN."""
    vendor: str
    """`AMD`, `Intel`."""
    name: str
    bus_id: str | None
    """`0000:03:00.0`"""
    driver: str | None
    """`amdgpu`, `i915`, `xe`."""
    memory_total_bytes: int | None
    shared: bool
    """Whether it uses the system's memory: an Intel GPU within the CPU."""

    @property
    def drm_id(self) -> str:
        """The device id by which it is listed where torch cannot use it."""
        return f"drm:{self.number}"


class Drm:
    """`cards`, then `read` and `details` of each. Tests replace / by `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._class = root / "sys" / "class" / "drm"
        self._names = (root / "usr/share/hwdata/pci.ids", root / "usr/share/misc/pci.ids")
        self._refused: dict[int, dict[str, str]] = {}
        """Card -> what its last reading said that cannot be right."""
        self._energy: dict[int, tuple[float, int]] = {}
        """Card -> (unix seconds, microjoules) of the last reading: its difference is the power."""

    def cards(self) -> tuple[DrmCard, ...]:
        """Every AMD and Intel card that can compute, by number; none where the system has no such folder."""
        try:
            result = [
                (int(match.group(1)), entry)
                for entry in self._class.iterdir()
                if (match := _CARD.fullmatch(entry.name))
            ]
        except OSError:
            return ()
        return tuple(
            card for number, entry in sorted(result) if (card := self._card(number, entry / "device")) is not None
        )

    def read(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceSample:
        """One reading, as a sample of `device`; a card that sleeps is left asleep, and that is all that is said of
        it."""
        folder = self._class / f"card{card.number}" / "device"
        sensors = _Sensors(folder)
        if _text(folder / "power" / "runtime_status") == "suspended":
            return DeviceSample(
                device=device,
                time_unix_s=time_unix_s,
                memory_total_bytes=card.memory_total_bytes,
                throttle_reasons=(ASLEEP,),
            )
        used, total = _number(folder / "mem_info_vram_used"), _number(folder / "mem_info_vram_total")
        sample = DeviceSample(
            device=device,
            time_unix_s=time_unix_s,
            memory_used_bytes=used,
            memory_free_bytes=None if used is None or total is None else max(total - used, 0),
            memory_total_bytes=total if total is not None else card.memory_total_bytes,
            utilization_percent=_number(folder / "gpu_busy_percent"),
            memory_utilization_percent=_number(folder / "mem_busy_percent"),
            temperature_c=sensors.value("temp", _CHIP, 1e3),
            memory_temperature_c=sensors.value("temp", ("mem", "vram"), 1e3, anyway=False),
            power_w=self._power(card, sensors, time_unix_s),
            power_cap_w=_known(sensors.plain("power1_cap", 1e6), sensors.plain("power1_max", 1e6)),
            energy_j=sensors.plain("energy1_input", 1e6),
            sm_clock_mhz=_known(_whole(sensors.value("freq", ("sclk",), 1e6)), self._frequency(card, "act")),
            memory_clock_mhz=_whole(sensors.value("freq", ("mclk",), 1e6, anyway=False)),
            fan_percent=_share(sensors.plain("pwm1"), sensors.plain("pwm1_max") or 255.0),
            pcie_generation=_generation(_text(folder / "current_link_speed")),
            pcie_width=_number(folder / "current_link_width"),
            pcie_replays=_number(folder / "pcie_replay_count"),
        )
        sample, self._refused[card.number] = without_implausible(sample)
        return sample

    def details(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceDetails:
        """What changes seldom; `more` has what no field is for."""
        folder = self._class / f"card{card.number}" / "device"
        sensors = _Sensors(folder)
        more = {"kernel driver": card.driver, "bus id": card.bus_id}
        rpm = sensors.plain("fan1_input")
        more["fan"] = None if rpm is None else f"{rpm:.0f} rpm"
        gtt = _number(folder / "mem_info_gtt_total")
        more["system memory that it may use"] = None if gtt is None else f"{gtt / (1 << 20):,.0f} MiB"
        more["performance level"] = _text(folder / "power_dpm_force_performance_level")
        missing = dict(self._refused.get(card.number, {}))
        if card.vendor == "Intel":
            missing |= {"memory_used_bytes": _NO_MEMORY, "utilization_percent": _NO_BUSY}
        node = _number(folder / "numa_node")
        return DeviceDetails(
            device=device,
            time_unix_s=time_unix_s,
            serial=_text(folder / "unique_id"),
            vbios_version=_text(folder / "vbios_version"),
            temperature_limit_c=sensors.value("temp", _CHIP, 1e3, part="crit"),
            temperature_shutdown_c=sensors.value("temp", _CHIP, 1e3, part="emergency"),
            temperature_memory_limit_c=sensors.value("temp", ("mem", "vram"), 1e3, part="crit", anyway=False),
            power_limit_default_w=_known(
                sensors.plain("power1_cap_default", 1e6), sensors.plain("power1_rated_max", 1e6)
            ),
            power_limit_min_w=sensors.plain("power1_cap_min", 1e6),
            power_limit_max_w=sensors.plain("power1_cap_max", 1e6),
            sm_clock_max_mhz=self._frequency(card, "max"),
            pcie_generation_max=_generation(_text(folder / "max_link_speed")),
            pcie_width_max=_number(folder / "max_link_width"),
            cpus=_text(folder / "local_cpulist"),
            numa_node=None if node is None or node < 0 else node,
            more={label: value for label, value in more.items() if value},
            missing=missing,
        )

    def _card(self, number: int, folder: Path) -> DrmCard | None:
        vendor = _hex(folder / "vendor")
        if vendor not in VENDORS or not any((folder / "drm").glob("renderD*")):
            return None
        driver = _link(folder / "driver")
        product = _hex(folder / "device")
        total = _known(*(_number(folder / name) for name in _MEMORY))
        name = _text(folder / "product_name") or _pci_name(vendor, product, self._names)
        return DrmCard(
            number=number,
            vendor=VENDORS[vendor],
            name=name or (f"{VENDORS[vendor]} GPU" if product is None else f"{VENDORS[vendor]} GPU {product:04x}"),
            bus_id=_link(folder),
            driver=driver,
            memory_total_bytes=total,
            # What has a power or memory of its own is a card; an Intel GPU on bus 0 is a part of the CPU.
            shared=VENDORS[vendor] == "Intel" and total is None and (_link(folder) or "").startswith("0000:00:"),
        )

    def _power(self, card: DrmCard, sensors: _Sensors, now: float) -> float | None:
        """amdgpu tells watts; Intel's drivers count energy, whose growth between two readings is the power."""
        reported = _known(sensors.plain("power1_average", 1e6), sensors.plain("power1_input", 1e6))
        if reported is not None:
            return reported
        energy = sensors.plain("energy1_input")
        if energy is None:
            return None
        then, before = self._energy.get(card.number, (now, int(energy)))
        self._energy[card.number] = (now, int(energy))
        return (energy - before) / 1e6 / (now - then) if now > then and energy >= before else None

    def _frequency(self, card: DrmCard, which: str) -> int | None:
        """`act` or `max` clock in MHz of Intel's drivers: xe keeps it by tile and engine group, i915 beside the
        device."""
        folder = self._class / f"card{card.number}"
        xe = sorted(folder.glob(f"device/tile0/gt0/freq0/{which}_freq"))
        i915 = [folder / f"gt/gt0/rps_{which}_freq_mhz", folder / f"gt_{which}_freq_mhz"]
        return _known(*(_number(path) for path in (*xe, *i915)))


class _Sensors:
    """The hwmon folder of a card: files as `temp2_input` with `temp2_label` saying what it is about."""

    def __init__(self, folder: Path) -> None:
        self._at = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), None)

    def plain(self, name: str, scale: float = 1.0) -> float | None:
        """One file, divided by `scale`."""
        number = None if self._at is None else _number(self._at / name)
        return None if number is None else number / scale

    def value(
        self, kind: str, labels: tuple[str, ...], scale: float, *, part: str = "input", anyway: bool = True
    ) -> float | None:
        """The sensor with one of these labels; `anyway`: the first one where none has a label."""
        if self._at is None:
            return None
        labelled = {
            (_text(path) or "").lower(): path.name.partition("_")[0] for path in sorted(self._at.glob(f"{kind}*_label"))
        }
        sensor = next((labelled[label] for label in labels if label in labelled), None)
        if sensor is None and anyway and not labelled:
            sensor = f"{kind}1"
        return None if sensor is None else self.plain(f"{sensor}_{part}", scale)


def _text(path: Path) -> str | None:
    """The file's one line; None where there is none, it cannot be read, or the card sleeps."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,19}", text) else None


def _hex(path: Path) -> int | None:
    text = _text(path)
    return int(text, 16) if text is not None and re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", text) else None


def _link(path: Path) -> str | None:
    """The last part of what a link points to: a PCI address, a driver's name."""
    try:
        return path.readlink().name
    except OSError:
        return None


def _known(*values: T | None) -> T | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or whole <= 0 else min(100 * part / whole, 100.0)


def _generation(speed: str | None) -> int | None:
    """`16.0 GT/s PCIe` -> 4."""
    match = re.match(r"[0-9.]+", speed or "")
    try:
        return _GENERATIONS.get(float(match.group())) if match else None
    except ValueError:
        return None


def _pci_name(vendor: int, product: int | None, places: Iterable[Path]) -> str | None:
    """The name of a product as it is sold, with its maker's, from the list that Linux systems carry (pci.ids of the PCI
    ID project); None where no list knows it.

    `Navi 31 [Radeon RX 7900 XT/7900 XTX]` is the chip and what is sold with it: the second counts.
    """
    if product is None:
        return None
    for path in places:
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                result = _product(lines, f"{vendor:04x}", f"\t{product:04x}  ")
        except OSError:
            continue
        if result is not None:
            sold = _MARKETED.search(result)
            return f"{VENDORS[vendor]} {sold.group(1) if sold else result}".strip()
    return None


def _product(lines: Iterable[str], vendor: str, product: str) -> str | None:
    """Vendors begin their lines, their products are below them behind one tab."""
    inside = False
    for line in lines:
        if line[:1] not in ("\t", "#", "\n"):
            if inside:
                return None
            inside = line.startswith(f"{vendor}  ")
        elif inside and line.startswith(product):
            return line[len(product) :].strip()
    return None


INTERVAL_S = 1.0
DETAILS_INTERVAL_S = 30.0
ENGINE_READS = ("xpu:",)
"""Beginnings of the ids of devices that the engine samples too."""


class DrmSampler:
    """`start` looks for cards and calls `on_cards` once; without cards the thread ends. `put` must not block."""

    def __init__(
        self,
        put: EventSink,
        drm: Drm,
        on_cards: Callable[[tuple[DrmCard, ...]], None] = lambda cards: None,
        *,
        interval_s: float = INTERVAL_S,
        unix_clock: Clock = time.time,
    ) -> None:
        self._put = put
        self._drm = drm
        self._on_cards = on_cards
        self._interval_s = interval_s
        self._unix_clock = unix_clock
        self._names: dict[str, str] = {}
        self._cards: tuple[DrmCard, ...] | None = None
        self._latest: dict[str, DeviceSample] = {}
        self._details_read: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler-drm", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self, deadline_s: float) -> bool:
        """End the thread; False if a hanging card blocks it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(max(deadline_s, 0))
        return not self._thread.is_alive()

    def set_names(self, names: Mapping[str, str]) -> None:
        """PCI address -> device id (`Catalog.drm_names`); others go by `drm:N`. Any thread."""
        self._names = dict(names)

    def tick(self) -> None:
        """Read every card once on this thread; finds the cards first if needed."""
        if self._cards is None:
            self._cards = self._drm.cards()
            self._on_cards(self._cards)
        for card in self._cards:
            device = self._names.get(card.bus_id or "", card.drm_id)
            now = self._unix_clock()
            sample = self._drm.read(card, device, now)
            if device.startswith(ENGINE_READS):
                self._latest[device] = sample
            else:
                self._put(sample)
            if (
                not 0 <= now - self._details_read.get(device, -DETAILS_INTERVAL_S) < DETAILS_INTERVAL_S
            ):  # also when the clock was set back
                self._details_read[device] = now
                self._put(self._drm.details(card, device, now))

    def completed(self, sample: DeviceSample) -> DeviceSample:
        """The engine's sample, with missing fields filled in from the readings made here. Any thread."""
        other = self._latest.get(sample.device)
        if other is None:
            return sample
        known = {name: value for name in sample.__struct_fields__ if (value := getattr(other, name)) is not None}
        return replace(sample, **{name: value for name, value in known.items() if getattr(sample, name) is None})

    def _run(self) -> None:
        self.tick()
        while self._cards and not self._stop.wait(self._interval_s):
            self.tick()
