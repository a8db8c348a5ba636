"""Values read every few seconds: one call for several fields, each with its own error; rates, words, older drivers."""

from __future__ import annotations

import importlib

import pytest
from fakes.nvml import FakeCard, FakeLink, FakeNvml, opened

from devexplorer.core.devices.nvml import fields as nvml_fields
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import DeviceSample

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
LINK = FakeLink("00000000:AF:00.0", sent_kib=1000, received_kib=50)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


NOTHING = DeviceSample(device="nvml:0", time_unix_s=0.0)


def slow(card: FakeCard) -> tuple[DeviceSample, Nvml]:
    nvml, (known,) = opened(FakeNvml(card))
    return nvml.read_slow(known), nvml


def test_a_healthy_card_answers_everything() -> None:
    found, nvml = slow(FakeCard(uuid=A, throttle=0x4, fans=[30, 55]))
    assert found == DeviceSample(
        device="nvml:0",
        time_unix_s=0.0,
        encoder_percent=0.0,
        decoder_percent=4.0,
        memory_temperature_c=64.0,
        power_instant_w=36.25,
        power_cap_w=70.0,
        energy_j=1234.0,
        graphics_clock_mhz=1590,
        video_clock_mhz=1470,
        fan_percent=55.0,
        performance_state="P0",
        throttle_reasons=("power cap",),
        pcie_generation=3,
        pcie_width=16,
        pcie_tx_bytes_s=900 * 1024.0,
        pcie_rx_bytes_s=2600 * 1024.0,
        pcie_replays=2,
        ecc_corrected=5,
        ecc_uncorrected=0,
        processes=(),
    )
    assert nvml.problems == ()


def test_every_field_is_one_of_the_sample() -> None:
    fields = {query.field for query in (*nvml_fields.SINGLE, *nvml_fields.PCIE_THROUGHPUT)} | {
        item.query.field for item in nvml_fields.GROUPED
    }
    assert fields <= set(DeviceSample.__struct_fields__)


def test_the_numbers_of_the_fields_are_the_driver_s() -> None:
    real = importlib.import_module("pynvml")
    names = (
        "POWER_INSTANT",
        "MEMORY_TEMP",
        "TOTAL_ENERGY_CONSUMPTION",
        "PCIE_REPLAY_COUNTER",
        "ECC_SBE_VOL_TOTAL",
        "ECC_DBE_VOL_TOTAL",
    )
    assert [one.id for one in nvml_fields.GROUPED] == [getattr(real, f"NVML_FI_DEV_{name}") for name in names]
    throughput = (real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3), (real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 3)
    assert nvml_fields.nvlink_fields(3) == throughput
    bits = {
        getattr(real, name)
        for name in dir(real)
        if name.startswith(("nvmlClocksEventReason", "nvmlClocksThrottleReason"))
    }
    single = {bit for bit in bits if bit and bit & (bit - 1) == 0}
    assert single == set(nvml_fields._CLOCK_REASONS)


def test_one_value_that_fails_hides_no_other_and_asks_the_older_function() -> None:
    card = FakeCard(uuid=A)
    card.values |= {83: FakeNvml.NVML_ERROR_UNKNOWN, 82: FakeNvml.NVML_ERROR_NOT_SUPPORTED}
    fake = FakeNvml(card)
    nvml, (known,) = opened(fake)
    found = nvml.read_slow(known)
    assert (found.memory_temperature_c, found.energy_j) == (None, None)
    assert (found.power_instant_w, found.pcie_replays) == (36.25, 2)
    missing = nvml.read_details(known, device="cuda:0", time_unix_s=1.0).missing
    assert "does not support it" in missing["memory_temperature_c"]
    assert "Unknown Error" in missing["energy_j"]
    assert fake.calls["nvmlDeviceGetTotalEnergyConsumption"] == 1
    assert nvml.problems == ()


def test_a_driver_without_the_one_call_is_asked_by_the_older_functions() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetFieldValues", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    found = nvml.read_slow(card)
    assert (found.energy_j, found.pcie_replays, found.ecc_corrected, found.ecc_uncorrected) == (1234.0, 2, 5, 0)
    assert (found.power_instant_w, found.memory_temperature_c, found.nvlink_tx_bytes_s) == (None, None, None)
    assert "too old" in nvml.read_details(card, device="cuda:0", time_unix_s=1.0).missing["power_instant_w"]
    assert nvml.problems == ()


