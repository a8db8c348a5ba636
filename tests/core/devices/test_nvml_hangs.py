"""A hanging driver call: all other values arrive in time, the missing one has a reason, and it recovers when the call
returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from fakes.nvml import FakeCard, FakeNvml, opened

from devexplorer.core.base.time_limit import TimeLimitError, any_abandoned, call_within, driver_function
from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import DeviceDetails, Event
from devexplorer.core.telemetry.sampler import Sampler

UUID = "GPU-aaaaaaaa-0000-0000-0000-00000000000{}"
LIMIT_S = 0.05
WORDS = "did not answer within 0.05 s"


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@pytest.fixture
def fake() -> Iterator[FakeNvml]:
    """Three cards; at the end hanging calls are released."""
    fake = FakeNvml(*(FakeCard(uuid=UUID.format(number), name=f"Tesla T{number}") for number in range(3)))
    yield fake
    fake.release()
    until(lambda: not any_abandoned())


def an_nvml(fake: FakeNvml) -> Nvml:
    return Nvml(fake, driver_cards=frozenset, hidden_processes=lambda: False, limit_s=LIMIT_S, start_limit_s=LIMIT_S)


def a_sampler(nvml: Nvml, events: list[Event] | None = None) -> Sampler:
    put = (lambda event: None) if events is None else events.append
    cpu = CpuReader(CpuFacts("x", 1, 1 << 40, None), percent=lambda: 5.0)
    return Sampler(put, nvml, cpu, call_limit_s=LIMIT_S)


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetMemoryInfo_v2", "memory_used_bytes"),
        ("nvmlDeviceGetPciInfo", "bus_id"),
        ("nvmlDeviceGetMigMode", "mig"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
    ],
)
def test_a_card_that_hangs_while_it_is_listed_lacks_only_what_hangs(fake: FakeNvml, function: str, field: str) -> None:
    fake.block(function, card=1)
    nvml = an_nvml(fake)
    assert nvml.start()
    first, second, third = nvml.cards()
    assert [first.name, third.name] == ["Tesla T0", "Tesla T2"]
    assert second.broken is None
    assert second.name == ("NVIDIA card 1" if field == "name" else "Tesla T1")
    assert (second.memory_total_bytes is None) == (field == "memory_used_bytes")
    (problem,) = [problem for problem in nvml.problems if problem.device == "nvml:1"]
    assert problem.reason == f"{function.removesuffix('_v2')} {WORDS}"
    assert problem.field == field
    fake.release()
    until(lambda: not any_abandoned())
    assert nvml.cards()[1].name == "Tesla T1", "it is asked again when the call has returned"
    nvml.close()


def test_a_card_that_cannot_be_opened_hides_no_other(fake: FakeNvml) -> None:
    fake.block("nvmlDeviceGetHandleByIndex", card=1)
    nvml = an_nvml(fake)
    nvml.start()
    first, second, third = nvml.cards()
    assert (first.broken, third.broken) == (None, None)
    assert second.broken == f"nvmlDeviceGetHandleByIndex {WORDS}"
    fake.release()
    until(lambda: not any_abandoned())
    assert nvml.cards()[1].broken is None
    nvml.close()


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"])
def test_a_driver_that_hangs_as_a_whole_is_said_in_time(fake: FakeNvml, function: str) -> None:
    fake.block(function)
    nvml = an_nvml(fake)
    assert nvml.start() == (function != "nvmlInit")
    assert len(nvml.cards()) == (3 if function == "nvmlSystemGetDriverVersion" else 0)
    assert [problem.reason for problem in nvml.problems] == [f"{function} {WORDS}"]
    assert nvml.start() == (function != "nvmlInit"), "it is not asked again while it hangs"
    assert fake.calls[function] == 1
    fake.release()
    until(lambda: not any_abandoned())
    assert nvml.start()
    assert len(nvml.cards()) == 3
    nvml.close()


def test_a_card_of_which_every_call_hangs_is_left_alone_after_three(fake: FakeNvml) -> None:
    fake.block("*", card=1)
    nvml = an_nvml(fake)
    nvml.start()
    assert len(nvml.cards()) == 3
    sampler = a_sampler(nvml)
    _, first, second, third = sampler.read_round()
    assert (first.power_w, third.power_w) == (35.5, 35.5)
    assert second.power_w is None
    assert sum(thread.name == "left-behind" for thread in threading.enumerate()) <= 3
    assert not sampler.stop(1.0), "NVML is not shut down under a call"
    assert fake.initialised == 1


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues", "nvmlDeviceGetSerial"])
def test_a_reading_continues_without_the_call_that_hangs(fake: FakeNvml, function: str) -> None:
    nvml = an_nvml(fake)
    events: list[Event] = []
    sampler = a_sampler(nvml, events)
    fake.block(function, card=1)
    _, _, second, _ = sampler.read_round()
    assert second.temperature_c == 61
    assert (second.power_w is None) == (function == "nvmlDeviceGetPowerUsage")
    (details,) = [event for event in events if isinstance(event, DeviceDetails) and event.device == "nvml:1"]
    assert details.vbios_version is not None
    assert f"{function} {WORDS}" in details.missing.values()
    fake.release()
    until(lambda: not any_abandoned())
    assert sampler.read_round()[2].power_w == 35.5
    assert sampler.stop(5.0)
    assert fake.initialised == 0


def test_a_slow_card_shows_its_last_reading_until_the_next_one(fake: FakeNvml) -> None:
    nvml = an_nvml(fake)
    cpu = CpuReader(CpuFacts("x", 1, 1 << 40, None), percent=lambda: 5.0)
    sampler = Sampler(lambda event: None, nvml, cpu, call_limit_s=60.0, patience_s=0.02)
    before = sampler.read_round()[2]
    fake.block("nvmlDeviceGetPowerUsage", card=1)
    for _ in range(3):
        _, first, second, _ = sampler.read_round(patience_s=0.1)
        assert second == before
        assert first.time_unix_s > before.time_unix_s
    assert any(
        "does not answer" in problem.reason and "nvmlDeviceGetPowerUsage" in problem.reason
        for problem in sampler.problems
    )
    fake.release()
    until(lambda: sampler.read_round(patience_s=0.02)[2].time_unix_s > before.time_unix_s)
    assert sampler.stop(5.0)


def test_how_cards_are_joined_continues_without_the_pair_that_hangs(fake: FakeNvml) -> None:
    nvml = an_nvml(fake)
    nvml.start()
    cards = nvml.cards()
    fake.block("nvmlDeviceGetTopologyCommonAncestor", card=2)
    topology = nvml.topology(cards, {})
    assert len(topology.links) == 3
    assert [link.level for link in topology.links if "nvml:2" not in (link.a, link.b)] == ["system"]
    assert nvml.read(cards[2], device="x", time_unix_s=1.0).power_w == 35.5
    fake.release()
    until(lambda: not any_abandoned())
    nvml.close()


def test_links_that_hang_are_waited_for_once(fake: FakeNvml) -> None:
    fake.block("nvmlDeviceGetNvLinkState", card=1)
    nvml = an_nvml(fake)
    events: list[Event] = []
    sampler = a_sampler(nvml, events)
    sampler.read_round()
    (details,) = [event for event in events if isinstance(event, DeviceDetails) and event.device == "nvml:1"]
    assert details.missing["nvlinks"] == f"nvmlDeviceGetNvLinkState {WORDS}"
    assert sum(thread.name == "left-behind" for thread in threading.enumerate()) == 1, (
        "the topology has found it out, the details know"
    )
    fake.release()
    until(lambda: not any_abandoned())
    assert sampler.stop(5.0)


def test_mig_instances_of_a_card_that_hangs_leave_the_card(fake: FakeNvml) -> None:
    fake.cards[1].mig, fake.cards[1].instances = 1, [FakeCard(uuid="MIG-cccccccc-0000-0000-0000-000000000003")]
    fake.block("nvmlDeviceGetMigDeviceHandleByIndex", card=1)
    nvml = an_nvml(fake)
    nvml.start()
    assert [card.name for card in nvml.cards()] == ["Tesla T0", "Tesla T1", "Tesla T2"]
    fake.release()
    until(lambda: not any_abandoned())
    assert len(nvml.cards()) == 4
    nvml.close()


def test_any_call_has_a_limit() -> None:
    gate = threading.Event()
    with pytest.raises(TimeLimitError, match=r"cuInit did not answer within 0\.01 s"):
        call_within(0.01, gate.wait, "cuInit")
    assert any_abandoned()
    gate.set()
    until(lambda: not any_abandoned())
    assert call_within(5.0, lambda: 3, "cuInit") == 3
    with pytest.raises(OSError, match="gone"):
        call_within(5.0, fails, "cuInit")


def fails() -> None:
    raise OSError("gone")


def test_the_driver_s_function_is_the_outermost_one(fake: FakeNvml) -> None:
    nvml, _ = opened(fake)
    fake.block("nvmlDeviceGetName", card=0)
    thread = threading.Thread(target=lambda: fake.nvmlDeviceGetName(fake.nvmlDeviceGetHandleByIndex(0)))
    thread.start()
    until(lambda: driver_function(thread) == "nvmlDeviceGetName")
    fake.release()
    thread.join()
    assert driver_function(thread) is None
    nvml.close()
