"""How long an all-reduce between virtual GPUs would take: a ring over the peer links of their profiles, as NCCL's own
tuning model computes it. No torch, no thread.

    seconds = base + 2·(n-1) · hop + 2·(n-1)/n · bytes / rate

Of NCCL's protocols, Simple and LL (low latency), the faster one counts, as NCCL chooses. The rate is that of the
slowest link of the ring, in the order of the devices; the share of it that a large transfer reaches is that of
`core.virtual.device.cost`. Where two cards have no link, the way is PCIe through the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import PeerLink
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY
from devexplorer.core.virtual.device.topology import topology


class Protocol(NamedTuple):
    """Of NCCL, for a ring."""

    base: float
    """Seconds of every all-reduce."""
    nvlink_hop: float
    """Seconds of a step over NVLink."""
    pcie_hop: float
    share: float
    """Of the link's rate."""


PROTOCOLS = (Protocol(8.4e-6, 3.4e-6, 5.7e-6, 1.0), Protocol(3.6e-6, 0.47e-6, 1.0e-6, 0.25))
"""Simple and LL: `baseLat`, `hwLat` and the share of an all-reduce in src/graph/tuning.cc of NVIDIA/nccl, commit
01afd20. LL128 is left out: it is not for every card."""


def ring_seconds(gpus: Sequence[tuple[str, Profile]], nbytes: int) -> float:
    """Of one all-reduce of so many bytes between these virtual GPUs, two of them at least."""
    links = {frozenset((link.a, link.b)): link for link in topology(gpus).links}
    pairs = zip(gpus, [*gpus[1:], gpus[0]], strict=True)
    ring = [(links.get(frozenset((a[0], b[0]))), a[1], b[1]) for a, b in pairs]
    rate = min(_rate_gb_s(*step) for step in ring) * 1e9 * LINK_EFFICIENCY
    nvlink, count = all(_fast(link) for link, _, _ in ring), len(gpus)
    moved = 2 * (count - 1) / count * nbytes
    return min(
        protocol.base
        + 2 * (count - 1) * (protocol.nvlink_hop if nvlink else protocol.pcie_hop)
        + moved / (rate * protocol.share)
        for protocol in PROTOCOLS
    )


def _rate_gb_s(link: PeerLink | None, a: Profile, b: Profile) -> float:
    return min(a.host_gb_s, b.host_gb_s) if link is None or link.gb_s is None else link.gb_s


def _fast(link: PeerLink | None) -> bool:
    """NVLink; AMD's xGMI is taken to be like it."""
    return link is not None and link.code is not None and link.code.startswith(("NV", "XGMI"))
