"""A fake of the module `pynvml`: cards made of plain values, with configurable faults and hangs.

    fake = FakeNvml(FakeCard(name="Tesla T4"), FakeCard())
    fake.fail("nvmlDeviceGetTemperatureV", fake.error(fake.NVML_ERROR_NOT_SUPPORTED), card=1)
    nvml = Nvml(fake)

Names, codes and oddities are pynvml's (tests/core/devices/test_nvml.py compares them with the real module).
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.devices.nvml_card import ProcessFacts, ProcessLoad

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
    """Deliberately not an NVMLError, like pynvml's."""


VALUES: dict[int, tuple[int, float] | int] = {
    186: (1, 36_250),  # power now, mW
    82: (1, 64),  # memory temperature
    83: (3, 1_234_000),  # energy, mJ
    94: (1, 2),  # PCIe replays
    3: (3, 5),  # ECC errors since start, corrected
    4: (3, 0),  # and not
}


@dataclass
class FakeLink:
    """One NVLink: counters in KiB, and its remote end (0: a card, 2: a switch)."""

    remote: str
    active: bool = True
    kind: int = 0
    version: int = 6
    sent_kib: int = 0
    received_kib: int = 0


@dataclass
class FakeCard:
    """The answers of one card."""

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
    busy: list[tuple[int, int, int]] = field(default_factory=list)
    """Samples of process utilization: pid, time stamp in microseconds, per cent."""
    instances: list[FakeCard] = field(default_factory=list)
    gpu_instance: int | None = None
    """Of a MIG instance; None: a driver that does not report it."""
    memory_utilization: int = 12
    memory_clock: int = 5001
    clocks: dict[int, int] = field(default_factory=lambda: {0: 1590, 3: 1470})
    """Graphics and video, by nvmlClockType_t."""
    encoder: int = 0
    decoder: int = 4
    throttle: int = 0
    pcie: tuple[int, int, int, int] = (3, 16, 3, 16)
    """Generation and lanes now, and at most."""
    pcie_kib_s: tuple[int, int] = (900, 2600)
    values: dict[int, tuple[int, float] | int] = field(default_factory=lambda: dict(VALUES))
    """Of nvmlDeviceGetFieldValues: id -> (type, number), or the code of its error. NVLink counters: see `links`."""
    fans: list[int] = field(default_factory=lambda: [30])
    links: list[FakeLink] = field(default_factory=list)
    cpus: int = 0xFF
    numa: int = 1
    remapped: tuple[int, int, int, int] = (1, 0, 0, 0)
    retired: tuple[int, int] = (2, 1)


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
    NVML_CLOCK_GRAPHICS = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_CLOCK_VIDEO = 3
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_AGGREGATE_ECC = 1
    NVML_PCIE_UTIL_TX_BYTES = 0
    NVML_PCIE_UTIL_RX_BYTES = 1
    nvmlMemory_v2 = 0x02000028  # noqa: N815  pynvml's name

    def __init__(self, *cards: FakeCard) -> None:
        self.cards = list(cards)
        self.topology: dict[frozenset[int], int] = {}
        """Pair of indices -> nvmlGpuTopologyLevel_t; default 50 (system)."""
        self.peers: dict[tuple[int, int, int], int] = {}
        """(index, index, nvmlGpuP2PCapsIndex_t) -> nvmlGpuP2PStatus_t; default 0 (ok)."""
        self.calls: Counter[str] = Counter()
        self.callers: set[str] = set()
        """Names of the calling threads."""
        self.initialised = 0
        self._faults: dict[tuple[str, int | None], Exception] = {}
        self._gates: dict[tuple[str, int | None], threading.Event] = {}

    # configuration by tests

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
        """Let a function (`*`: each) hang until the event is set."""
        gate = self._gates[function, card] = threading.Event()
        return gate

    def release(self) -> None:
        """Release all hanging calls."""
        gates, self._gates = self._gates, {}
        for gate in gates.values():
            gate.set()

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
        free = (card.total - card.used - card.reserved) % 2**64
        return SimpleNamespace(total=card.total, used=used, free=free, reserved=card.reserved)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self._ask("nvmlDeviceGetCudaComputeCapability", handle).capability

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        card = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return SimpleNamespace(gpu=card.utilization, memory=card.memory_utilization)

    def nvmlDeviceGetTemperatureV(self, handle: Any, sensor: int) -> int:
        return self._ask("nvmlDeviceGetTemperatureV", handle).temperature

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._ask("nvmlDeviceGetTemperature", handle).temperature % 2**32

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetPowerUsage", handle).power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetEnforcedPowerLimit", handle).cap_mw

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        card = self._ask("nvmlDeviceGetClockInfo", handle)
        return {**card.clocks, 1: card.clock, 2: card.memory_clock}[kind]

    def nvmlDeviceGetFanSpeed(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetFanSpeed", handle).fan

    def nvmlDeviceGetNumFans(self, handle: Any) -> int:
        return len(self._ask("nvmlDeviceGetNumFans", handle).fans)

    def nvmlDeviceGetFanSpeed_v2(self, handle: Any, fan: int) -> int:
        return self._ask("nvmlDeviceGetFanSpeed_v2", handle).fans[fan]

    def nvmlDeviceGetPerformanceState(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetPerformanceState", handle).state

    def nvmlDeviceGetEccMode(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetEccMode", handle).ecc] * 2

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetMigMode", handle).mig] * 2

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        number = self._ask("nvmlDeviceGetGpuInstanceId", handle).gpu_instance
        if number is None:
            raise NVMLError(3)  # not supported
        return number

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

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
        found = [sample for sample in self._ask("nvmlDeviceGetProcessUtilization", handle).busy if sample[1] > since]
        if not found:
            raise NVMLError(0)  # as pynvml does
        return [
            SimpleNamespace(pid=pid, timeStamp=at, smUtil=share, memUtil=0, encUtil=0, decUtil=0)
            for pid, at, share in found
        ]

    # values that seldom change

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        self._enter("nvmlSystemGetCudaDriverVersion")
        return 12040

    def nvmlDeviceGetEncoderUtilization(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetEncoderUtilization", handle).encoder, 167_000]

    def nvmlDeviceGetDecoderUtilization(self, handle: Any) -> list[int]:
        return [self._ask("nvmlDeviceGetDecoderUtilization", handle).decoder, 167_000]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle).throttle

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle).throttle

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle).pcie[0]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle).pcie[1]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle).pcie[2]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle).pcie[3]

    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int) -> int:
        return self._ask("nvmlDeviceGetPcieThroughput", handle).pcie_kib_s[counter]

    def nvmlDeviceGetFieldValues(self, handle: Any, wanted: Any) -> list[Any]:
        card = self._ask("nvmlDeviceGetFieldValues", handle)
        return [_field_value(card, *key) for key in wanted]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        return self._classic("nvmlDeviceGetTotalEnergyConsumption", handle, 83)

    def nvmlDeviceGetPcieReplayCounter(self, handle: Any) -> int:
        return self._classic("nvmlDeviceGetPcieReplayCounter", handle, 94)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        return 10 * counter + self._classic("nvmlDeviceGetTotalEccErrors", handle, 3 + kind)

    def _classic(self, function: str, handle: Any, field: int) -> int:
        value = self._ask(function, handle).values.get(field, self.NVML_ERROR_NOT_SUPPORTED)
        if isinstance(value, int):
            raise NVMLError(value)
        return int(value[1])

    # details

    def nvmlDeviceGetSerial(self, handle: Any) -> str:
        return f"16542230{self._ask('nvmlDeviceGetSerial', handle).bus_id[9:11]}"

    def nvmlDeviceGetBoardPartNumber(self, handle: Any) -> str:
        self._ask("nvmlDeviceGetBoardPartNumber", handle)
        return "900-2G183-0000-001"

    def nvmlDeviceGetVbiosVersion(self, handle: Any) -> str:
        self._ask("nvmlDeviceGetVbiosVersion", handle)
        return "90.04.A7.00.01"

    def nvmlDeviceGetBrand(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetBrand", handle)
        return 2

    def nvmlDeviceGetArchitecture(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetArchitecture", handle)
        return 6

    def nvmlDeviceGetNumGpuCores(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetNumGpuCores", handle)
        return 2560

    def nvmlDeviceGetMemoryBusWidth(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetMemoryBusWidth", handle)
        return 256

    def nvmlDeviceGetAttributes_v2(self, handle: Any) -> Any:
        self._ask("nvmlDeviceGetAttributes_v2", handle)
        return SimpleNamespace(multiprocessorCount=40)

    def nvmlDeviceGetPersistenceMode(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetPersistenceMode", handle)
        return 1

    def nvmlDeviceGetAccountingMode(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetAccountingMode", handle)
        return 0

    def nvmlDeviceGetDisplayActive(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetDisplayActive", handle)
        return 0

    def nvmlDeviceGetTemperatureThreshold(self, handle: Any, kind: int) -> int:
        self._ask("nvmlDeviceGetTemperatureThreshold", handle)
        return (96, 93, 95, 85)[kind]

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any) -> int:
        return self._ask("nvmlDeviceGetPowerManagementDefaultLimit", handle).cap_mw

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: Any) -> list[int]:
        return [60_000, self._ask("nvmlDeviceGetPowerManagementLimitConstraints", handle).cap_mw]

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int) -> int:
        self._ask("nvmlDeviceGetMaxClockInfo", handle)
        return (1590, 1590, 5001, 1470)[kind]

    def nvmlDeviceGetApplicationsClock(self, handle: Any, kind: int) -> int:
        self._ask("nvmlDeviceGetApplicationsClock", handle)
        return (585, 585, 5001)[kind]

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, int, int, int]:
        return self._ask("nvmlDeviceGetRemappedRows", handle).remapped

    def nvmlDeviceGetRetiredPages(self, handle: Any, cause: int) -> list[int]:
        return [4096 * page for page in range(self._ask("nvmlDeviceGetRetiredPages", handle).retired[cause])]

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
        return 0

    # how cards are connected

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        return int(self._link("nvmlDeviceGetNvLinkState", handle, link).active)

    def nvmlDeviceGetNvLinkVersion(self, handle: Any, link: int) -> int:
        return self._link("nvmlDeviceGetNvLinkVersion", handle, link).version

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return SimpleNamespace(busId=self._link("nvmlDeviceGetNvLinkRemotePciInfo", handle, link).remote.encode())

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:
        return self._link("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link).kind

    def _link(self, function: str, handle: Any, link: int) -> FakeLink:
        links = self._ask(function, handle).links
        if link >= len(links):
            raise NVMLError(self.NVML_ERROR_INVALID_ARGUMENT if links else self.NVML_ERROR_NOT_SUPPORTED)
        return links[link]

    def nvmlDeviceGetTopologyCommonAncestor(self, left: Any, right: Any) -> int:
        self._ask("nvmlDeviceGetTopologyCommonAncestor", left)
        self._fault("nvmlDeviceGetTopologyCommonAncestor", right.index)
        return self.topology.get(frozenset((left.index, right.index)), 50)

    def nvmlDeviceGetP2PStatus(self, left: Any, right: Any, index: int) -> int:
        self._ask("nvmlDeviceGetP2PStatus", left)
        self._fault("nvmlDeviceGetP2PStatus", right.index)
        return self.peers.get((left.index, right.index, index), 0)

    def nvmlDeviceGetCpuAffinity(self, handle: Any, words: int) -> list[int]:
        cpus = self._ask("nvmlDeviceGetCpuAffinity", handle).cpus
        return [cpus >> 64 * word & (2**64 - 1) for word in range(words)]

    def nvmlDeviceGetMemoryAffinity(self, handle: Any, words: int, scope: int) -> list[int]:
        assert scope == 0, "the node, not the socket"
        return [1 << self._ask("nvmlDeviceGetMemoryAffinity", handle).numa, *[0] * (words - 1)]

    def _ask(self, function: str, handle: SimpleHandle) -> FakeCard:
        self._enter(function, handle.index)
        return handle.card

    def _enter(self, function: str, card: int | None = None) -> None:
        self.calls[function] += 1
        self.callers.add(threading.current_thread().name)
        if function not in ("nvmlInit", "nvmlShutdown") and not self.initialised:
            raise NVMLError(self.NVML_ERROR_UNINITIALIZED)
        for key in ((function, card), (function, None), *([("*", card)] if card is not None else [])):
            if (gate := self._gates.get(key)) is not None:
                gate.wait()
        self._fault(function, card)

    def _fault(self, function: str, card: int | None) -> None:
        for key in ((function, card), (function, None), *([("*", card)] if card is not None else [])):
            if key in self._faults:
                raise self._faults[key]


def opened(fake: FakeNvml, *, container: bool = False, **options: Any) -> tuple[Nvml, tuple[Card, ...]]:
    """An `Nvml` on a fake, initialised, and its cards. Processes are called `program-PID` and belong to ada."""
    options.setdefault("driver_cards", frozenset)
    options.setdefault("process_load", lambda pid: ProcessLoad())
    nvml = Nvml(
        fake,
        process_facts=lambda pid: ProcessFacts(f"program-{pid}", "ada", f"program-{pid} --run"),
        hidden_processes=lambda: container,
        **options,
    )
    assert nvml.start()
    return nvml, nvml.cards()


class SimpleHandle:
    """A handle, equal to no other."""

    def __init__(self, index: int, card: FakeCard) -> None:
        self.index = index
        self.card = card


def _processes(pairs: list[tuple[int, int | None]]) -> list[Any]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in pairs]


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _field_value(card: FakeCard, field: int, scope: int) -> Any:
    """As pynvml's: the code of each field in `nvmlReturn`, its number in the member of its type."""
    value = card.values.get(field, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    if field in (138, 139) and card.links:
        counters = [link.sent_kib if field == 138 else link.received_kib for link in card.links]
        value = (3, sum(counters) if scope == 0xFFFFFFFF else counters[scope])
    if isinstance(value, int):
        return SimpleNamespace(fieldId=field, scopeId=scope, valueType=0, nvmlReturn=value, value=SimpleNamespace())
    kind, number = value
    return SimpleNamespace(
        fieldId=field, scopeId=scope, valueType=kind, nvmlReturn=0, value=SimpleNamespace(**{_MEMBERS[kind]: number})
    )
