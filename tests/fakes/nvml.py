"""A stand-in for the module `pynvml`: cards made of plain values, with faults and hangs put in on purpose.

    fake = FakeNvml(FakeCard(name="Tesla T4"), FakeCard())
    fake.fail("nvmlDeviceGetTemperatureV", fake.error(fake.NVML_ERROR_NOT_SUPPORTED), card=1)
    nvml = Nvml(fake)

Names, codes and oddities are pynvml's (tests/core/test_nvml.py compares them with the real module).
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


class NVMLError(Exception):
    """Carries the code as `value`, as pynvml's does."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return {15: "GPU is lost", 18: "Driver/library version mismatch", 999: "Unknown Error"}.get(
            self.value, f"NVML Error with code {self.value}"
        )


class NVMLLibraryMismatchError(Exception):
    """On purpose no NVMLError: pynvml's is none either."""


@dataclass
class FakeCard:
    """What one card answers."""

    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    name: str = "Tesla T4"
    bus_id: str = "00000000:00:04.0"
    total: int = 15360 * MIB
    used: int = 1024 * MIB
    reserved: int = 256 * MIB
    capability: tuple[int, int] = (7, 5)
    utilization: int = 43
    temperature: int = 61
    power_mw: int = 35_500
    cap_mw: int = 70_000
    clock: int = 1590
    fan: int = 30
    state: int = 0
    ecc: int = 1
    mig: int = 0
    compute_mode: int = 0
    compute: list[tuple[int, int | None]] = field(default_factory=list)
    graphics: list[tuple[int, int | None]] = field(default_factory=list)
    instances: list[FakeCard] = field(default_factory=list)


class FakeNvml:
    """The module. Handles are fresh objects each time: two of one card compare unequal, as in pynvml."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
    NVML_ERROR_DEPRECATED = 26
    NVML_ERROR_UNKNOWN = 999
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    nvmlMemory_v2 = 0x02000028  # noqa: N815  pynvml's name

    def __init__(self, *cards: FakeCard) -> None:
        self.cards = cards
        self.calls: Counter[str] = Counter()
        self.initialised = 0
        self._faults: dict[tuple[str, int | None], Exception] = {}
        self._gates: dict[tuple[str, int | None], threading.Event] = {}

    # what a test arranges

    def error(self, code: int) -> NVMLError:
        return NVMLError(code)

    def fail(self, function: str, error: Exception | int, card: int | None = None) -> None:
        """Let a function raise, for one card or for all."""
        self._faults[function, card] = NVMLError(error) if isinstance(error, int) else error

    def lose(self, card: int) -> None:
        """Let every function raise GPU_IS_LOST for that card."""
        self.fail("*", self.NVML_ERROR_GPU_IS_LOST, card)

    def heal(self) -> None:
        self._faults.clear()

    def block(self, function: str, card: int | None = None) -> threading.Event:
        """Let a function hang until the event is set."""
        gate = self._gates[function, card] = threading.Event()
        return gate

    # pynvml

    def nvmlInit(self) -> None:
        self._enter("nvmlInit")
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self._enter("nvmlShutdown")
        self.initialised -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._enter("nvmlSystemGetDriverVersion")
        return "550.54.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._enter("nvmlSystemGetCudaDriverVersion_v2")
        return 12040

    def nvmlDeviceGetCount(self) -> int:
        self._enter("nvmlDeviceGetCount")
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self._enter("nvmlDeviceGetHandleByIndex", index)
        return SimpleHandle(index, self.cards[index])

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, number: int) -> Any:
        card = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle)
        if number >= len(card.instances):
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return SimpleHandle(handle.index, card.instances[number])

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self._ask("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self._ask("nvmlDeviceGetName", handle).name

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        return SimpleNamespace(busId=self._ask("nvmlDeviceGetPciInfo", handle).bus_id.encode())

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        card = self._ask("nvmlDeviceGetMemoryInfo" + ("_v2" if version else ""), handle)
        used = card.used if version else card.used + card.reserved
        return SimpleNamespace(total=card.total, used=used)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self._ask("nvmlDeviceGetCudaComputeCapability", handle).capability

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=self._ask("nvmlDeviceGetUtilizationRates", handle).utilization, memory=0)

    def nvmlDeviceGetTemperatureV(self, handle: Any, sensor: int) -> int:
        return self._ask("nvmlDeviceGetTemperatureV", handle).temperature

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._ask("nvmlDeviceGetTemperature", handle).temperature % 2**32

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetPowerUsage", handle).power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetEnforcedPowerLimit", handle).cap_mw

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        return self._ask("nvmlDeviceGetClockInfo", handle).clock

    def nvmlDeviceGetFanSpeed(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetFanSpeed", handle).fan

    def nvmlDeviceGetPerformanceState(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetPerformanceState", handle).state

    def nvmlDeviceGetEccMode(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetEccMode", handle).ecc] * 2

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetMigMode", handle).mig] * 2

    def nvmlDeviceGetComputeMode(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetComputeMode", handle).compute_mode

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        return _processes(self._ask("nvmlDeviceGetComputeRunningProcesses", handle).compute)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: Any) -> list[Any]:
        return _processes(self._ask("nvmlDeviceGetComputeRunningProcesses_v2", handle).compute)

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Any) -> list[Any]:
        return _processes(self._ask("nvmlDeviceGetGraphicsRunningProcesses", handle).graphics)

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, handle: Any) -> list[Any]:
        return _processes(self._ask("nvmlDeviceGetGraphicsRunningProcesses_v2", handle).graphics)

    def _ask(self, function: str, handle: SimpleHandle) -> FakeCard:
        self._enter(function, handle.index)
        return handle.card

    def _enter(self, function: str, card: int | None = None) -> None:
        self.calls[function] += 1
        if function not in ("nvmlInit", "nvmlShutdown") and not self.initialised:
            raise NVMLError(self.NVML_ERROR_UNINITIALIZED)
        for key in ((function, card), (function, None)):
            if key in self._gates:
                self._gates[key].wait()
        for key in ((function, card), (function, None), *([("*", card)] if card is not None else [])):
            if key in self._faults:
                raise self._faults[key]


class SimpleHandle:
    """A handle, equal to no other."""

    def __init__(self, index: int, card: FakeCard) -> None:
        self.index = index
        self.card = card


def _processes(pairs: list[tuple[int, int | None]]) -> list[Any]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in pairs]
