"""Topology of virtual GPUs: the links of their profiles, which `core.virtual.device.cost` uses for copies. Any thread;
no torch.

Assumed: all of them hang below one host bridge, and each pair has the whole link of the slower one for itself, as
behind a switch. A pair of different kinds of links (NVLink and PCIe, NVLink and xGMI) goes over PCIe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import PeerLink, Topology

NVLINK_GB_S = {1: (20.0,), 2: (25.0,), 3: (25.0, 14.0625), 4: (25.0,), 5: (50.0,)}
"""One direction of one link by generation, decimal GB/s: NVIDIA's whitepapers of Pascal (20), Volta, Ampere and Hopper
(25) and Blackwell (50); the GA102 whitepaper gives its four narrower links 14.0625."""

_GENERATION = re.compile(r"NVLink (\d+)")


def topology(gpus: Sequence[tuple[str, Profile]]) -> Topology:
    """Every pair of these virtual GPUs (id and profile), in their order. Atomics between cards are not modelled."""
    return Topology(source="virtual", links=tuple(_pair(*a, *b) for a, b in combinations(gpus, 2)))


def _pair(a: str, first: Profile, b: str, second: Profile) -> PeerLink:
    slower = min(first, second, key=lambda profile: profile.link_gb_s)
    same = _kind(first) == _kind(second)
    kind = _kind(first) if same else "PCIe"
    count = nvlinks(slower) if kind == "NVLink" else 0
    code = {"NVLink": f"NV{count or ''}", "xGMI": "XGMI"}.get(kind, "PHB")
    return PeerLink(
        a=a,
        b=b,
        level=slower.link if same else "host bridge",
        code=code,
        nvlinks=count,
        peer_read="ok",
        peer_write="ok",
        gb_s=slower.link_gb_s,
        simulated=True,
    )


def _kind(profile: Profile) -> str:
    return next((kind for kind in ("NVLink", "xGMI") if profile.link.startswith(kind)), "PCIe")


def nvlinks(profile: Profile) -> int | None:
    """NVLinks that make up the rate of a profile's peer link; None where the rate is no whole number of them.

    >>> from devexplorer.core.devices.profiles import load_profiles
    >>> nvlinks(load_profiles()["NVIDIA A100-SXM4-40GB"])
    12
    """
    generation = _GENERATION.match(profile.link)
    for each in NVLINK_GB_S.get(int(generation.group(1)), ()) if generation else ():
        count = profile.link_gb_s / each
        if count.is_integer():
            return int(count)
    return None
