"""The facts of a device, and the text for unknown values."""

from __future__ import annotations

import msgspec
from fakes.look_records import CPU, GIB, OLD, VGPU, server_card, server_details, server_sample

from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem
from devexplorer.core.telemetry.device_facts import FactGroup, FactRow, facts, facts_text, held_down

CARD, SAMPLE, DETAILS = server_card(0), server_sample(0), server_details(0)


def row(groups: tuple[FactGroup, ...], title: str, label: str) -> FactRow:
    group = next(group for group in groups if group.title == title)
    return next(row for row in group.rows if row.label == label)


NVIDIA_SMI = [
    ("Identity", "driver", "570.124.06"),
    ("Identity", "CUDA", "12.8"),
    ("Identity", "name", "NVIDIA H100 80GB HBM3"),
    ("Identity", "bus id", "00000000:18:00.0"),
    ("Power and heat", "fan 0", "42 %"),
    ("Power and heat", "temperature", "64 °C"),
    ("Activity", "performance state", "P0"),
    ("Power and heat", "power", "687.4 W"),
    ("Power and heat", "power cap", "700 W"),
    ("Memory", "used", "9.12 GiB"),
    ("Memory", "total", "80.00 GiB"),
    ("Activity", "utilization", "97 %"),
    ("Memory errors", "not corrected", "0"),
    ("Modes", "compute mode", "Default"),
    ("Modes", "MIG", "off, on after a reset"),
    ("Activity", "processes", "2"),
]


def test_everything_of_the_nvidia_smi_table_is_there() -> None:
    groups = facts(CARD, SAMPLE, DETAILS)
    assert [(title, label, row(groups, title, label).value) for title, label, _ in NVIDIA_SMI] == NVIDIA_SMI


def test_every_number_of_the_records_is_shown_somewhere() -> None:
    shown = facts_text(facts(CARD, SAMPLE, DETAILS))
    unseen = {
        "time_unix_s",
        "device",
        "missing",
        "more",
        "simulated",
        "processes",
        "fan_percent",
    }  # two fans are shown by themselves
    for record in (SAMPLE, DETAILS):
        for field in record.__struct_fields__:
            if field in unseen or getattr(record, field) is None:
                continue
            changed = msgspec.structs.replace(record, **{field: _other(getattr(record, field))})
            other = facts(CARD, changed, DETAILS) if record is SAMPLE else facts(CARD, SAMPLE, changed)
            assert facts_text(other) != shown, f"{field} changes and nothing on screen does"


