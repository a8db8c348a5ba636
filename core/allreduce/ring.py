"""How long an all-reduce between virtual GPUs would take: a ring over the peer links of their profiles, as NCCL's own
tuning model computes it. No torch, no thread.

    seconds = base + 2·(n-m) · hop + 2·(m-1) · network hop + 2·(n-1)/n · bytes / rate

for n cards in m machines. Of NCCL's protocols, Simple and LL (low latency), the faster one counts, as NCCL chooses. The
rate is that of the slowest link of the ring, in the order of the devices; the share of it that a large transfer reaches
is that of `core.virtual.device.cost`. Where two cards have no link, the way is PCIe through the host. Of a ring over
several machines an engine knows its own cards: the others are taken to have as many, and the network is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import PeerLink
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY, NETWORK_GB_S
from devexplorer.core.virtual.device.machine import topology


class Protocol(NamedTuple):
    """Of NCCL, for a ring."""

    base: float
    """Seconds of every all-reduce."""
    nvlink_hop: float
    """Seconds of a step over NVLink."""
    pcie_hop: float
    network_hop: float
    share: float
    """Of the link's rate."""
    beside_network: float
    """By how much the other hops are slower when some go through the network."""
    plateau: float
    """Through the network and with `PLATEAU_BYTES` a card: by how much all of them are."""


PROTOCOLS = (
    Protocol(8.4e-6, 3.4e-6, 5.7e-6, 9.6e-6, 1.0, 1.0, 1.9),
    Protocol(3.6e-6, 0.47e-6, 1.0e-6, 2.7e-6, 0.25, 1.8, 1.0),
)
"""Simple and LL: `baseLat`, `hwLat` and the factors of an all-reduce in src/graph/tuning.cc of NVIDIA/nccl, commit
01afd20. LL128 is left out: it is not for every card."""
PLATEAU_BYTES = 65536 / 16


def ring_seconds(gpus: Sequence[tuple[str, Profile]], nbytes: int, world: int | None = None) -> float:
    """Of one all-reduce of so many bytes between these virtual GPUs; `world`: and those of other machines, so many
    together. There are two at least."""
    count = len(gpus) if world is None else world
    machines = math.ceil(count / len(gpus))
    links = {frozenset((link.a, link.b)): link for link in topology(gpus).links}
    following = [*gpus[1:], gpus[0]] if machines == 1 else gpus[1:]
    ring = [(links.get(frozenset((a[0], b[0]))), a[1], b[1]) for a, b in zip(gpus, following, strict=False)]
    rates = [_rate_gb_s(*step) for step in ring]
    if machines > 1:
        rates += [NETWORK_GB_S, gpus[0][1].host_gb_s, gpus[-1][1].host_gb_s]
    rate = min(rates) * 1e9 * LINK_EFFICIENCY
    nvlink = all(_fast(link) for link, _, _ in ring)
    moved = 2 * (count - 1) / count * nbytes
    return min(
        _hops(protocol, count, machines, nbytes, nvlink) + moved / (rate * protocol.share) for protocol in PROTOCOLS
    )


def _hops(protocol: Protocol, count: int, machines: int, nbytes: int, nvlink: bool) -> float:
    hop = protocol.nvlink_hop if nvlink else protocol.pcie_hop
    if machines == 1:
        return protocol.base + 2 * (count - 1) * hop
    within = 2 * (count - machines) * hop * protocol.beside_network
    seconds = protocol.base + within + 2 * (machines - 1) * protocol.network_hop
    return seconds * (protocol.plateau if nbytes >= count * PLATEAU_BYTES else 1.0)


def _rate_gb_s(link: PeerLink | None, a: Profile, b: Profile) -> float:
    return min(a.host_gb_s, b.host_gb_s) if link is None or link.gb_s is None else link.gb_s


def _fast(link: PeerLink | None) -> bool:
    """NVLink; AMD's xGMI is taken to be like it."""
    return link is not None and link.code is not None and link.code.startswith(("NV", "XGMI"))
