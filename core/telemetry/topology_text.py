"""How devices are connected, as text and as a table like `nvidia-smi topo -m`. Pure functions, any thread.

The codes are nvidia-smi's, `XGMI` is rocm-smi's. A virtual GPU's links are marked with `~`, as they are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from devexplorer.core.base import MISSING
from devexplorer.core.records import Affinity, PeerLink, Topology

SELF = "X"
SIMULATED = "~"

MEANINGS = {
    "NV#": "NVLink, with the number of links",
    "XGMI": "AMD's link between cards",
    "PSB": "nothing but their common board",
    "PIX": "one PCIe switch between them",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "a PCIe host bridge: through one CPU",
    "NODE": "PCIe host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes: from CPU to CPU",
}
"""Code -> what the way between two devices crosses, from the fastest to the slowest."""


class Pairs:
    """Every pair of devices of all sources, to be looked up in either order."""

    def __init__(self, topologies: Iterable[Topology]) -> None:
        everything = list(topologies)
        self.links: dict[frozenset[str], PeerLink] = {
            frozenset((link.a, link.b)): link for topology in everything for link in topology.links
        }
        self.affinities: dict[str, Affinity] = {
            near.device: near for topology in everything for near in topology.affinities
        }

    def link(self, a: str, b: str) -> PeerLink | None:
        """How two devices are joined; None: unknown."""
        return self.links.get(frozenset((a, b)))

    def numa_node(self, device: str) -> int | None:
        """The NUMA node near a device."""
        near = self.affinities.get(device)
        return None if near is None else near.numa_node

    def cpus(self, device: str) -> str | None:
        """The CPUs near a device, as `0-15,32-47`."""
        near = self.affinities.get(device)
        return None if near is None else near.cpus


def is_nvlink(link: PeerLink) -> bool:
    """Whether the way between the two is a link of its own, and not PCIe."""
    return bool(link.nvlinks) or meaning_key(link.code) in ("NV#", "XGMI")


def meaning_key(code: str | None) -> str | None:
    """The key of `MEANINGS` for a code: `NV12` -> `NV#`."""
    if code is None:
        return None
    return "NV#" if code.startswith("NV") else code


def code_text(link: PeerLink | None) -> str:
    """The text in the cell of a pair."""
    if link is None or link.code is None:
        return MISSING
    return f"{link.code}{SIMULATED}" if link.simulated else link.code


def pair_text(a: str, b: str, link: PeerLink | None) -> str:
    """Everything about a pair, a line each: `a` and `b` in the order of the reader."""
    if link is None:
        return f"{a} and {b}: connection unknown"
    own = is_nvlink(link) and not link.simulated
    meaning = MEANINGS.get(meaning_key(link.code) or "", "connection unknown")
    way = meaning.partition(",")[0] if own else link.level or meaning
    lines = [
        f"{a} and {b}: {way}" + (f" ({link.code})" if link.code else "") + (", simulated" if link.simulated else "")
    ]
    if own and link.level is not None:
        lines.append(f"PCIe between them: {link.level}")
    if link.nvlinks is not None:
        lines.append(f"NVLinks: {link.nvlinks or 'none'}")
    if link.gb_s is not None:
        lines.append(f"{link.gb_s:g} GB/s in one direction, by the datasheet")
    for kind, state in (("read", link.peer_read), ("write", link.peer_write), ("atomics", link.peer_atomics)):
        unknown = "not modelled" if link.simulated else "not known"
        lines.append(f"peer {kind}: {state or unknown}")
    return "\n".join(lines)


def legend(topologies: Iterable[Topology]) -> list[tuple[str, str]]:
    """Code and meaning of those codes that occur, fastest first; last what marks a simulated link."""
    links = [link for topology in topologies for link in topology.links]
    used = {meaning_key(link.code) for link in links}
    result = [(code, meaning) for code, meaning in MEANINGS.items() if code in used]
    result += sorted((code, "not in nvidia-smi's list") for code in used - set(MEANINGS) if code is not None)
    return [*result, (SIMULATED, "simulated")] if any(link.simulated for link in links) else result


def matrix(topologies: Sequence[Topology], devices: Sequence[str]) -> str:
    """The table of all pairs of `devices` with CPU and NUMA affinity, and the meaning of its codes below."""
    pairs = Pairs(topologies)
    rows = [["", *devices, "CPU affinity", "NUMA node"]]
    for a in devices:
        node = pairs.numa_node(a)
        near = [pairs.cpus(a) or MISSING, MISSING if node is None else str(node)]
        rows.append([a, *(SELF if a == b else code_text(pairs.link(a, b)) for b in devices), *near])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    meanings = legend([_among(topology, devices) for topology in topologies])
    longest = max((len(code) for code, _ in meanings), default=0)
    return "\n".join(
        [*lines, *([""] if meanings else []), *(f"{code:<{longest}}  {meaning}" for code, meaning in meanings)]
    )


def _among(topology: Topology, devices: Sequence[str]) -> Topology:
    """Only the links between these devices."""
    known = set(devices)
    return Topology(source=topology.source, links=tuple(link for link in topology.links if {link.a, link.b} <= known))
