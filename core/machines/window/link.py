"""How the way to a machine stands, as the window shows it, in words; and what such a way has to be. Records and pure
functions; no thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from devexplorer.core.base import MISSING, DevExplorerError, bytes_text, count_text, elapsed_text, number_text
from devexplorer.core.records.base import Record

if TYPE_CHECKING:
    import socket

    from devexplorer.core.machines.host.wire import ByteStream, SocketStream
    from devexplorer.core.machines.ssh.records import ConnectionFailure, Report
    from devexplorer.core.session import State


LinkState = Literal["connecting", "connected", "reconnecting", "lost"]
"""`lost`: no further attempt is made by itself."""


class Link(Record):
    """The link to one machine at this moment."""

    state: LinkState
    since_unix_s: float
    """When this began."""
    reason: str = ""
    """Why it is not connected, one line."""
    ended: bool = False
    """What was shown is over, so that there is nothing to connect to again."""
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

    def why_not_again(self, name: str) -> str | None:
        """Why the machine of this name is not to be connected again; None: it can be."""
        if self.live:
            return f"{name} is connected."
        return self.reason if self.ended else None

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


class Route:
    """How a machine is reached, as often as it takes."""

    host = ""
    """As ssh knows it, by which it is remembered; empty: it is none of ssh's."""
    failure: ConnectionFailure | None = None
    """Why the last attempt failed, as far as ssh said so."""

    def open(self) -> ByteStream:
        """A new stream, behind the marker: the next thing either side says is its `Hello`. Waits for it, on a thread of
        its own. Raises `CannotReach`, or `OSError`."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Any thread: an `open` that waits ends soon, with `CannotReach`, or by its own limit."""

    def reports(self) -> Sequence[Report]:
        """What was reported since the last call."""
        return ()

    def answer(self, number: int, text: str | None) -> None:
        """Answer a prompt; None: the user does not."""


class LocalRoute(Route):
    """To a host of this user and machine, which is started where there is none."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        """`connect` raises `HostError`."""
        self._connect = connect

    def open(self) -> SocketStream:
        """A channel to it."""
        from devexplorer.core.machines.host.finding import HostError  # both with the first of them
        from devexplorer.core.machines.host.wire import SocketStream

        try:
            return SocketStream(self._connect())
        except HostError as error:
            raise CannotReach(str(error), final=True) from error


CANCEL, REMOVE, TAKE_OVER = "Cancel", "Remove", "Take over"
"""Buttons of `bar_words`; the others connect again."""
STALE_S = 3.0
"""Readings that are older than this are said to be so."""
STATES: dict[str, str] = {
    "connecting": "○ Connecting…",
    "connected": "● Connected",
    "reconnecting": "△ Reconnecting",
    "lost": "✕ Not connected",
}
ENDED = "■ Ended"


def state_words(link: Link | None) -> str:
    """A sign and a word."""
    if link is None:
        return "● Here"
    if link.ended:
        return ENDED
    return "◐ Watching" if link.state == "connected" and link.watching else STATES[link.state]


def alarm_words(state: State) -> str:
    """How many alarms fire on a machine; empty: none."""
    count = sum(trouble.is_alert for trouble in state.troubles())
    return f"✕ {count_text(count, 'alert')}" if count else ""


def state_colour(link: Link | None) -> str:
    """Of these words."""
    if link is not None and link.ended:
        return ""
    return {"reconnecting": "warning", "lost": "error"}.get("" if link is None else link.state, "")


def why(link: Link | None) -> str:
    """What there is to say about the state, as a sentence."""
    if link is None:
        return ""
    if link.state == "connected":
        return f"{link.holder or 'Another window'} controls it." if link.watching else ""
    retry = "" if link.retry_in_s is None else f" Next attempt in {max(link.retry_in_s, 0):.0f} s."
    return f"{link.reason[:1].upper()}{link.reason[1:].rstrip('.')}.{retry}" if link.reason else retry.strip()


def age_text(seconds: float | None) -> str:
    """`now`, `12 s`, `3:05`."""
    if seconds is None:
        return MISSING
    return "now" if seconds < STALE_S else old_text(seconds)


def link_words(link: Link) -> str:
    """The link of the machine shown, for the line at the bottom."""
    if link.state == "connected":
        late = link.reading_age_s is not None and link.reading_age_s >= STALE_S
        latency = "" if link.latency_s is None else f"{number_text(link.latency_s * 1000, 2)} ms"
        rate = f"{(link.received_bytes_s + link.sent_bytes_s) / 1000:.0f} kB/s"
        dropped = f"{link.dropped:,} readings dropped" if link.dropped else ""
        age = f"readings are {age_text(link.reading_age_s)} old" if late else ""
        watching = "watching" if link.watching else "connected"
        return ", ".join(filter(None, (watching, latency, rate, dropped, age)))
    age = "" if link.reading_age_s is None else f", readings are {old_text(link.reading_age_s)} old"
    words = {"connecting": "connecting", "reconnecting": "reconnecting", "lost": "not connected"}[link.state]
    if link.ended:
        words = "ended"
    retry = "" if link.retry_in_s is None else f", next attempt in {link.retry_in_s:.0f} s"
    return f"{words}{age}{retry}"


def moment_words(link: Link, shown_unix_s: float) -> str:
    """Of what moment the readings shown are."""
    if link.reading_age_s is None:
        return ""
    moment = datetime.fromtimestamp(shown_unix_s).time().isoformat("seconds")
    return f"Showing readings from {moment}, {old_text(link.reading_age_s)} ago."


def bar_words(name: str, link: Link, shown_unix_s: float, *, late: bool) -> tuple[str, str]:
    """What is said above the panels about the machine of this name, and what its button says; empty: all is well."""
    reason = f": {link.reason.rstrip('.')}" if link.reason else ""
    age = moment_words(link, shown_unix_s)
    match link.state:
        case "connecting":
            return f"Connecting to {name}…", CANCEL
        case "reconnecting":
            wait = f" The next attempt is in {link.retry_in_s:.0f} s." if link.retry_in_s else ""
            return f"Reconnecting to {name}{reason}.{wait} {age}".rstrip(), "Try now"
        case "lost" if link.ended:
            return f"{link.reason} What was seen of it stays here. {age}".rstrip(), REMOVE
        case "lost":
            return f"Not connected to {name}{reason}. {age}".rstrip(), "Connect"
        case "connected" if late:
            return f"Nothing comes from {name}. {age}", "Connect again"
    return (link.watching_words(name), TAKE_OVER) if link.holder is not None else ("", "")


def rates_words(link: Link) -> str:
    """More about it."""
    rates = f"{bytes_text(link.received_bytes_s)}/s from there, {bytes_text(link.sent_bytes_s)}/s to there"
    return f"{rates}; {count_text(link.dropped, 'reading')} left out" if link.dropped else rates


def old_text(seconds: float) -> str:
    """`12 s`, `3:05`."""
    return f"{seconds:.0f} s" if seconds < 60 else elapsed_text(seconds)
