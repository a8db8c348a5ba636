"""What a host tells a window of the time before it came: readings in a compact form, and marks. Plain frozen
records; times are the host's until `core.machines.window.untrusted` has shifted them."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import Numbered


class PastMark(msgspec.Struct, frozen=True):
    """A line in the plots: when something was done."""

    time_unix_s: float
    text: str
    device: str | None = None
    kind: str = ""


class PastEvents(Numbered, tag="PastEvents"):
    """Marks of what was done, the oldest first."""

    marks: tuple[PastMark, ...] = ()


class PastReadings(Numbered, tag="PastReadings"):
    """What was read of a device, as means of steps that are longer the longer ago they were."""

    device: str
    start_unix_s: float
    after_s: bytes
    """Seconds of each step after the start, ascending: little-endian float32."""
    metrics: tuple[str, ...]
    values: bytes
    """A float32 for each metric and step, NaN where nothing is known, metric by metric. Of a metric first the lowest
    bytes of all, then the next: neighbours are alike, and zlib sees it."""
