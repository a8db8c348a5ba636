"""The JSON object of one device: each null has a reason, and only nulls have reasons."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.nvml import FakeCard, FakeLink, FakeNvml, opened

from devexplorer.core.cli.devices import device_document
from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.nvml.details import lost_details
from devexplorer.core.records import DeviceSample
from devexplorer.core.telemetry.device_facts import facts, facts_text

UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
NO_READING = ("device", "time_unix_s", "more", "missing", "simulated", "reason", "parent", "threads")


def document(fake: FakeNvml) -> dict[str, Any]:
    """Of the first card, read once."""
    nvml, (card, *_) = opened(fake)
    sample = nvml.read(card, device="nvml:0", time_unix_s=1.0, slow=nvml.read_slow(card))
    details = nvml.read_details(card, device="nvml:0", time_unix_s=1.0)
    found = join(CpuReader(CpuFacts("x", 1, 1 << 40, None)).info(), [card], [], problems=nvml.problems)
    made = device_document(found.devices[-1], sample, details, found.problems)
    nvml.close()
    return dict(json.loads(json.dumps(made)))


def without_reason(made: dict[str, Any]) -> set[str]:
    """Null fields without a reason."""
    parts = (made, made["sample"], made["details"])
    return {
        field
        for part in parts
        for field, value in part.items()
        if value is None and field not in NO_READING and field not in made["details"]["missing"]
    }


def test_every_null_has_a_reason() -> None:
    made = document(FakeNvml(FakeCard(uuid=UUID, links=[FakeLink("00000000:AF:00.0")])))
    assert without_reason(made) == set()
    missing = made["details"]["missing"]
    assert missing["mig_pending"] == missing["ecc_pending"] == "no change is pending"
    assert "two readings" in missing["nvlinks.tx_bytes_s"]
    assert "next" not in missing["nvlink_tx_bytes_s"], "a command that reads once has no next reading"


def test_what_the_details_tell_is_at_the_top_too() -> None:
    made = document(FakeNvml(FakeCard(uuid=UUID)))
    assert made["sm_count"] == made["details"]["sm_count"] == 40
    assert "sm_count" not in made["details"]["missing"]


def test_a_lost_card_has_one_reason_and_no_figure_of_before() -> None:
    fake = FakeNvml(FakeCard(uuid=UUID))
    nvml, cards = opened(fake)
    fake.lose(0)
    (card,) = nvml.cards()
    assert cards[0].memory_used_bytes is not None
    assert card.memory_used_bytes is None
    found = join(CpuReader(CpuFacts("x", 1, 1 << 40, None)).info(), [card], [], problems=nvml.problems)
    details = lost_details("nvml:0", 1.0, card.broken or "")
    made = device_document(found.devices[-1], DeviceSample(device="nvml:0", time_unix_s=1.0), details, found.problems)
    assert made["memory_used_bytes"] is None
    assert without_reason(made) == set()
    assert "not reported by the driver" not in made["details"]["missing"].values()
    assert {why for field, why in made["details"]["missing"].items() if field in made["sample"]} == {card.broken}
    nvml.close()


@pytest.mark.parametrize(
    ("remote", "kind", "words"),
    [
        ("FFFFFFFF:FF:FF.0", 2, "4.0 to an NVSwitch"),
        ("00000000:C4:00.0", 2, "4.0 to 00000000:C4:00.0 (NVSwitch)"),
        ("00000000:AF:00.0", 0, "4.0 to 00000000:AF:00.0"),
        ("garbage", 255, "4.0"),
    ],
)
def test_where_a_link_leads(remote: str, kind: int, words: str) -> None:
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=UUID, links=[FakeLink(remote, kind=kind)])))
    details = nvml.read_details(card, device="nvml:0", time_unix_s=1.0)
    found = join(CpuReader(CpuFacts("x", 1, 1 << 40, None)).info(), [card], [])
    lines = facts_text(facts(found.devices[-1], None, details)).splitlines()
    assert next(" ".join(line.split()[2:]) for line in lines if line.strip().startswith("link 0")) == words
    nvml.close()
