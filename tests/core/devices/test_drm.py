"""AMD and Intel cards from a fake /sys: units, sleeping cards, missing values, foreign entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.telemetry.metrics import is_empty_sample

AMD = {
    "vendor": "0x1002\n", "device": "0x744c\n", "gpu_busy_percent": "43\n", "mem_busy_percent": "12\n",
    "mem_info_vram_total": "25753026560\n", "mem_info_vram_used": "1073741824\n", "mem_info_gtt_total": "33554432000\n",
    "current_link_speed": "16.0 GT/s PCIe\n", "current_link_width": "16\n", "max_link_speed": "32.0 GT/s PCIe\n",
    "max_link_width": "16\n",
    "pcie_replay_count": "0\n", "vbios_version": "113-D7020100-102\n", "unique_id": "f1c2a3\n", "numa_node": "-1\n",
    "local_cpulist": "0-15\n", "power/runtime_status": "active\n", "power_dpm_force_performance_level": "auto\n",
    "hwmon/hwmon3/temp1_label": "edge\n", "hwmon/hwmon3/temp1_input": "61000\n", "hwmon/hwmon3/temp1_crit": "100000\n",
    "hwmon/hwmon3/temp1_emergency": "105000\n", "hwmon/hwmon3/temp2_label": "junction\n",
    "hwmon/hwmon3/temp2_input": "75000\n",
    "hwmon/hwmon3/temp3_label": "mem\n", "hwmon/hwmon3/temp3_input": "70000\n", "hwmon/hwmon3/temp3_crit": "108000\n",
    "hwmon/hwmon3/power1_average": "203000000\n", "hwmon/hwmon3/power1_cap": "339000000\n",
    "hwmon/hwmon3/power1_cap_min": "0\n",
    "hwmon/hwmon3/power1_cap_max": "390000000\n", "hwmon/hwmon3/power1_cap_default": "339000000\n",
    "hwmon/hwmon3/freq1_label": "sclk\n", "hwmon/hwmon3/freq1_input": "2304000000\n",
    "hwmon/hwmon3/freq2_label": "mclk\n", "hwmon/hwmon3/freq2_input": "1249000000\n",
    "hwmon/hwmon3/pwm1": "51\n", "hwmon/hwmon3/pwm1_max": "255\n", "hwmon/hwmon3/fan1_input": "0\n",
}  # fmt: skip
ARC = {
    "vendor": "0x8086\n", "device": "0xe20b\n", "tile0/physical_vram_size_bytes": "12884901888\n",
    "tile0/gt0/freq0/act_freq": "2850\n",
    "tile0/gt0/freq0/max_freq": "2900\n", "hwmon/hwmon5/temp2_label": "pkg\n", "hwmon/hwmon5/temp2_input": "48000\n",
    "hwmon/hwmon5/temp3_label": "vram\n", "hwmon/hwmon5/temp3_input": "52000\n",
    "hwmon/hwmon5/energy1_input": "1000000000\n",
    "hwmon/hwmon5/power1_max": "190000000\n",
}  # fmt: skip
INSIDE = {"vendor": "0x8086\n", "device": "0x9a49\n"}
NVIDIA = {"vendor": "0x10de\n", "device": "0x20b0\n"}
IDS = (
    "# a list\n1001  Somebody\n\t744c  Not this one\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n"
    "\t744b  Another\n\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]\n\t\t1da2 471e  Pulse\n"
    "8086  Intel Corporation\n\t9a49  TigerLake\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sys/class/drm").mkdir(parents=True)
    return tmp_path


def put(root: Path, number: int, bus: str, driver: str, files: dict[str, str], *, render: bool = True) -> Path:
    """A card as the kernel lays it out: cardN/device points to the PCI device, which has drm/renderD… and a link to its
    driver."""
    at = root / "sys/devices" / bus
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text, encoding="utf-8")
    (at / "drm" / (f"renderD{128 + number}" if render else f"card{number}")).mkdir(parents=True)
    (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (at / "driver").symlink_to(root / "sys/drivers" / driver)
    card = root / "sys/class/drm" / f"card{number}"
    card.mkdir()
    (card / "device").symlink_to(at)
    (root / "sys/class/drm" / f"card{number}-HDMI-A-1").mkdir()  # a connector, no card
    return at


def only(root: Path) -> tuple[Drm, DrmCard]:
    drm = Drm(root)
    (card,) = drm.cards()
    return drm, card


def test_an_amd_card_says_nearly_everything(root: Path) -> None:
    put(root, 1, "0000:03:00.0", "amdgpu", AMD)
    (root / "usr/share/misc").mkdir(parents=True)
    (root / "usr/share/misc/pci.ids").write_text(IDS, encoding="utf-8")
    drm, card = only(root)
    assert (card.number, card.vendor, card.bus_id, card.driver, card.drm_id) == (
        1,
        "AMD",
        "0000:03:00.0",
        "amdgpu",
        "drm:1",
    )
    assert card.name == "AMD Radeon RX 7900 XT/7900 XTX/7900M"
    assert not card.shared
    sample = drm.read(card, "cuda:0", 10.0)
    assert (sample.device, sample.memory_used_bytes, sample.memory_total_bytes) == ("cuda:0", 1 << 30, 25753026560)
    assert sample.memory_free_bytes == 25753026560 - (1 << 30)
    assert (sample.utilization_percent, sample.memory_utilization_percent) == (43.0, 12.0)
    assert (sample.temperature_c, sample.memory_temperature_c) == (61.0, 70.0)
    assert (sample.power_w, sample.power_cap_w) == (203.0, 339.0)
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz) == (2304, 1249)
    assert (sample.fan_percent, sample.pcie_generation, sample.pcie_width, sample.pcie_replays) == (20.0, 4, 16, 0)
    details = drm.details(card, "cuda:0", 10.0)
    assert (details.temperature_limit_c, details.temperature_shutdown_c, details.temperature_memory_limit_c) == (
        100.0,
        105.0,
        108.0,
    )
    assert (details.power_limit_min_w, details.power_limit_max_w, details.power_limit_default_w) == (0.0, 390.0, 339.0)
    assert (details.vbios_version, details.serial, details.cpus, details.numa_node) == (
        "113-D7020100-102",
        "f1c2a3",
        "0-15",
        None,
    )
    assert (details.pcie_generation_max, details.pcie_width_max) == (5, 16)
    assert details.more["fan"] == "0 rpm"
    assert details.more["system memory that it may use"] == "32,000 MiB"
    assert not details.missing


def test_zero_is_a_reading_and_no_file_is_none(root: Path) -> None:
    at = put(root, 0, "0000:03:00.0", "amdgpu", AMD | {"gpu_busy_percent": "0\n", "hwmon/hwmon3/power1_average": "0\n"})
    drm, card = only(root)
    sample = drm.read(card, "cuda:0", 1.0)
    assert (sample.utilization_percent, sample.power_w) == (0.0, 0.0)
    for name in ("gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon3/power1_average", "hwmon/hwmon3/temp1_input"):
        (at / name).unlink()
    gone = drm.read(card, "cuda:0", 2.0)
    assert [
        gone.utilization_percent,
        gone.memory_used_bytes,
        gone.memory_free_bytes,
        gone.power_w,
        gone.temperature_c,
    ] == [None] * 5
    assert gone.memory_total_bytes == 25753026560


@pytest.mark.parametrize("text", ["", "garbage\n", "99999999999999999999999\n", "\xff\xfe"])
def test_garbage_is_not_known(root: Path, text: str) -> None:
    names = (
        "gpu_busy_percent",
        "mem_info_vram_total",
        "current_link_speed",
        "hwmon/hwmon3/pwm1_max",
        "hwmon/hwmon3/temp1_input",
    )
    put(root, 0, "0000:03:00.0", "amdgpu", AMD | dict.fromkeys(names, text))
    drm, card = only(root)
    sample = drm.read(card, "cuda:0", 1.0)
    assert [sample.utilization_percent, sample.memory_total_bytes, sample.pcie_generation, sample.temperature_c] == [
        None
    ] * 4
    assert sample.memory_used_bytes == 1 << 30, "nothing else is hidden"


def test_a_card_that_sleeps_is_left_asleep(root: Path) -> None:
    put(root, 0, "0000:03:00.0", "amdgpu", AMD | {"power/runtime_status": "suspended\n"})
    drm, card = only(root)
    sample = drm.read(card, "cuda:0", 1.0)
    assert (sample.temperature_c, sample.utilization_percent, sample.memory_total_bytes) == (None, None, 25753026560)


def test_an_intel_card_says_power_by_its_energy_and_why_the_rest_is_missing(root: Path) -> None:
    at = put(root, 0, "0000:05:00.0", "xe", ARC)
    drm, card = only(root)
    assert (card.vendor, card.memory_total_bytes, card.name) == ("Intel", 12 << 30, "Intel GPU e20b")
    first = drm.read(card, "xpu:0", 10.0)
    assert first.power_w is None, "one reading of a counter is no power"
    assert (first.temperature_c, first.memory_temperature_c, first.sm_clock_mhz, first.energy_j) == (
        48.0,
        52.0,
        2850,
        1000.0,
    )
    assert first.power_cap_w == 190.0
    assert (first.memory_used_bytes, first.utilization_percent) == (None, None)
    (at / "hwmon/hwmon5/energy1_input").write_text("1050000000\n")
    assert drm.read(card, "xpu:0", 10.5).power_w == pytest.approx(100.0)
    (at / "hwmon/hwmon5/energy1_input").write_text("7\n")
    assert drm.read(card, "xpu:0", 11.0).power_w is None, "the counter began again"
    details = drm.details(card, "xpu:0", 11.0)
    assert details.sm_clock_max_mhz == 2900
    assert set(details.missing) == {"memory_used_bytes", "utilization_percent"}


def test_a_gpu_within_the_cpu_shares_its_memory(root: Path) -> None:
    put(root, 0, "0000:00:02.0", "i915", INSIDE)
    (root / "sys/class/drm/card0/gt/gt0").mkdir(parents=True)
    (root / "sys/class/drm/card0/gt/gt0/rps_act_freq_mhz").write_text("1100\n")
    drm, card = only(root)
    assert (card.shared, card.memory_total_bytes) == (True, None)
    assert drm.read(card, "drm:0", 1.0).sm_clock_mhz == 1100


def test_a_card_that_sleeps_is_not_lost(root: Path) -> None:
    at = put(root, 0, "0000:00:02.0", "i915", INSIDE | {"power/runtime_status": "active\n"})
    drm, card = only(root)
    (root / "sys/class/drm/card0/gt/gt0").mkdir(parents=True)
    (root / "sys/class/drm/card0/gt/gt0/rps_act_freq_mhz").write_text("1100\n")
    for second in range(10):
        (at / "power/runtime_status").write_text("active\n" if second < 3 else "suspended\n")
        assert not is_empty_sample(drm.read(card, "drm:0", float(second)))


def test_nvidias_cards_and_those_without_a_render_node_are_none_of_ours(root: Path) -> None:
    put(root, 0, "0000:01:00.0", "nvidia", NVIDIA)
    put(root, 1, "0000:02:00.0", "amdgpu", AMD, render=False)
    put(root, 2, "0000:03:00.0", "ast", {"vendor": "0x1a03\n", "device": "0x2000\n"})
    put(root, 10, "0000:05:00.0", "xe", ARC)
    put(root, 3, "0000:04:00.0", "amdgpu", AMD)
    assert [card.number for card in Drm(root).cards()] == [3, 10]


def test_a_system_without_such_a_folder_has_no_cards(tmp_path: Path) -> None:
    assert Drm(tmp_path).cards() == ()


def test_what_a_card_cannot_have_is_refused_with_the_value(root: Path) -> None:
    lies = {
        "gpu_busy_percent": "4294967295\n",
        "mem_info_vram_used": "99999999999999\n",
        "hwmon/hwmon3/temp1_input": "4294967291000\n",
        "hwmon/hwmon3/power1_average": "4294967295000000\n",
        "hwmon/hwmon3/freq1_input": "4294967295000000\n",
    }
    put(root, 0, "0000:03:00.0", "amdgpu", AMD | lies)
    drm = Drm(root)
    (card,) = drm.cards()
    sample = drm.read(card, "drm:0", 1.0)
    missing = drm.details(card, "drm:0", 1.0).missing
    for field in ("utilization_percent", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz"):
        assert getattr(sample, field) is None
        assert "cannot be right" in missing[field]
    assert "4294967295 % utilization" in missing["utilization_percent"]
    assert "of 25753026560" in missing["memory_used_bytes"]
    assert sample.memory_total_bytes == 25753026560
