"""The table of causes: a reading explains a slow card only as far as it differs from equal cards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from devexplorer.core.devices.nvml.fields import clock_reasons
from devexplorer.core.fleet.records import CauseId, LoadReadings, MeasuredKind
from devexplorer.core.fleet.verdicts.causes import likely_causes

USUAL = LoadReadings(
    sm_clock_mhz=1700.0,
    power_w=690.0,
    power_cap_w=700.0,
    temperature_c=64.0,
    throttled={"power cap": 0.9},
    ecc_corrected=0,
    ecc_uncorrected=0,
    remapping_pending=False,
    pcie_generation=5,
    pcie_width=16,
    pcie_generation_max=5,
    pcie_width_max=16,
    pcie_replays=2,
    other_processes=0,
    other_utilization_percent=0.0,
)
CHIP = frozenset({MeasuredKind.MATMUL, MeasuredKind.MEMORY})
COPIES = frozenset({MeasuredKind.COPIES})
PEER = frozenset({MeasuredKind.PEER, MeasuredKind.ALLREDUCE})
THERMAL_BITS = (0x20, 0x40)


def bits(number: int, share: float = 0.8) -> dict[str, float]:
    """Reasons as the driver's reader writes them."""
    return dict.fromkeys(clock_reasons(number), share)


def cause(slow: frozenset[MeasuredKind], **changed: object) -> CauseId:
    return likely_causes(replace(USUAL, **changed), [USUAL] * 7, slow)[0].cause


@pytest.mark.parametrize(
    ("expected", "slow", "changed"),
    [
        (CauseId.THERMAL, CHIP, {"throttled": bits(0x20), "temperature_c": 87.0, "sm_clock_mhz": 1500.0}),
        (CauseId.THERMAL, CHIP, {"throttled": bits(0x40), "temperature_c": 90.0}),
        (CauseId.THERMAL, CHIP, {"throttled": bits(0x8), "temperature_c": 90.0}),
        (CauseId.THERMAL, CHIP, {"throttled": None, "temperature_c": 90.0, "sm_clock_mhz": 1400.0}),
        (CauseId.POWER_CAP, CHIP, {"power_cap_w": 500.0, "power_w": 495.0, "sm_clock_mhz": 1400.0}),
        (CauseId.POWER_CAP, CHIP, {"power_cap_w": 650.0, "power_w": None}),
        (CauseId.POWER_SUPPLY, CHIP, {"throttled": bits(0x80), "sm_clock_mhz": 900.0}),
        (CauseId.POWER_SUPPLY, CHIP, {"throttled": bits(0x8), "sm_clock_mhz": 900.0}),
        (CauseId.CLOCKS_SET, CHIP, {"throttled": bits(0x2, 1.0), "sm_clock_mhz": 1200.0}),
        (CauseId.ECC, CHIP, {"ecc_uncorrected": 1}),
        (CauseId.ECC, CHIP, {"ecc_corrected": 300}),
        (CauseId.ECC, CHIP, {"remapping_pending": True}),
        (CauseId.OTHER_PROCESS, CHIP, {"other_processes": 1, "other_utilization_percent": 12.0}),
        (CauseId.OTHER_PROCESS, COPIES, {"other_processes": 2, "other_utilization_percent": None}),
        (CauseId.PCIE_WIDTH, COPIES, {"pcie_width": 8}),
        (CauseId.PCIE_GENERATION, COPIES, {"pcie_generation": 3}),
        (CauseId.LINK, COPIES, {"pcie_replays": 5000}),
        (CauseId.LINK, PEER, {}),
        (CauseId.LINK, COPIES, {}),
        (CauseId.CARD, CHIP, {}),
        (CauseId.CARD, CHIP, {"sm_clock_mhz": 1500.0}),
        # what explains nothing
        (CauseId.CARD, CHIP, {"pcie_width": 8}),
        (CauseId.CARD, CHIP, {"ecc_corrected": 3}),
        (CauseId.CARD, CHIP, {"other_processes": 1}),
        (CauseId.CARD, CHIP, {"other_utilization_percent": 1.0}),
        (CauseId.CARD, CHIP, {"power_cap_w": 695.0}),
        (CauseId.CARD, CHIP, {"power_cap_w": 600.0, "power_w": 300.0, "throttled": {}}),
        (CauseId.CARD, CHIP, {"temperature_c": 80.0}),
        (CauseId.CARD, CHIP, {"throttled": bits(0x4, 1.0)}),
    ],
)
def test_the_table_of_causes(expected: CauseId, slow: frozenset[MeasuredKind], changed: dict[str, object]) -> None:
    assert cause(slow, **changed) is expected


def test_lanes_that_slow_no_copy_slow_nothing_else() -> None:
    readings = replace(USUAL, pcie_width=8)
    assert likely_causes(readings, [USUAL], PEER)[0].cause is CauseId.PCIE_WIDTH
    assert likely_causes(readings, [USUAL], PEER, normal_kinds=COPIES)[0].cause is CauseId.LINK


def test_weak_evidence_is_named_after_the_card() -> None:
    causes = likely_causes(replace(USUAL, other_utilization_percent=3.0), [USUAL], CHIP)
    assert [one.cause for one in causes] == [CauseId.CARD, CauseId.OTHER_PROCESS]


def test_what_all_cards_have_explains_nothing() -> None:
    readings = replace(
        USUAL, throttled=bits(0x20), power_cap_w=500.0, power_w=498.0, pcie_width=8, ecc_corrected=50, pcie_replays=500
    )
    for slow, expected in ((CHIP, CauseId.CARD), (COPIES, CauseId.LINK)):
        assert likely_causes(readings, [readings] * 5, slow)[0].cause is expected


def test_without_equal_cards_lanes_are_compared_with_what_the_slot_can_do() -> None:
    assert likely_causes(replace(USUAL, pcie_width=4), [], COPIES)[0].cause is CauseId.PCIE_WIDTH
    assert likely_causes(replace(USUAL, throttled=bits(0x20)), [], CHIP)[0].cause is CauseId.THERMAL


def test_two_causes_are_both_named_and_the_one_that_explains_more_first() -> None:
    causes = likely_causes(
        replace(USUAL, pcie_width=8, other_processes=1, other_utilization_percent=30.0), [USUAL], CHIP | COPIES
    )
    assert [one.cause for one in causes] == [CauseId.OTHER_PROCESS, CauseId.PCIE_WIDTH]
    assert causes[0].value == 30.0
    assert causes[1].usual == 16


@pytest.mark.parametrize("readings", [None, LoadReadings()])
def test_no_readings_no_invented_cause(readings: LoadReadings | None) -> None:
    causes = likely_causes(readings, [USUAL], CHIP)
    assert [one.cause for one in causes] == ([] if readings is None else [CauseId.CARD])
