"""The NVLinks of a card: state, version, where they lead, and their traffic since the reading before. Sampler
threads."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from devexplorer.core.devices.nvml.fields import field_values, nvlink_fields, rate, text
from devexplorer.core.devices.nvml.query import CardState, Query, QueryRunner
from devexplorer.core.records import NvLink

_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvmlNvlinkVersion_t"""

_KINDS = {0: "card", 1: "NPU", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t"""

_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_NOWHERE = re.compile(r"[0-9a-f]{4,8}:ff:ff\.|f+:", re.IGNORECASE)
"""What drivers write where the far end is a switch that this system does not see."""

_MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of the newest nvml.h; a card says itself where its links end."""


def links(nvml: Any, handle: Any) -> tuple[NvLink, ...]:
    """Every link; none where the card has none. What one link does not tell is None."""
    result = []
    for link in range(_MOST_LINKS):
        try:
            active = bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except Exception as error:
            if getattr(error, "value", None) in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                break
            raise
        version = _or_none(nvml, "nvmlDeviceGetNvLinkVersion", handle, link)
        remote = _or_none(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if active else None
        kind = _or_none(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) if active else None
        bus_id = _text(remote)
        result.append(
            NvLink(
                link=link,
                active=active,
                version=_VERSIONS.get(version or 0),
                remote_bus_id=bus_id if _BUS_ID.fullmatch(bus_id) and not _NOWHERE.match(bus_id) else None,
                remote_kind=_KINDS.get(kind if kind is not None else -1),
            )
        )
    return tuple(result)


def _text(remote: Any) -> str:
    """The address of a far end; bytes that are no text are none."""
    try:
        return text(remote.busId) if remote is not None else ""
    except UnicodeDecodeError:
        return ""


def _or_none(nvml: Any, query: str, handle: Any, link: int) -> Any:
    """One detail of a link: links differ, and one that does not tell hides no other. A lost card is lost."""
    try:
        return getattr(nvml, query)(handle, link)
    except Exception as error:
        if getattr(error, "value", None) in (
            nvml.NVML_ERROR_GPU_IS_LOST,
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        ):
            raise
        return None


LINKS = Query("nvlinks", links, many=True)


def with_traffic(runner: QueryRunner, state: CardState, result: tuple[NvLink, ...], now: float) -> tuple[NvLink, ...]:
    """The links with bytes per second since the last call, from one question about all active ones."""
    active = [link.link for link in result if link.active]
    if not active:
        return result
    wanted = [field for link in active for field in nvlink_fields(link)]
    values = runner.ask(state, Query("nvlink_traffic", lambda n, h: field_values(n, h, wanted))) or {}

    def traffic(link: int, index: int, name: str) -> float | None:
        value = values.get(nvlink_fields(link)[index])
        if value is None or value.code != 0 or value.number is None:
            return None
        return rate(state, name, link, value.number, now)

    return tuple(
        replace(link, tx_bytes_s=traffic(link.link, 0, "tx"), rx_bytes_s=traffic(link.link, 1, "rx"))
        if link.active
        else link
        for link in result
    )
