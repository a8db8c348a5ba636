"""An alert, and what a window is told of those before it came. Plain frozen records; any thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import BaseEvent


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one device that is, or was, past its threshold."""

    device: str
    metric: str
    """Id of the quantity (`core.alerts.rules`)."""
    level: str
    """`alarm` or `notice`."""
    rank: int = 0
    """`rules.rank` of its rule: the lower, the more serious."""
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


class PastAlerts(BaseEvent, tag="PastAlerts"):
    """The alerts of a host as they stand: those that are over, the oldest first, and the active ones."""

    alerts: tuple[Alert, ...] = ()