def _other(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 3 + 7
    return () if isinstance(value, tuple) else f"{value}x"


def test_nothing_that_is_not_known_is_a_zero() -> None:
    bare = DeviceInfo(id="cuda:0", kind="cuda", name="a card")
    groups = facts(
        bare, DeviceSample(device="cuda:0", time_unix_s=1.0), DeviceDetails(device="cuda:0", time_unix_s=1.0)
    )
    others = [row for group in groups for row in group.rows if row.label != "name"]
    assert len(others) > 60
    assert all(row.value == "—" and row.why for row in others)


def test_the_most_exact_reason_is_given() -> None:
    problems = (
        Problem("its fan is on strike", device="cuda:0", field="fan_percent"),
        Problem("not ours", device="cuda:1", field="serial"),
    )
    sample = msgspec.structs.replace(SAMPLE, fan_percent=None, encoder_percent=None)
    details = server_details(0, fans_percent=None, serial=None)
    groups = facts(CARD, sample, details, problems)
    assert row(groups, "Power and heat", "fan").why == "its fan is on strike"
    assert row(groups, "Memory errors", "retirement pending").why == "this card replaces rows instead"
    assert row(groups, "Identity", "serial").why == "not reported by the driver"
    assert row(facts(CARD), "Activity", "encoder").why == "no reading yet"
    lost = facts(CARD, problems=(Problem("the card was lost", device="cuda:0"),))
    assert row(lost, "Power and heat", "temperature").why == "the card was lost"


def test_a_card_that_torch_does_not_count_says_why() -> None:
    hidden = DeviceInfo(
        id="nvml:1", kind="nvml", name="NVIDIA A10", usable=False, reason="hidden by CUDA_VISIBLE_DEVICES=0"
    )
    assert row(facts(hidden, SAMPLE, DETAILS), "Identity", "CUDA ordinal").why == "hidden by CUDA_VISIBLE_DEVICES=0"


def test_half_of_a_pair_is_said_and_the_other_half_explained() -> None:
    details = server_details(0, sm_clock_max_mhz=None, missing={"sm_clock_max_mhz": "this card keeps it to itself"})
    found = row(facts(CARD, SAMPLE, details), "Clocks", "SM")
    assert (found.value, found.why) == ("1,755 MHz", "this card keeps it to itself")
    found = row(facts(CARD, msgspec.structs.replace(SAMPLE, sm_clock_mhz=None), DETAILS), "Clocks", "SM")
    assert (found.value, found.why) == ("— of 1,980 MHz", "not reported by the driver")


def test_what_a_virtual_gpu_does_not_model_has_no_row_and_the_rest_is_marked() -> None:
    sample = DeviceSample(
        device="vgpu:0", time_unix_s=1.0, memory_used_bytes=GIB, utilization_percent=43.0, simulated=True
    )
    groups = facts(VGPU, sample)
    assert row(groups, "Identity", "simulated").value == "yes"
    assert row(groups, "Memory", "used").value == "1.00 GiB"
    assert not any(group.title == "NVLink" for group in groups)
    assert not any(row.why.startswith("not modelled") for group in groups for row in group.rows)
    assert row(facts(VGPU), "Activity", "utilization").why == "no reading yet"


def test_the_cpu_has_no_rows_for_what_a_cpu_does_not_have() -> None:
    groups = facts(CPU, DeviceSample(device="cpu", time_unix_s=1.0, utilization_percent=12.0))
    assert [group.title for group in groups] == ["Identity", "Activity", "Memory"]
    assert row(groups, "Identity", "threads").value == "16"


def test_other_vendors_show_what_they_have_to_say() -> None:
    mps = DeviceInfo(id="mps", kind="mps", name="Apple M3")
    details = DeviceDetails(
        device="mps",
        time_unix_s=1.0,
        more={"GPU cores": "40"},
        missing={"power_w": "macOS tells it to administrators only"},
    )
    groups = facts(mps, None, details)
    assert row(groups, "More", "GPU cores").value == "40"
    assert row(groups, "Power and heat", "power").why == "macOS tells it to administrators only"
    assert not any(group.title in ("NVLink", "Memory errors") for group in groups)


def test_a_mig_instance_points_to_its_card_and_an_unusable_card_says_why() -> None:
    instance = msgspec.structs.replace(CARD, id="cuda:1", parent="nvml:0")
    groups = facts(
        instance, DeviceSample(device="cuda:1", time_unix_s=1.0), DeviceDetails(device="cuda:1", time_unix_s=1.0)
    )
    assert row(groups, "Identity", "instance of").value == "nvml:0"
    assert row(groups, "Power and heat", "power").why == "a MIG instance has none: see nvml:0"
    assert row(facts(OLD), "Identity", "usable") == FactRow("usable", "no", "", "It is too old for this torch.", True)


def test_what_needs_a_look_is_marked() -> None:
    broken = msgspec.structs.replace(SAMPLE, ecc_uncorrected=3, throttle_reasons=("idle",))
    details = server_details(0, remapping_failed=True)
    marked = {row.label for group in facts(CARD, broken, details) for row in group.rows if row.warning}
    assert marked == {"not corrected", "remapping failed"}
    assert row(facts(CARD, SAMPLE, DETAILS), "Activity", "throttled by").warning


def test_each_nvlink_has_its_row() -> None:
    links = [row for group in facts(CARD, SAMPLE, DETAILS) if group.title == "NVLink" for row in group.rows]
    assert links[0].value == "18 of 18 active"
    assert [link.label for link in links[3:]] == [f"link {number}" for number in range(18)]
    assert links[3].value == "4.0 to 00000000:A0:00.0"
    down = (msgspec.structs.replace(DETAILS.nvlinks[0], active=False), *DETAILS.nvlinks[1:]) if DETAILS.nvlinks else ()
    first = row(facts(CARD, SAMPLE, server_details(0, nvlinks=down)), "NVLink", "links")
    assert (first.value, first.warning) == ("17 of 18 active", True)
    assert row(facts(CARD, SAMPLE, server_details(0, nvlinks=())), "NVLink", "links").value == "none"


def test_an_idle_card_is_not_held_down() -> None:
    assert held_down(None) == held_down(()) == held_down(("idle",)) == ()
    assert held_down(("idle", "power cap")) == ("power cap",)
    idle = msgspec.structs.replace(SAMPLE, throttle_reasons=("idle",))
    assert row(facts(CARD, idle, DETAILS), "Activity", "throttled by").value == "nothing"


def test_as_text_each_dash_has_its_reason_behind_it() -> None:
    lines = facts_text(facts(CARD, SAMPLE, DETAILS)).splitlines()
    assert lines[0] == "Identity"
    assert lines[1].split() == ["name", "NVIDIA", "H100", "80GB", "HBM3"]
    assert any(line.endswith("—  (this card replaces rows instead)") for line in lines)
