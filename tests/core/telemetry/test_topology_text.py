"""How devices are connected: as text, and for virtual GPUs from their profiles."""

from __future__ import annotations

import pytest
from fakes.look_records import server_topology

from devexplorer.core.devices.profiles import Profile, load_profiles, parse_virtual
from devexplorer.core.records import Affinity, PeerLink, Topology
from devexplorer.core.telemetry.topology_text import Pairs, code_text, is_nvlink, legend, matrix, pair_text
from devexplorer.core.virtual.device.cost import COPY_SECONDS, LINK_EFFICIENCY, transfer_seconds
from devexplorer.core.virtual.device.machine import nvlinks, topology


def gpus(spec: str) -> list[tuple[str, Profile]]:
    return [(f"vgpu:{index}", profile) for index, profile in enumerate(parse_virtual(spec))]


def test_the_matrix_reads_like_that_of_nvidia_smi() -> None:
    found = Topology(
        source="nvml",
        links=(PeerLink(a="cuda:0", b="cuda:1", code="NV12", nvlinks=12), PeerLink(a="cuda:0", b="cuda:2", code="SYS")),
        affinities=(Affinity(device="cuda:0", cpus="0-15", numa_node=0),),
    )
    assert matrix([found], ["cuda:0", "cuda:1", "cuda:2"]).splitlines() == [
        "        cuda:0  cuda:1  cuda:2  CPU affinity  NUMA node",
        "cuda:0  X       NV12    SYS     0-15          0",
        "cuda:1  NV12    X       —       —             —",
        "cuda:2  SYS     —       X       —             —",
        "",
        "NV#  NVLink, with the number of links",
        "SYS  the link between NUMA nodes: from CPU to CPU",
    ]


def test_the_matrix_shows_the_devices_that_are_asked_for() -> None:
    text = matrix([server_topology(8), topology(gpus("2x T4"))], ["vgpu:1", "vgpu:0"])
    assert text.splitlines()[1].split()[:3] == ["vgpu:1", "X", "PHB~"]
    assert "NV#" not in text
    assert text.endswith("simulated")


def test_a_pair_is_found_in_either_order_and_described_in_words() -> None:
    link = PeerLink(
        a="cuda:0", b="cuda:1", level="host bridge", code="PHB", nvlinks=0, peer_read="ok", peer_write="switched off"
    )
    pairs = Pairs([Topology(source="nvml", links=(link,))])
    assert pairs.link("cuda:1", "cuda:0") is link
    assert pair_text("cuda:1", "cuda:0", link).splitlines() == [
        "cuda:1 and cuda:0: host bridge (PHB)",
        "NVLinks: none",
        "peer read: ok",
        "peer write: switched off",
        "peer atomics: not known",
    ]
    assert pair_text("cuda:0", "cuda:2", None) == "cuda:0 and cuda:2: connection unknown"
    assert code_text(None) == "—"
    assert not is_nvlink(link)


def test_the_legend_has_the_codes_that_occur_and_no_others() -> None:
    assert [code for code, _ in legend([server_topology(4, nvlinks=0)])] == ["PIX", "SYS"]
    strange = Topology(source="nvml", links=(PeerLink(a="a", b="b", code="QPI"),))
    assert legend([strange]) == [("QPI", "not in nvidia-smi's list")]


def test_virtual_gpus_are_joined_as_their_profiles_say() -> None:
    found = topology(gpus("2x H200, Tesla T4"))
    assert found.source == "virtual"
    first, second, third = found.links
    assert (first.a, first.b, first.code, first.nvlinks, first.gb_s) == ("vgpu:0", "vgpu:1", "NV18", 18, 450.0)
    assert (second.code, second.nvlinks, second.gb_s, second.level) == ("PHB", 0, 15.75, "host bridge")
    assert third.b == "vgpu:2"
    assert all(link.simulated and link.peer_read == "ok" and link.peer_atomics is None for link in found.links)
    assert topology(gpus("T4")).links == ()


def test_what_the_topology_says_is_what_a_copy_takes() -> None:
    found = gpus("H200, NVIDIA A10, A100-SXM4-80GB, MI300X")
    profiles = dict(found)
    for link in topology(found).links:
        assert link.gb_s is not None
        seconds = transfer_seconds(profiles[link.a], profiles[link.b], 10**9)
        assert seconds - COPY_SECONDS == pytest.approx(1 / (link.gb_s * LINK_EFFICIENCY))


def test_the_number_of_nvlinks_is_whole_or_not_known() -> None:
    counts = {name: nvlinks(profile) for name, profile in load_profiles().items()}
    assert counts["Tesla V100-SXM2-32GB"] == 6
    assert counts["GeForce RTX 3090"] == 4
    assert counts["NVIDIA B200"] == 18
    assert counts["Tesla T4"] is None
    assert counts["NVIDIA GH200 480GB"] is None
