"""Errors below NVML's C interface: the real pynvml runs on a small library built for these tests (tests/fakes/nvml_c).

In all cases unknown values are None and never 0, the other card continues, and no thread is left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.nvml_library import (
    ALL,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    CannotBuildError,
    NvmlLibrary,
    build,
)

from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.devices.nvml_card import ProcessLoad
from devexplorer.core.records import DeviceDetails, DeviceSample, Event, Problem, Topology
from devexplorer.core.telemetry.sampler import Sampler

IDENTITY = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName")
MAY_CHANGE = {
    "nvmlDeviceGetMemoryInfo_v2": {"memory_used_bytes", "memory_free_bytes"},
    "nvmlDeviceGetProcessUtilization": {"processes"},
    "nvmlDeviceGetGraphicsRunningProcesses_v3": {"processes"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"processes"},
    "nvmlDeviceGetNvLinkState": {"nvlinks"},
    "nvmlDeviceGetNvLinkVersion": {"nvlinks"},
    "nvmlDeviceGetNvLinkRemoteDeviceType": {"nvlinks"},
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": {"nvlinks"},
}
"""Function -> fields that are others when it fails: the older one counts what the driver reserves as used; lists are
shorter."""
RATES = {"nvlink_tx_bytes_s", "nvlink_rx_bytes_s"}
"""They are of two readings: on a machine so busy that one seemed to hang, it was made again."""
UUIDS = [f"GPU-fa4e0000-c0de-4000-8000-{number:012x}" for number in (1, 2, 3)]


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


class Watch:
    """A fast sampler over the real pynvml, and its output."""

    def __init__(self, library: NvmlLibrary, unix_clock: Callable[[], float] = time.time, **nvml: Any) -> None:
        self.library = library
        self.events: list[Event] = []
        self.told: list[tuple[tuple[Card, ...], tuple[Problem, ...]]] = []
        self.nvml = Nvml(hidden_processes=lambda: False, **nvml)
        self.sampler = Sampler(
            self.events.append,
            self.nvml,
            CpuReader(CpuFacts("x", 1, 1 << 40, None), percent=lambda: 5.0),
            interval_s=0.01,
            unix_clock=unix_clock,
            on_cards=lambda cards, problems: self.told.append((cards, problems)),
            patience_s=0.1,
            slow_interval_s=0.03,
            details_interval_s=0.06,
            list_interval_s=0.05,
        )

    def of(self, device: str, kind: type = DeviceSample) -> list[Any]:
        return [event for event in list(self.events) if isinstance(event, kind) and event.device == device]

    def last(self, device: str) -> DeviceSample:
        until(lambda: self.of(device))
        return self.of(device)[-1]

    def goes_on(self, device: str) -> None:
        """Two readings more, with values."""
        before = len(self.of(device))
        until(lambda: sum(sample.power_w is not None for sample in self.of(device)[before:]) > 2)

    def told_of(self, words: str) -> bool:
        return any(words in problem.reason for problem in self.sampler.problems)


@pytest.fixture
def watching(nvml_library: NvmlLibrary) -> Iterator[Callable[..., Watch]]:
    """Creates watches; at the end hanging calls are released, and every thread must end."""
    made: list[Watch] = []

    def make(**options: Any) -> Watch:
        made.append(Watch(nvml_library, **options))
        return made[-1]

    yield make
    nvml_library.release()
    ended = [watch.sampler.stop(10.0) for watch in made]
    assert all(ended), "all threads end"


@pytest.fixture
def watch(watching: Callable[..., Watch]) -> Watch:
    """Started, with everything read once of each of two cards."""
    watch = watching()
    watch.sampler.start()
    until(
        lambda: all(watch.of(device, kind) for device in ("nvml:0", "nvml:1") for kind in (DeviceSample, DeviceDetails))
    )
    until(lambda: watch.last("nvml:0").processes)
    return watch


def known(record: DeviceSample | DeviceDetails) -> dict[str, Any]:
    """The fields that have a value, name and time and whose memory it is left out."""
    left_out = ("device", "time_unix_s", "missing", "more", "simulated")
    fields = {name: value for name, value in msgspec.structs.asdict(record).items() if name not in left_out}
    return {name: value for name, value in fields.items() if value is not None}


def read_once(nvml: Nvml, card: Card) -> tuple[DeviceSample, DeviceDetails]:
    sample = nvml.read(card, device="x", time_unix_s=1.0, slow=nvml.read_slow(card))
    return sample, nvml.read_details(card, device="x", time_unix_s=1.0)


@pytest.mark.parametrize(
    ("code", "words"), [(NOT_SUPPORTED, "does not support it"), (NO_PERMISSION, "may not ask for it")]
)
def test_a_card_that_answers_nothing_shows_nothing_and_says_why(
    nvml_library: NvmlLibrary, watching: Callable[..., Watch], code: int, words: str
) -> None:
    nvml_library.fail(ALL, code, card=0)
    nvml_library.allow(*IDENTITY, card=0)
    watch = watching()
    watch.sampler.tick()
    first, second = watch.last("nvml:0"), watch.last("nvml:1")
    (details,) = watch.of("nvml:0", DeviceDetails)
    made_up = {name: value for name, value in known(first).items() if not name.startswith("memory_")}
    assert made_up == {}
    assert 0 not in (first.memory_used_bytes, first.memory_total_bytes), (
        "where the card has none, the memory is the system's, or not known"
    )
    links = known(details).pop("nvlinks", None)
    assert links == (() if code == NOT_SUPPORTED else None), (
        "a card that does not know NVLinks has none; one that may not tell might"
    )
    assert set(known(details)) <= {"driver_version", "cuda_version", "nvlinks"}, "what the driver says without the card"
    unexplained = {name for name, value in msgspec.structs.asdict(details).items() if value is None} - set(
        details.missing
    )
    assert unexplained <= {"mig_pending", "ecc_pending"}, "these two are only said where they differ"
    assert any(words in reason for reason in details.missing.values())
    assert second.power_w
    assert second.utilization_percent is not None
    assert {problem.device for problem in watch.sampler.problems} == {"nvml:0"}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
def test_each_function_that_fails_costs_its_own_fields_and_no_others(nvml_library: NvmlLibrary, code: int) -> None:
    nvml_library.reset(["h200", "rtx4080", "t4"])
    nvml_library.freeze(1000.0)
    nvml = Nvml(hidden_processes=lambda: False, process_load=lambda _: ProcessLoad())  # what changes by itself
    assert nvml.start()
    sound = [read_once(nvml, card) for card in nvml.cards()]
    nvml.close()
    failing = [name for name in nvml_library.functions if name.startswith("nvmlDevice") and name not in IDENTITY]
    for function in failing:
        nvml_library.fail(function, code, card=0)
        nvml = Nvml(hidden_processes=lambda: False, process_load=lambda _: ProcessLoad())
        assert nvml.start()
        cards = nvml.cards() if function != "nvmlDeviceGetCount_v2" else ()
        for (sample, details), (now, details_now) in zip(
            sound, (read_once(nvml, card) for card in cards), strict=False
        ):
            for before, after in ((known(sample), known(now)), (known(details), known(details_now))):
                changed = {name for name in after if after[name] != before.get(name)}
                assert changed <= MAY_CHANGE.get(function, set()) | RATES, (
                    f"{function} failed, and these are other values: {changed}"
                )
        nvml.close()
        nvml_library.heal(function, card=0)


def test_a_card_lost_in_the_middle_comes_back(watch: Watch) -> None:
    watch.library.lose(0)
    until(lambda: known(watch.last("nvml:0")) == {})
    until(lambda: watch.told_of("the card is lost"))
    until(lambda: any(card.broken for card in watch.sampler.cards))
    assert [card.uuid for card in watch.sampler.cards] == UUIDS[:2], "it is still that card"
    until(lambda: known(watch.of("nvml:0", DeviceDetails)[-1]).keys() <= {"driver_version", "cuda_version"})
    watch.goes_on("nvml:1")
    watch.library.lose(0, False)
    until(lambda: watch.last("nvml:0").power_w is not None)
    until(lambda: not watch.sampler.problems)
    until(lambda: not any(card.broken for card in watch.sampler.cards))
    until(lambda: watch.told[-1] == (watch.sampler.cards, ()))
    until(lambda: watch.of("nvml:0", DeviceDetails)[-1].serial is not None)


def test_the_library_is_missing_until_it_is_installed(
    watching: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    pynvml = sys.modules["pynvml"]

    def missing(_name: str) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    with monkeypatch.context() as absent:
        absent.setattr(pynvml, "CDLL", missing)
        watch = watching()
        watch.sampler.start()
        until(lambda: watch.told)
        cards, problems = watch.told[-1]
        assert cards == ()
        assert "no NVIDIA driver: libnvidia-ml.so.1 not found" in problems[0].reason
        assert watch.of("cpu")
    watch.goes_on("nvml:0")


def test_an_old_driver_lacks_functions_and_still_tells_what_it_can(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    try:
        library = NvmlLibrary(build(tmp_path, old_driver=True))
    except CannotBuildError as error:
        pytest.skip(str(error))
    library.reset(["rtx4080", "t4"])
    library.processes(1, [(os.getpid(), 7 << 20)])
    with closing(library), library.in_pynvml():
        watch = Watch(library)
        watch.sampler.tick()
        first, second = watch.last("nvml:0"), watch.last("nvml:1")
        for sample in (first, second):
            assert None not in (
                sample.memory_used_bytes,
                sample.temperature_c,
                sample.power_w,
                sample.sm_clock_mhz,
                sample.throttle_reasons,
            )
            assert sample.power_instant_w is None, "only the newer call tells"
            assert sample.memory_temperature_c is None
        assert first.fan_percent
        assert [(process.pid, process.memory_bytes) for process in second.processes or ()] == [(os.getpid(), 7 << 20)]
        assert watch.sampler.problems == ()
        assert watch.sampler.stop()
        assert library.initialised == 0


@pytest.mark.parametrize(
    "function",
    [
        pytest.param("nvmlDeviceGetPowerUsage", id="quick"),
        pytest.param("nvmlDeviceGetComputeRunningProcesses_v3", id="slow"),
        pytest.param("nvmlDeviceGetVbiosVersion", id="details"),
    ],
)
def test_a_call_that_blocks_holds_its_own_card_only(watch: Watch, function: str) -> None:
    watch.library.block(function, card=0)
    until(lambda: watch.library.waiting)
    until(lambda: watch.told_of("does not answer for this card"))
    assert {problem.device for problem in watch.sampler.problems} == {"nvml:0"}
    until(lambda: known(watch.last("nvml:0")) == {})
    stands = len(watch.of("nvml:0"))
    watch.goes_on("nvml:1")
    watch.goes_on("nvml:1")
    assert len(watch.of("nvml:0")) == stands, "one gap, and nothing after it"
    watch.library.release()
    watch.goes_on("nvml:0")
    until(lambda: not watch.sampler.problems)


def test_a_listing_that_blocks_stops_no_curve(watch: Watch) -> None:
    watch.library.block("nvmlDeviceGetCount_v2")
    until(lambda: watch.told_of("the query for its cards"))
    watch.goes_on("nvml:0")
    watch.goes_on("nvml:1")
    watch.library.release()
    until(lambda: not watch.sampler.problems)


def test_stopping_while_a_call_blocks_leaves_nothing_behind(
    nvml_library: NvmlLibrary, watching: Callable[..., Watch]
) -> None:
    watch = watching()
    watch.sampler.start()
    watch.goes_on("nvml:0")
    nvml_library.block("nvmlDeviceGetPowerUsage", card=0)
    until(lambda: nvml_library.waiting)
    assert not watch.sampler.stop(0.05)
    assert nvml_library.initialised == 1, "shutting down under a call could crash"
    nvml_library.release()


def test_mig_is_switched_under_our_feet(watch: Watch) -> None:
    watch.library.mig(0, 2)
    until(lambda: len(watch.sampler.cards) == 4)
    card, first, second, other = watch.sampler.cards
    assert (card.mig, first.mig_instance, second.mig_instance, other.uuid) == (True, 0, 1, UUIDS[1])
    until(lambda: watch.last("nvml:0").utilization_percent is None)
    assert watch.last("nvml:0").power_w, "the card has one, its instances have none"
    assert first.uuid
    watch.sampler.set_names({first.uuid: "cuda:0"})
    until(lambda: watch.of("cuda:0", DeviceDetails))
    sample = watch.last("cuda:0")
    assert sample.memory_used_bytes is not None
    assert (sample.power_w, sample.temperature_c, sample.utilization_percent) == (None, None, None)
    watch.goes_on("nvml:1")
    watch.library.mig(0, None)
    until(lambda: len(watch.sampler.cards) == 2)
    until(lambda: known(watch.last("cuda:0")) == {})
    until(lambda: watch.last("nvml:0").utilization_percent is not None)
    until(lambda: not watch.sampler.problems)


def test_the_card_that_moves_up_to_the_place_of_one_that_is_gone_is_not_taken_for_it(watch: Watch) -> None:
    watch.library.unplug(0)
    until(lambda: watch.told_of("it was there and is not any more"))
    (card,) = watch.sampler.cards
    assert (card.uuid, card.index) == (UUIDS[1], 0)
    until(
        lambda: len(watch.sampler.problems) == 1
    )  # a busy machine can keep a card waiting for longer than the patience of this test
    (problem,) = watch.sampler.problems
    assert UUIDS[0] in problem.reason
    assert problem.device is None, "its number belongs to the other card now"
    watch.goes_on("nvml:0")


def test_new_names_bring_details_and_topology_under_them(watch: Watch) -> None:
    until(lambda: any(isinstance(event, Topology) for event in list(watch.events)))
    watch.sampler.set_names({UUIDS[0]: "cuda:1", UUIDS[1]: "cuda:0"})
    until(lambda: watch.of("cuda:0", DeviceDetails) and watch.of("cuda:1", DeviceDetails))

    def last() -> Topology:
        return [event for event in list(watch.events) if isinstance(event, Topology)][-1]

    until(lambda: {affinity.device for affinity in last().affinities} == {"cuda:0", "cuda:1"})
    (link,) = last().links
    assert {link.a, link.b} == {"cuda:0", "cuda:1"}


def test_values_of_the_library_come_through_unchanged(
    nvml_library: NvmlLibrary, watching: Callable[..., Watch]
) -> None:
    """The other tests rely on this: values of a healthy card arrive unchanged."""
    nvml_library.reset(["t4"])
    nvml_library.freeze(1000.0)
    pynvml = sys.modules["pynvml"]
    watch = watching()
    watch.sampler.tick()
    sample, (details,) = watch.last("nvml:0"), watch.of("nvml:0", DeviceDetails)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (memory.used, memory.total)
    assert sample.power_w == pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    assert sample.utilization_percent == pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    assert sample.ecc_corrected == 0, "a card without errors has 0 of them: that is known"
    assert (details.retired_pages_single_bit, details.retired_pages_double_bit) == (2, 1)


def test_codes_of_the_library_are_those_of_pynvml(nvml_library: NvmlLibrary) -> None:
    pynvml = sys.modules["pynvml"]
    names = {
        "NOT_SUPPORTED": NOT_SUPPORTED,
        "NO_PERMISSION": NO_PERMISSION,
        "GPU_IS_LOST": GPU_IS_LOST,
        "UNKNOWN": UNKNOWN,
    }
    names |= {"DRIVER_NOT_LOADED": DRIVER_NOT_LOADED}
    assert {name: getattr(pynvml, f"NVML_ERROR_{name}") for name in names} == names
