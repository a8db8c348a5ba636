"""One device, and how devices are joined, as JSON objects in which every key is always there: null, and a reason, for what is not known.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample, Problem, Topology
from devexplorer.core.telemetry.fact_rows import Writer

NO_CPU_FIELD = "a CPU has none, or the system does not tell it"
_OURS = ("device", "time_unix_s", "more", "missing", "simulated")
"""What is no reading of a device."""


def device_document(
    info: DeviceInfo, sample: DeviceSample | None, details: DeviceDetails | None, problems: Sequence[Problem]
) -> dict[str, Any]:
    """All of `info`, and `"sample"` and `"details"` with every field of those records.

    `"details"."missing"` says for every field of both that is null why it is.
    """
    writer = Writer(info, sample, details, problems)
    made = {
        "sample": _every_key(DeviceSample, sample) | {"device": info.id, "simulated": info.simulated},
        "details": _every_key(DeviceDetails, details) | {"device": info.id, "simulated": info.simulated},
    }
    made["details"]["missing"] = {
        field: writer.reason(field) or NO_CPU_FIELD if info.kind == "cpu" else writer.why(field)
        for document in made.values()
        for field, value in document.items()
        if value is None and field not in _OURS
    }
    made["details"]["more"] = details.more if details is not None else {}
    return {**_plain(info), **made}


def topology_document(topologies: Sequence[Topology]) -> dict[str, Any]:
    """Every pair and every affinity of all sources."""
    return {
        "links": [_plain(link) for topology in topologies for link in topology.links],
        "affinities": [_plain(near) for topology in topologies for near in topology.affinities],
    }


def _every_key(kind: type[msgspec.Struct], record: msgspec.Struct | None) -> dict[str, Any]:
    return dict.fromkeys(kind.__struct_fields__) if record is None else _plain(record)


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    """The record and the records within it as dicts that leave nothing out; as a record it would leave out what is not known."""
    return {name: _value(value) for name, value in msgspec.structs.asdict(record).items()}


def _value(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _plain(value)
    return [_value(one) for one in value] if isinstance(value, tuple) else value
