"""How cards are connected: levels, NVLinks direct and through switches, peer access, affinity; a lost card hides no
other pair."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.nvml import FakeCard, FakeLink, FakeNvml, opened

from devexplorer.core.devices.nvml import details as nvml_topology
from devexplorer.core.devices.nvml.details import members, numa_of_bus, ranges_text, same_bus
from devexplorer.core.records import Affinity, PeerLink, Topology

BUSES = [f"00000000:{number:02X}:00.0" for number in (0x1B, 0x3B, 0xAF, 0xD8)]
SWITCH = "00000000:05:00.0"
NVLINK = 2


def machine(*links: list[FakeLink]) -> FakeNvml:
    cards = [
        FakeCard(uuid=f"GPU-aaaaaaaa-0000-0000-0000-00000000000{number}", bus_id=bus, links=own)
        for number, (bus, own) in enumerate(zip(BUSES, links, strict=False))
    ]
    return FakeNvml(*cards)


def topology(fake: FakeNvml) -> Topology:
    nvml, cards = opened(fake)
    found = nvml.topology(cards, {card.key: f"cuda:{card.index}" for card in cards})
    assert nvml.problems == ()
    return found


def counts(found: Topology) -> dict[tuple[str, str], int | None]:
    return {(link.a[-1], link.b[-1]): link.nvlinks for link in found.links}


def test_every_pair_once_with_level_code_and_peer_access() -> None:
    fake = machine([], [], [])
    fake.topology = {frozenset((0, 1)): 10, frozenset((0, 2)): 30}
    fake.peers = {(0, 1, 1): 4, (0, 1, 3): 5, (0, 2, 0): 1, (0, 2, 1): 6}
    assert topology(fake).links == (
        PeerLink(
            a="cuda:0", b="cuda:1", level="PCIe switch", code="PIX", nvlinks=0,
            peer_read="ok", peer_write="switched off by a driver setting", peer_atomics="not supported",
        ),
        PeerLink(
            a="cuda:0", b="cuda:2", level="host bridge", code="PHB", nvlinks=0,
            peer_read="the chipset does not support it", peer_write=None, peer_atomics="ok",
        ),
        PeerLink(a="cuda:1", b="cuda:2", level="system", code="SYS", nvlinks=0, peer_read="ok", peer_write="ok",
                 peer_atomics="ok"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "level", "code"),
    [(0, "same board", "PSB"), (20, "several PCIe switches", "PXB"), (40, "NUMA node", "NODE"), (77, None, None)],
)
def test_levels_are_named_as_nvidia_smi_names_them(number: int, level: str | None, code: str | None) -> None:
    fake = machine([], [])
    fake.topology = {frozenset((0, 1)): number}
    (link,) = topology(fake).links
    assert (link.level, link.code) == (level, code)


def test_direct_links_are_counted_by_where_they_end() -> None:
    to_second = [FakeLink(BUSES[1].lower().removeprefix("0000")), FakeLink(BUSES[1]), FakeLink(BUSES[1], active=False)]
    found = topology(machine([*to_second, FakeLink(BUSES[2])], [FakeLink(BUSES[0])] * 2, [FakeLink(BUSES[0])]))
    assert counts(found) == {("0", "1"): 2, ("0", "2"): 1, ("1", "2"): 0}
    assert [link.code for link in found.links] == ["NV2", "NV1", "SYS"]
    assert found.links[0].level == "system", "what lies between them otherwise"


@pytest.mark.parametrize("told", [True, False])
def test_links_through_switches_join_the_cards_that_reach_them(told: bool) -> None:
    fake = machine([FakeLink(SWITCH, kind=2)] * 4, [FakeLink(SWITCH, kind=2)] * 3, [])
    if not told:
        fake.fail("nvmlDeviceGetNvLinkRemoteDeviceType", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    assert counts(topology(fake)) == {("0", "1"): 3, ("0", "2"): 0, ("1", "2"): 0}


def test_links_through_a_switch_that_does_not_join_two_cards_are_not_counted() -> None:
    fake = machine([FakeLink(SWITCH, kind=2)], [FakeLink(SWITCH, kind=2)])
    fake.peers = {(0, 1, NVLINK): 5}
    assert counts(topology(fake)) == {("0", "1"): 0}


def test_links_to_cards_that_are_not_visible_are_no_switch() -> None:
    fake = machine([FakeLink(BUSES[3])], [FakeLink(BUSES[3])])
    assert counts(topology(fake)) == {("0", "1"): 0}


def test_a_card_that_does_not_tell_its_links_leaves_the_number_open() -> None:
    fake = machine([FakeLink(BUSES[1])], [FakeLink(BUSES[0])], [])
    fake.fail("nvmlDeviceGetNvLinkState", FakeNvml.NVML_ERROR_UNKNOWN, card=0)
    found = topology(fake)
    assert counts(found) == {("0", "1"): None, ("0", "2"): None, ("1", "2"): 0}
    assert found.links[0].code == "SYS"


def test_a_lost_card_has_pairs_without_answers_and_hides_no_other() -> None:
    fake = machine([], [], [])
    nvml, cards = opened(fake)
    fake.lose(1)
    found = nvml.topology(cards, {})
    assert [(link.a, link.b, link.level) for link in found.links] == [
        ("nvml:0", "nvml:1", None),
        ("nvml:0", "nvml:2", "system"),
        ("nvml:1", "nvml:2", None),
    ]
    assert [near.cpus for near in found.affinities] == ["0-7", None, "0-7"]
    assert nvml.problems == (), "who reads the card says so"


def test_unsupported_questions_are_open_and_no_problems() -> None:
    fake = machine([], [])
    for name in ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetCpuAffinity"):
        fake.fail(name, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    found = topology(fake)
    assert found.links == (PeerLink(a="cuda:0", b="cuda:1", nvlinks=0),)
    assert found.affinities[0].cpus is None


def test_what_is_near_each_card() -> None:
    fake = machine([], [])
    fake.cards[0].cpus, fake.cards[1].cpus, fake.cards[1].numa = 0b1011, 0b11 << 63, 0
    assert topology(fake).affinities == (
        Affinity(device="cuda:0", cpus="0-1,3", numa_node=1),
        Affinity(device="cuda:1", cpus="63-64", numa_node=0),
    )


def test_mig_instances_are_left_out() -> None:
    part = FakeCard(uuid="MIG-cccccccc-0000-0000-0000-000000000003")
    fake = machine([], [])
    fake.cards[0].mig, fake.cards[0].instances = 1, [part]
    assert [(link.a, link.b) for link in topology(fake).links] == [("cuda:0", "cuda:1")]


def test_no_card_and_one_card_have_no_pairs() -> None:
    assert topology(FakeNvml()) == Topology(source="nvml")
    assert len(topology(machine([])).affinities) == 1


def test_sets_and_ranges() -> None:
    assert members([0, 0b101]) == [64, 66]
    assert ranges_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges_text([]) == ""
    assert same_bus("0000:3b:00.0", "00000000:3B:00.0")
    assert not same_bus("0000:3b:00.0", "00000001:3B:00.0")
    assert not same_bus(None, None)


def test_the_system_s_numa_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def at(path: str) -> Path:
        asked.append(path)
        return tmp_path / "numa_node"

    monkeypatch.setattr(nvml_topology, "Path", at)
    assert numa_of_bus("00000000:3B:00.0") is None
    (tmp_path / "numa_node").write_text("1\n")
    assert numa_of_bus("00000000:3B:00.0") == 1
    (tmp_path / "numa_node").write_text("-1\n")
    assert numa_of_bus("00000000:3B:00.0") is None
    assert set(asked) == {"/sys/bus/pci/devices/0000:3b:00.0/numa_node"}
    assert numa_of_bus(None) is None
