"""One device, and how devices are joined, as JSON objects and as text. Pure functions, any thread.

In the objects every key is always there: null, and a reason, for what is not known. In the text each reason is
written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from devexplorer.core.base import MISSING
from devexplorer.core.base.plain import plain
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem, Topology
from devexplorer.core.telemetry.fact_rows import Group, Writer, label_width

_OURS = ("device", "time_unix_s", "more", "missing", "simulated", "reason", "parent", "threads")
"""Fields that are not readings, or do not apply to most devices."""
_WHERE_IT_DIFFERS = {"mig_pending": "mig", "ecc_pending": "ecc"}
"""Fields that are null because nothing is to change, as long as the other one is known."""
NO_CHANGE = "no change is pending"


def device_document(
    info: DeviceInfo, sample: DeviceSample | None, details: DeviceDetails | None, problems: Sequence[Problem]
) -> dict[str, Any]:
    """All of `info`, and `"sample"` and `"details"` with every field of those records.

    `"details"."missing"` says for every field that is null, of `info` too, why it is.
    """
    writer = Writer(info, sample, details, problems)
    made: dict[str, dict[str, Any]] = {
        "sample": (plain(sample) or dict.fromkeys(DeviceSample.__struct_fields__))
        | {"device": info.id, "simulated": info.simulated},
        "details": (plain(details) or dict.fromkeys(DeviceDetails.__struct_fields__))
        | {"device": info.id, "simulated": info.simulated},
    }
    known = {name: value for document in made.values() for name, value in document.items() if value is not None}
    top = {
        name: known.get(name) if value is None and name not in _OURS else value for name, value in plain(info).items()
    }

    def why(field: str) -> str:
        if field in _WHERE_IT_DIFFERS and _WHERE_IT_DIFFERS[field] in known:
            return NO_CHANGE
        return writer.why_null(field)

    made["details"]["missing"] = {
        field: why(field)
        for document in (*made.values(), top)
        for field, value in document.items()
        if value is None and field not in _OURS and field not in known
    }
    links = details.nvlinks if details is not None else None
    for field in ("tx_bytes_s", "rx_bytes_s"):
        if any(link.active and getattr(link, field) is None for link in links or ()):
            made["details"]["missing"][f"nvlinks.{field}"] = (
                "a link's rate needs two readings of its counter, half a minute apart"
            )
    made["details"]["more"] = details.more if details is not None else {}
    return {**top, **made}


def topology_document(topologies: Sequence[Topology]) -> dict[str, Any]:
    """Every pair and every affinity of all sources."""
    return {
        "links": [plain(link) for topology in topologies for link in topology.links],
        "affinities": [plain(near) for topology in topologies for near in topology.affinities],
    }


def facts_in_short(groups: Sequence[Group]) -> str:
    """What is known, a line each; then what is not, by its reason, so that a reason that holds for fifty figures is
    read once."""
    width = label_width(groups)
    lines: list[str] = []
    unknown: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        known = [row for row in group.rows if row.value != MISSING]
        if known:
            lines.append(group.title)
        lines += [row.line(width) for row in known]
        for row in group.rows:
            if row.value == MISSING:
                unknown.setdefault(row.why, {}).setdefault(group.title, []).append(row.label)
    for why, titles in unknown.items():
        lines.append(f"Not known{': ' * bool(why)}{why}")
        lines += [f"  {title}: {'; '.join(labels)}" for title, labels in titles.items()]
    return "\n".join(lines)
