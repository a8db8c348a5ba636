"""The one door to NVML: which NVIDIA cards there are, and how each of them is doing. Sampler threads; no torch, no Qt.

Whatever goes wrong in there (no library, no driver, an old driver, a lost card, a field that this card lacks) becomes
`None` plus one `Problem` here, nowhere else: callers need no try/except, and no failure hides another field or card.
Each query is named with its `nvidia-smi --query-gpu` equivalent, so that a reader can check a figure by hand.
A call that blocks holds its own thread only; the sampler has a thread per card for that reason.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from devexplorer.core.devices import nvml_fields as fields
from devexplorer.core.devices.nvml_fields import Way
from devexplorer.core.records.devices import DeviceSample, Problem, ProcessUse

_HIDDEN = "this is a container with its own process numbers: processes outside are not visible from here"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA card, or one MIG instance of a card, as NVML enumerates it."""

    index: int
    """What nvidia-smi counts (`index`); a MIG instance has its card's."""
    uuid: str | None
    """`GPU-…` or `MIG-…` (`uuid`); None for a card that is too broken to say."""
    name: str
    mig_instance: int | None = None
    """Number of the MIG instance within its card; None for a card itself."""
    bus_id: str | None = None
    """`pci.bus_id`"""
    memory_total_bytes: int | None = None
    """`memory.total`"""
    memory_used_bytes: int | None = None
    """`memory.used` when the card was listed"""
    memory_shared: bool = False
    """True where the card has no memory of its own (GB10, Jetson): the figures are the system's."""
    compute_capability: str | None = None
    """`compute_cap`"""
    driver_version: str | None = None
    """`driver_version`"""
    cuda_version: str | None = None
    """The newest CUDA that the driver supports, as the head of nvidia-smi's table shows it."""
    power_cap_w: float | None = None
    """`enforced.power.limit`"""
    ecc: bool | None = None
    """`ecc.mode.current`"""
    compute_mode: str | None = None
    """`compute_mode`"""
    mig: bool | None = None
    """`mig.mode.current`"""
    broken: str | None = None
    """Why nothing can be read from it."""

    @property
    def key(self) -> str:
        """What identifies it: the UUID, or its place where there is none (two handles of one card compare unequal)."""
        return self.uuid or f"index {self.index}"

    @property
    def nvml_id(self) -> str:
        """The device id `nvml:N`, by which problems name it."""
        return f"nvml:{self.index}"


class Slow(NamedTuple):
    """What changes seldom or costs much to ask; read every few seconds."""

    processes: tuple[ProcessUse, ...] | None = None
    power_cap_w: float | None = None
    fan_percent: float | None = None
    performance_state: str | None = None


class _LostError(Exception):
    """The card fell off the bus: no other question to it has an answer."""


