"""The state of a link in words. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.base import MISSING, bytes_text, count_text, elapsed_text, number_text

if TYPE_CHECKING:
    from devexplorer.core.machines.window.link import Link
    from devexplorer.core.session import State

STALE_S = 3.0
"""Readings that are older than this are said to be so."""
STATES: dict[str, str] = {
    "connecting": "○ Connecting…",
    "connected": "● Connected",
    "reconnecting": "△ Reconnecting",
    "lost": "✕ Not connected",
}


def state_words(link: Link | None) -> str:
    """A sign and a word."""
    if link is None:
        return "● Here"
    return "◐ Watching" if link.state == "connected" and link.watching else STATES[link.state]


def alarm_words(state: State) -> str:
    """How many alarms fire on a machine; empty: none."""
    count = sum(trouble.is_alert for trouble in state.troubles())
    return f"✕ {count_text(count, 'alert')}" if count else ""


def state_colour(link: Link | None) -> str:
    """Of these words."""
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
    retry = "" if link.retry_in_s is None else f", next attempt in {link.retry_in_s:.0f} s"
    return f"{words}{age}{retry}"


def rates_words(link: Link) -> str:
    """More about it."""
    rates = f"{bytes_text(link.received_bytes_s)}/s from there, {bytes_text(link.sent_bytes_s)}/s to there"
    return f"{rates}; {count_text(link.dropped, 'reading')} left out" if link.dropped else rates


def old_text(seconds: float) -> str:
    """`12 s`, `3:05`."""
    return f"{seconds:.0f} s" if seconds < 60 else elapsed_text(seconds)
