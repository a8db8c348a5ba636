"""What a host tells a window of the time before it came: readings in a compact form, marks, alerts. Plain frozen
records; times are the host's until `core.machines.window.untrusted` has shifted them."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import Numbered


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one device that is, or was, past its threshold."""

    device: str
    metric: str
    """Id of the quantity (`core.telemetry.alert_rules`)."""
    level: str
    """`alarm` or `notice`."""
    rank: int = 0
    """`alert_rules.rank` of its rule: the lower, the more serious."""
    since_unix_s: float
    """When the condition began; where `since_before`, the first moment at which it is known."""
    since_before: bool = False
    """Whether it began at an unknown time before `since_unix_s`."""
    value: float
    """The latest known; when the alert is over, the one that ended it."""
    worst: float
    threshold: float
    """At which it was raised, whatever the rule says now."""
    clear_at: float
    """At which it ends, by the present rule."""
    below: bool = False
    """Whether values at or below the threshold raise it."""
    detail: str = ""
    """Why, where the value does not say: the driver's reason."""
    ended_unix_s: float | None = None
    simulated: bool = False

    @property
    def raised(self) -> bool:
        """Whether it is not over."""
        return self.ended_unix_s is None


class PastMark(msgspec.Struct, frozen=True):
    """A line in the plots: when something was done."""

    time_unix_s: float
    text: str
    device: str | None = None
    kind: str = ""


class PastEvents(Numbered, tag="PastEvents"):
    """Marks of what was done, and alerts as they stand, the active ones and those that are over, the oldest first."""

    marks: tuple[PastMark, ...] = ()
    alerts: tuple[Alert, ...] = ()


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
