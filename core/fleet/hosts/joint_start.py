"""Lets what many engines measure begin at one moment. Main thread."""

from __future__ import annotations

import time
from collections.abc import Sequence

from devexplorer.core.base import Clock
from devexplorer.core.fleet.hosts.session_member import SessionMember

LEAD_S = 0.5
"""Until the moment: every engine has to hear of it before. One that hears of it later begins at once."""
PATIENCE_S = 30.0
"""For the last to be ready after the first was; those that are late begin as they come."""


class JointStart:
    """`beat` often."""

    def __init__(self, *, clock: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._since_s: float | None = None
        """When the first was ready."""

    def beat(self, members: Sequence[SessionMember]) -> None:
        """Let those that are ready begin, if nobody has to be waited for. Leave out who will not answer."""
        ready = [member for member in members if member.is_ready]
        if not ready:
            self._since_s = None
            return
        now_s = self._monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if any(member.is_preparing for member in members) and now_s - self._since_s < PATIENCE_S:
            return
        at_unix_s = self._clock() + LEAD_S
        for member in ready:
            member.begin(at_unix_s)
