"""Values that seldom change: every field of a healthy card, the reason for each missing one, lost cards, MIG
instances."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.nvml import FakeCard, FakeLink, FakeNvml, opened

from devexplorer.core.devices.nvml import details
from devexplorer.core.devices.nvml.details import missing
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml.query import CardState
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceDetails, NvLink

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
MIG = "MIG-cccccccc-0000-0000-0000-000000000003"


def details_of(nvml: Nvml, card: Card) -> DeviceDetails:
    return nvml.read_details(card, device="cuda:0", time_unix_s=5.0)


@pytest.fixture(autouse=True)
def no_numa_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(details, "numa_of_bus", lambda bus_id: None)


def test_a_healthy_card_answers_everything() -> None:
    nvml, (card,) = opened(
        FakeNvml(FakeCard(uuid=A, fans=[30, 40], links=[FakeLink("00000000:AF:00.0"), FakeLink("", active=False)]))
    )
    assert details_of(nvml, card) == DeviceDetails(
        device="cuda:0",
        time_unix_s=5.0,
        architecture="Turing",
        brand="Tesla",
        serial="1654223000",
        board_part_number="900-2G183-0000-001",
        vbios_version="90.04.A7.00.01",
        driver_version="550.54.15",
        cuda_version="12.4",
        sm_count=40,
        cuda_cores=2560,
        memory_bus_bits=256,
        persistence=True,
        compute_mode="Default",
        accounting=False,
        mig=False,
        display_active=False,
        fans_percent=(30.0, 40.0),
        temperature_slowdown_c=93.0,
        temperature_shutdown_c=96.0,
        temperature_limit_c=85.0,
        temperature_memory_limit_c=95.0,
        power_limit_default_w=70.0,
        power_limit_min_w=60.0,
        power_limit_max_w=70.0,
        sm_clock_max_mhz=1590,
        graphics_clock_max_mhz=1590,
        memory_clock_max_mhz=5001,
        video_clock_max_mhz=1470,
        graphics_clock_application_mhz=585,
        memory_clock_application_mhz=5001,
        pcie_generation_max=3,
        pcie_width_max=16,
        ecc=True,
        ecc_corrected_total=15,
        ecc_uncorrected_total=10,
        remapped_rows_corrected=1,
        remapped_rows_uncorrected=0,
        remapping_pending=False,
        remapping_failed=False,
        retired_pages_single_bit=2,
        retired_pages_double_bit=1,
        retired_pages_pending=False,
        nvlinks=(
            NvLink(link=0, active=True, version="4.0", remote_bus_id="00000000:AF:00.0", remote_kind="card"),
            NvLink(link=1, active=False, version="4.0"),
        ),
        cpus="0-7",
        numa_node=1,
    )
    assert nvml.problems == ()


def test_a_geforce_gives_reasons_and_no_problems() -> None:
    fake = FakeNvml(FakeCard(uuid=A, name="NVIDIA GeForce RTX 4080"))
    lacking = (
        "Serial",
        "EccMode",
        "TotalEccErrors",
        "MigMode",
        "RetiredPages",
        "RetiredPagesPendingStatus",
        "BoardPartNumber",
        "RemappedRows",
    )
    for name in lacking:
        fake.fail(f"nvmlDeviceGet{name}", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    fake.fail("nvmlDeviceGetAccountingMode", FakeNvml.NVML_ERROR_NO_PERMISSION)
    nvml, (card,) = opened(fake)
    found = details_of(nvml, card)
    assert (found.serial, found.ecc, found.mig, found.retired_pages_single_bit, found.remapping_failed) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert "does not support it" in found.missing["serial"]
    assert found.missing["remapping_failed"] == found.missing["remapped_rows_corrected"]
    assert "this user may not ask for it" in found.missing["accounting"]
    assert "vbios_version" not in found.missing
    assert nvml.problems == ()


def test_every_unknown_field_has_a_reason() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    for name in vars(FakeNvml):
        if name.startswith("nvmlDevice"):
            fake.fail(name, FakeNvml.NVML_ERROR_UNKNOWN)
    found = details_of(nvml, card)
    unknown = {field for field in DeviceDetails.__struct_fields__ if getattr(found, field) is None}
    assert len(unknown) > 40
    assert unknown <= set(found.missing)


def test_the_mode_after_a_reset_is_reported_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetEccMode", lambda self, handle: [1, 0])
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A)))
    found = details_of(nvml, card)
    assert (found.ecc, found.ecc_pending, found.mig_pending) == (True, False, None)


def test_sms_follow_from_cores_where_the_driver_does_not_count_them() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetAttributes_v2", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    assert details_of(nvml, card).sm_count == 2560 // 64
    fake.cards[0].capability = (99, 0)
    fake.fail("nvmlDeviceGetNumGpuCores", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    assert details_of(nvml, card).sm_count is None


def test_an_architecture_of_the_future_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetArchitecture", lambda self, handle: 2**32 - 1)
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A)))
    found = details_of(nvml, card)
    assert found.architecture is None
    assert "4294967295" in found.missing["architecture"]


def test_a_card_without_links_has_none_and_one_that_does_not_tell_is_unknown() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    assert details_of(nvml, card).nvlinks == ()
    fake.fail("nvmlDeviceGetNvLinkState", FakeNvml.NVML_ERROR_UNKNOWN)
    assert details_of(nvml, card).nvlinks is None


def test_traffic_of_each_link_since_the_details_before() -> None:
    links = [
        FakeLink("00000000:AF:00.0", sent_kib=10),
        FakeLink("00000000:AF:00.0", received_kib=7),
        FakeLink("", active=False),
    ]
    times = iter([100.0, 110.0])
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A, links=links)), clock=lambda: next(times))
    first = details_of(nvml, card).nvlinks
    links[0].sent_kib, links[1].received_kib = 30, 17
    second = details_of(nvml, card).nvlinks
    assert first is not None
    assert second is not None
    assert [link.tx_bytes_s for link in first] == [None, None, None]
    assert [(link.tx_bytes_s, link.rx_bytes_s) for link in second] == [(2048.0, 0.0), (0.0, 1024.0), (None, None)]


def test_reasons_of_the_samples_fields_are_reported_too() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetPowerUsage", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    nvml.read(card, device="cuda:0", time_unix_s=5.0)
    assert "does not support it" in details_of(nvml, card).missing["power_w"]


def test_a_lost_card_has_one_reason_for_everything() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    fake.lose(0)
    found = details_of(nvml, card)
    assert found.vbios_version is None
    assert all("lost" in reason for reason in found.missing.values())
    assert {"serial", "nvlinks", "cpus"} <= set(found.missing)
    fake.heal()
    assert details_of(nvml, card).vbios_version == "90.04.A7.00.01"


def test_a_mig_instance_says_that_the_rest_is_its_card_s() -> None:
    part = FakeCard(uuid=MIG, name="NVIDIA A100 MIG 1g.5gb", links=[FakeLink("00000000:AF:00.0")])
    fake = FakeNvml(FakeCard(uuid=A, mig=1, instances=[part]))
    nvml, (card, instance) = opened(fake)
    for name in ("Serial", "PowerUsage", "TemperatureV", "Temperature", "UtilizationRates"):
        fake.fail(f"nvmlDeviceGet{name}", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.read(instance, device="cuda:0", time_unix_s=5.0)
    nvml.read(card, device="nvml:0", time_unix_s=5.0)
    found = details_of(nvml, instance)
    assert found.nvlinks is None
    assert (
        found.missing["serial"]
        == found.missing["power_w"]
        == found.missing["nvlinks"]
        == "a MIG instance has none: see its card"
    )
    assert details_of(nvml, card).missing["utilization_percent"] == "not reported in MIG mode"
    assert nvml.problems == ()


def test_the_numa_node_of_the_system_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetMemoryAffinity", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    assert details_of(nvml, card).numa_node is None
    monkeypatch.setattr(details, "numa_of_bus", {"00000000:00:04.0": 3}.get)
    found = details_of(nvml, card)
    assert found.numa_node == 3
    assert "numa_node" not in found.missing


def test_a_listing_that_finds_something_lacking_meanwhile_disturbs_no_reading() -> None:
    card = CardState("nvml:0")

    class Growing(dict[str, str]):
        """As if another thread added to it between two steps."""

        def items(self) -> Any:
            for key in self:
                self[f"{key}+"] = "found by a listing"
                yield key, self[key]

    card.reasons = Growing(serial="this user may not ask for it")
    assert missing(card) == {"serial": "this user may not ask for it"}