def test_a_value_that_says_the_card_is_lost_is_believed() -> None:
    card = FakeCard(uuid=A)
    card.values[186] = FakeNvml.NVML_ERROR_GPU_IS_LOST
    found, nvml = slow(card)
    assert found == NOTHING
    assert [(problem.device, problem.field) for problem in nvml.problems] == [("nvml:0", None)]


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        (186, (1, 2**32 - 1), "power_instant_w"),
        (82, (1, 2**32 - 1), "memory_temperature_c"),
        (83, (3, 2**64 - 1), "energy_j"),
        (94, (1, 2**32 - 1), "pcie_replays"),
        (3, (3, 2**64 - 1), "ecc_corrected"),
        (186, (99, 1), "power_instant_w"),
        (186, (1, 4_000_000_000), "power_instant_w"),
    ],
)
def test_sentinels_and_unknown_types_are_not_known(field: int, value: tuple[int, int], name: str) -> None:
    card = FakeCard(uuid=A)
    if value[0] == 99:
        card.values[field] = FakeNvml.NVML_ERROR_NOT_SUPPORTED
    else:
        card.values[field] = value
    fake = FakeNvml(card)
    for function in (
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetTotalEccErrors",
    ):
        fake.fail(function, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (known,) = opened(fake)
    assert getattr(nvml.read_slow(known), name) is None


def test_nvlink_traffic_is_the_difference_of_two_readings() -> None:
    link, clock = FakeLink("00000000:AF:00.0", sent_kib=1000, received_kib=50), Clock()
    card = FakeCard(uuid=A, links=[link, FakeLink("00000000:AF:00.0")])
    nvml, (known,) = opened(FakeNvml(card), clock=clock)
    assert nvml.read_slow(known).nvlink_tx_bytes_s is None, "one reading is no rate"
    clock.now, link.sent_kib = 102.0, 5000
    found = nvml.read_slow(known)
    assert (found.nvlink_tx_bytes_s, found.nvlink_rx_bytes_s) == (2000 * 1024.0, 0.0)
    clock.now, link.sent_kib = 104.0, 10
    assert nvml.read_slow(known).nvlink_tx_bytes_s is None, "a counter that was set back"
    clock.now, link.sent_kib = 106.0, 110
    assert nvml.read_slow(known).nvlink_tx_bytes_s == 50 * 1024.0


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x1, ("idle",)),
        (0x44, ("power cap", "too hot (the hardware lowers the clocks)")),
        (0x20 | 1 << 40, ("too hot (the driver lowers the clocks)", "reason 0x10000000000")),
    ],
)
def test_clock_event_reasons_in_words(bits: int, words: tuple[str, ...]) -> None:
    found, _ = slow(FakeCard(uuid=A, throttle=bits))
    assert found.throttle_reasons == words


def test_reasons_that_cannot_be_right_are_not_known() -> None:
    found, _ = slow(FakeCard(uuid=A, throttle=2**64 - 1))
    assert found.throttle_reasons is None


def test_the_older_name_of_the_reasons_is_enough() -> None:
    fake = FakeNvml(FakeCard(uuid=A, throttle=0x8))
    fake.fail("nvmlDeviceGetCurrentClocksEventReasons", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    (reason,) = nvml.read_slow(card).throttle_reasons or ()
    assert reason.startswith("hardware slowdown")


def test_a_card_without_fans_has_no_fan_speed() -> None:
    fake = FakeNvml(FakeCard(uuid=A, fans=[]))
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).fan_percent is None
    assert nvml.read_details(card, device="cuda:0", time_unix_s=1.0).missing["fan_percent"] == "the card has no fan"
    assert nvml.problems == ()


def test_a_driver_that_does_not_count_fans_says_one_speed() -> None:
    fake = FakeNvml(FakeCard(uuid=A, fan=42))
    fake.fail("nvmlDeviceGetNumFans", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).fan_percent == 42.0


def test_odd_states_and_links_are_not_known() -> None:
    found, nvml = slow(FakeCard(uuid=A, state=32, pcie=(0, 0, 0, 0), encoder=2**32 - 1, pcie_kib_s=(2**32 - 1, 0)))
    assert (found.performance_state, found.pcie_generation, found.pcie_width) == (None, None, None)
    assert (found.encoder_percent, found.pcie_tx_bytes_s, found.pcie_rx_bytes_s) == (None, None, 0.0)
    assert nvml.problems == ()


def test_nothing_that_fails_becomes_a_number() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    for name in (*vars(FakeNvml), "nvmlDeviceGetMemoryInfo_v2"):
        if name.startswith("nvmlDevice"):
            fake.fail(name, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    assert nvml.read_slow(card) == NOTHING
    sample = nvml.read(card, device="cuda:0", time_unix_s=1.0, slow=NOTHING)
    assert sample == DeviceSample(device="cuda:0", time_unix_s=1.0), (
        "least of all the system's memory: it is not the card's"
    )