class Nvml:
    """NVML, started when asked to and never in the way of anything else.

    `module` stands in for pynvml (tests); `process_name` turns a pid into a name; `hidden_processes` tells whether this
    process lives in a pid namespace of its own (a container), where an empty list means nothing.
    Safe to call from several threads as long as each card is read by one.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        process_name: Callable[[int], str | None] | None = None,
        hidden_processes: Callable[[], bool] | None = None,
    ) -> None:
        self._module = module
        self._process_name = process_name or fields.process_name
        self._hidden_processes = hidden_processes or fields.in_pid_namespace
        self._lock = threading.Lock()
        self._started = False
        self._handles: dict[str, Any] = {}
        self._ways: dict[tuple[str, str], int] = {}
        self._problems: dict[tuple[str, str], Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be found out at present, each reason once; cards are named `nvml:N`."""
        with self._lock:
            return tuple(self._problems.values())

    @property
    def started(self) -> bool:
        """Whether NVML answered."""
        return self._started

    def start(self) -> bool:
        """Load and initialise NVML; False, with a problem, when there is none. Takes seconds if cards are asleep."""
        if self._started:
            return True
        if self._module is None:
            try:
                self._module = importlib.import_module("pynvml")
            except ImportError:
                self._note(None, "nvml", "NVIDIA cards cannot be watched: the package nvidia-ml-py is not installed")
                return False
        try:
            self._module.nvmlInit()
        except Exception as error:  # pynvml also raises OSError and AttributeError for a half-installed driver
            self._note(None, "nvml", self._start_words(error))
            return False
        self._started = True
        self._settle(None, "nvml")
        return True

    def close(self) -> None:
        """Give NVML back. Call it when no other thread is inside a call."""
        if not self._started:
            return
        self._started = False
        self._handles.clear()
        try:
            self._module.nvmlShutdown()
        except Exception:
            pass  # the process ends anyway, and there is nobody left to tell

    # what is there

    def cards(self) -> tuple[Card, ...]:
        """Every card in NVML's order, each followed by its MIG instances; the broken ones with their reason."""
        if not self._started:
            return ()
        driver = self._ask(None, "driver_version", (lambda n, _: n.nvmlSystemGetDriverVersion(),))
        cuda = self._ask(None, "cuda_version", (lambda n, _: n.nvmlSystemGetCudaDriverVersion_v2(),))
        cuda_text = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
        count = self._ask(None, "count", (lambda n, _: n.nvmlDeviceGetCount(),)) or 0
        cards: list[Card] = []
        for index in range(count):
            card = self._card(index, driver, cuda_text)
            cards.append(card)
            if card.mig:
                try:
                    cards.extend(self._instances(card))
                except _LostError:
                    pass  # stated by _ask; the card stays in the list
        return tuple(cards)

    def _card(self, index: int, driver: str | None, cuda: str | None) -> Card:
        blank = Card(index=index, uuid=None, name=f"NVIDIA card {index}", driver_version=driver, cuda_version=cuda)
        try:
            handle = self._module.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            self._note(blank, None, f"the card cannot be opened: {self._words(error)}")
            return msgspec.structs.replace(blank, broken=self._words(error))
        try:
            # Until the UUID is known the card goes by its index.
            self._handles[blank.key] = handle
            blank = msgspec.structs.replace(blank, name=self._field(blank, "name", fields.NAME) or blank.name)
            card = msgspec.structs.replace(blank, uuid=self._field(blank, "uuid", fields.UUID))
            self._handles[card.key] = handle
            memory = self._field(card, "memory_total_bytes", fields.MEMORY)
            mig = self._field(card, "mig", fields.MIG, quiet=True)
            return msgspec.structs.replace(
                card,
                bus_id=self._field(card, "bus_id", fields.BUS_ID),
                memory_total_bytes=memory.total_bytes if memory else None,
                memory_used_bytes=memory.used_bytes if memory else None,
                memory_shared=memory.shared if memory else False,
                compute_capability=self._field(card, "compute_capability", fields.CAPABILITY),
                power_cap_w=self._field(card, "power_cap_w", fields.POWER_CAP),
                ecc=self._field(card, "ecc", fields.ECC, quiet=True),
                compute_mode=self._field(card, "compute_mode", fields.COMPUTE_MODE, quiet=True),
                mig=mig,
            )
        except _LostError as error:
            return msgspec.structs.replace(blank, broken=str(error))

    def _instances(self, card: Card) -> list[Card]:
        count = self._ask(card, "mig_instances", (lambda n, h: n.nvmlDeviceGetMaxMigDeviceCount(h),)) or 0
        instances = []
        for number in range(count):
            try:
                handle = self._module.nvmlDeviceGetMigDeviceHandleByIndex(self._handles[card.key], number)
                uuid = fields.UUID[0](self._module, handle)
            except Exception:
                continue  # NotFound: places for instances are numbered to the maximum, most of them empty
            instance = Card(
                index=card.index,
                uuid=uuid,
                name=card.name,
                mig_instance=number,
                bus_id=card.bus_id,
                compute_capability=card.compute_capability,
                driver_version=card.driver_version,
                cuda_version=card.cuda_version,
            )
            self._handles[instance.key] = handle
            memory = self._ask(instance, "memory_total_bytes", fields.MEMORY)
            if memory is not None:
                instance = msgspec.structs.replace(instance, memory_total_bytes=memory.total_bytes, memory_used_bytes=memory.used_bytes)
            instances.append(instance)
        return instances

    # how it is doing

    def read(self, card: Card, *, device: str, time_unix_s: float, slow: Slow | None = None) -> DeviceSample:
        """The quick fields of one card (five calls), joined with the last `slow` ones, as a sample of `device`.

        `memory.used`, `memory.total`, `utilization.gpu` (share of the last sampling period in which a kernel ran),
        `temperature.gpu`, `power.draw` (a one-second average on most cards since Ampere), `clocks.sm`.
        """
        slow = slow or Slow()
        memory = utilization = temperature = power = clock = None
        try:
            memory = self._field(card, "memory_used_bytes", fields.MEMORY)
            utilization = self._field(card, "utilization_percent", fields.UTILIZATION)
            temperature = self._field(card, "temperature_c", fields.TEMPERATURE)
            power = self._field(card, "power_w", fields.POWER)
            clock = self._field(card, "sm_clock_mhz", fields.CLOCK)
            self._settle(card, None)  # nothing said that the card is lost
        except _LostError:
            pass  # stated by _field; what was read before it is kept
        return DeviceSample(
            device=device,
            time_unix_s=time_unix_s,
            memory_used_bytes=memory.used_bytes if memory else None,
            memory_total_bytes=memory.total_bytes if memory else None,
            utilization_percent=utilization,
            temperature_c=temperature,
            power_w=power,
            power_cap_w=slow.power_cap_w,
            sm_clock_mhz=clock,
            fan_percent=slow.fan_percent,
            performance_state=slow.performance_state,
            processes=slow.processes,
        )

    def read_slow(self, card: Card) -> Slow:
        """Processes, `enforced.power.limit`, `fan.speed`, `pstate` of one card."""
        try:
            return Slow(
                processes=self._processes(card),
                power_cap_w=self._field(card, "power_cap_w", fields.POWER_CAP),
                fan_percent=self._field(card, "fan_percent", fields.FAN, quiet=True),
                performance_state=self._field(card, "performance_state", fields.STATE),
            )
        except _LostError:
            return Slow()

    def _processes(self, card: Card) -> tuple[ProcessUse, ...] | None:
        """Who uses the card, by pid (`nvidia-smi --query-compute-apps=pid,used_memory`, and the graphics ones).

        None with a problem where that is not visible from here. A pid of 0 or below, and memory beyond the card's, are
        what a structure of another version looks like, and are left out.
        """
        lists = [
            self._field(card, "processes", fields.COMPUTE_PROCESSES),
            self._field(card, "graphics_processes", fields.GRAPHICS_PROCESSES, quiet=True),
        ]
        if all(found is None for found in lists):
            return None
        use: dict[int, int | None] = {}
        for found in lists:
            for process in found or ():
                pid, memory = int(process.pid), process.usedGpuMemory
                if not 0 < pid < 2**31:
                    continue
                if memory is not None and card.memory_total_bytes is not None and memory > card.memory_total_bytes:
                    memory = None
                use[pid] = memory if use.get(pid) is None else max(use[pid] or 0, memory or 0)
        hidden = self._hidden_processes()
        if not use and hidden:
            self._note(card, "processes", _HIDDEN)
            return None
        name = (lambda _: None) if hidden else self._process_name  # a pid from outside may be somebody else's in here
        return tuple(ProcessUse(pid, name(pid), memory) for pid, memory in sorted(use.items()))

    # one place for everything that can go wrong

    def _field(self, card: Card, field: str, ways: tuple[Way, ...], *, quiet: bool = False) -> Any:
        """`_ask` for a card that may be known but closed, or broken from the start."""
        if not self._started or card.key not in self._handles:
            return None
        return self._ask(card, field, ways, quiet=quiet)

    def _ask(self, card: Card | None, field: str, ways: tuple[Way, ...], *, quiet: bool = False) -> Any:
        """The first answer of several ways to ask; None, with a problem noted once, when none has one.

        A way that this card, driver or library lacks is not tried again: a question costs 5 to 200 us on a real driver.
        `quiet`: a card without that feature is nothing to report. Raises `_LostError` when the card is gone.
        """
        key = (card.key if card else "", field)
        handle = self._handles.get(card.key) if card else None
        first = self._ways.get(key, 0)
        for number in range(first, len(ways)):
            try:
                answer = ways[number](self._module, handle)
            except UnicodeDecodeError as error:  # names come as bytes, and pynvml insists on UTF-8
                return bytes(error.object).decode("utf-8", "replace")
            except Exception as error:
                code = getattr(error, "value", None)
                if card is not None and code == self._code("GPU_IS_LOST"):
                    words = self._words(error)
                    self._note(card, None, words)
                    raise _LostError(words) from None
                if self._is_lacking(error):
                    self._ways[key] = number + 1
                    if number + 1 == len(ways) and not quiet:
                        self._note(card, field, f"not available: {self._words(error)}")
                elif code == 0:  # "success" as an error: no samples yet
                    return None
                else:
                    self._note(card, field, f"not available at present: {self._words(error)}")
                    return None
            else:
                self._settle(card, field)
                return answer
        return None

    def _is_lacking(self, error: Exception) -> bool:
        """Whether asking again is useless: the card, the driver or pynvml itself does not have it."""
        if isinstance(error, AttributeError) or type(error).__name__ == "NVMLLibraryMismatchError":
            return True  # no NVMLErrors: a function that this pynvml lacks, a driver without versioned getters
        lacking = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT", "DEPRECATED")
        return getattr(error, "value", None) in {self._code(name) for name in lacking}

    def _code(self, name: str) -> int | None:
        return getattr(self._module, f"NVML_ERROR_{name}", -1)

    def _note(self, card: Card | None, field: str | None, reason: str) -> None:
        key = (card.key if card else "", field or "")
        if key not in self._problems:
            problem = Problem(reason, device=card.nvml_id if card else None, field=field)
            with self._lock:
                self._problems[key] = problem

    def _settle(self, card: Card | None, field: str | None) -> None:
        """It works (again): withdraw the problem, if there was one."""
        key = (card.key if card else "", field or "")
        if key in self._problems:
            with self._lock:
                self._problems.pop(key, None)

    def _words(self, error: Exception) -> str:
        code = getattr(error, "value", None)
        known = {
            self._code("GPU_IS_LOST"): "the card is lost (it fell off the bus or its driver gave it up); a reboot brings it back",
            self._code("NOT_SUPPORTED"): "this card or its driver does not support it",
            self._code("FUNCTION_NOT_FOUND"): "the driver is too old for it",
            self._code("NO_PERMISSION"): "this user may not ask for it",
            self._code("RESET_REQUIRED"): "the card has to be reset",
        }
        if code in known and code is not None:
            return known[code]
        if type(error).__name__ == "NVMLLibraryMismatchError":
            return "the driver is too old for it"
        return str(error) or type(error).__name__

    def _start_words(self, error: Exception) -> str:
        code = getattr(error, "value", None)
        library = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
        text = str(error)
        if code == self._code("LIBRARY_NOT_FOUND"):
            return f"no NVIDIA driver is installed here ({library} was not found)"
        if code == self._code("DRIVER_NOT_LOADED"):
            return "the NVIDIA driver is installed but not loaded: run modprobe nvidia, or reboot after an installation"
        if code == self._code("LIB_RM_VERSION_MISMATCH") or "version mismatch" in text.lower():
            return "the NVIDIA driver and its library differ in version, as after an update: reboot or reload the driver"
        if code == self._code("FUNCTION_NOT_FOUND") or isinstance(error, AttributeError):
            return f"the NVIDIA library {library} is too old or damaged: a function is missing ({text})"
        return f"NVML did not start: {self._words(error)}"
