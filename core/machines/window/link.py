"""How the way to a machine stands, as the window shows it, and what such a way has to be. Records and protocols; no
thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from devexplorer.core.base import DevExplorerError
from devexplorer.core.records.base import Record

if TYPE_CHECKING:
    from devexplorer.core.machines.host.wire import ByteStream

LinkState = Literal["connecting", "connected", "reconnecting", "lost"]
"""`lost`: no further attempt is made by itself."""


class Link(Record):
    """The link to one machine at this moment."""

    state: LinkState
    since_unix_s: float
    """When this began."""
    reason: str = ""
    """Why it is not connected, one line."""
    retry_in_s: float | None = None
    """Until the next attempt; None: none is due, or one is being made."""
    holder: str | None = None
    """Who controls the machine in place of this window, which only watches then; empty: somebody. None: this window
    does."""
    holder_away: bool = False
    """Whether the window that controls it is not connected to it now."""
    latency_s: float | None = None
    """There and back; None: not measured yet."""
    received_bytes_s: float = 0.0
    sent_bytes_s: float = 0.0
    """As they cross it, compressed; over the last seconds."""
    dropped: int = 0
    """Readings that were left out because the link, or this window, was too slow."""
    reading_age_s: float | None = None
    """Since the last reading; None: there was none yet."""
    machine: str = ""
    """What that machine calls itself."""
    devexplorer: str = ""
    """The version there."""
    python: str = ""
    """The interpreter of the engine there."""

    @property
    def live(self) -> bool:
        """Whether what is shown is what that machine is like now."""
        return self.state == "connected"

    @property
    def watching(self) -> bool:
        """Whether this window only watches."""
        return self.holder is not None

    def watching_words(self, name: str) -> str:
        """Why this window only watches the machine of this name, one sentence."""
        who = self.holder or "Another window"
        away = " but is not connected" if self.holder_away else ""
        return f"{who} controls {name}{away}; this window watches."


def link_of(machine: object) -> Link | None:
    """The way to a machine of the window; None: it is this one."""
    return getattr(machine, "link", None)


class CannotReach(DevExplorerError):
    """There is no way to the machine: one line. `final`: it would be the same again, so that only the user tries."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Route(Protocol):
    """How a machine is reached, as often as it takes."""

    def open(self, *, unasked: bool) -> ByteStream:
        """A new stream, behind the marker: the next thing either side says is its `Hello`. Waits for it, on a thread of
        its own. `unasked`: by itself, after a break. Raises `CannotReach`, or `OSError`."""
        ...

    def cancel(self) -> None:
        """Any thread: an `open` that waits ends soon, with `CannotReach`."""
        ...
