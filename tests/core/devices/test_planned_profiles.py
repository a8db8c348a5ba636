"""What can be planned for and be no virtual GPU: Apple's chips."""

from __future__ import annotations

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import (
    apple_profiles,
    load_profiles,
    parse_planned,
    parse_virtual,
    planned_profiles,
    resource_rows,
    usable_bytes,
)

MIB = 1 << 20


def test_every_chip_has_a_profile_for_each_size_of_memory_and_a_source() -> None:
    rows = resource_rows("apple_chips.csv")
    assert all(row["source"] for row in rows)
    assert len(apple_profiles()) == sum(len(row["memory_gb"].split(";")) for row in rows)
    m4 = apple_profiles()["Apple M4 Max 64GB"]
    assert (m4.device, m4.memory_gb_s, m4.sm_count, m4.tdp_w) == ("mps", 546.0, 40, None)
    assert dict(m4.tflops) == {"float32": 18.4, "float16": 18.4, "bfloat16": 18.4}
    assert apple_profiles()["Apple M4 Max 36GB"].memory_gb_s == 410.0
    assert "bfloat16" not in apple_profiles()["Apple M1 8GB"].tflops
    assert "fp32" in m4.computed


@pytest.mark.parametrize(("gigabytes", "mib"), [(16, 10_922.67), (32, 21_845.33), (64, 49_152), (96, 73_728)])
def test_the_memory_is_what_macs_print(gigabytes: int, mib: float) -> None:
    assert usable_bytes(gigabytes) / MIB == pytest.approx(mib, abs=0.01)


def test_they_are_found_by_a_part_of_their_name() -> None:
    assert [profile.name for profile in parse_planned("m4 max 64gb")] == ["Apple M4 Max 64GB"]
    assert [profile.name for profile in parse_planned("M1 8GB")] == ["Apple M1 8GB"]
    assert [profile.name for profile in parse_planned("t4, l4")] == ["Tesla T4", "NVIDIA L4"]
    with pytest.raises(BadInput, match="could be 'Apple M4 Max 36GB'"):
        parse_planned("M4 Max")
    said = f"virtual_gpus.md lists all {len(load_profiles())} of virtual GPUs, resources/apple_chips.csv Apple's"
    with pytest.raises(BadInput, match=said):
        parse_planned("toaster")


@pytest.mark.parametrize("name", ["M4 Max 64GB", "Apple M1", "m2", "Apple M3 Pro 36GB", "apple"])
def test_they_are_no_virtual_gpus(name: str) -> None:
    with pytest.raises(BadInput, match="device there is mps; plan for it with devexplorer fit"):
        parse_virtual(name)


def test_all_other_profiles_are_those_of_virtual_gpus() -> None:
    assert list(planned_profiles())[: len(load_profiles())] == list(load_profiles())
    assert {profile.device for profile in load_profiles().values()} == {"cuda"}
