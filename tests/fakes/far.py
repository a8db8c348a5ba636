"""A machine at the far end of a link, in this process: a real host and session, reached over a link that can be slow,
stalled or cut."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.machines.window.link import CannotReach
from fakes.hosts import HostHere
from fakes.slow_link import SlowLink

PATIENCE_S = 20.0


class RouteHere:
    """Leads to `host`; `refuse` says why it does not."""

    def __init__(self, host: HostHere, **link: float) -> None:
        self.host, self._link = host, link
        self.links: list[SlowLink] = []
        self.refuse: Exception | None = None
        self.attempts = 0
        self.free = threading.Event()
        """Cleared: an attempt waits."""
        self.free.set()
        self.cancelled = False

    def open(self) -> SocketStream:
        self.attempts += 1
        self.free.wait(PATIENCE_S)
        if self.cancelled:
            self.cancelled = False
            raise CannotReach("it was given up", final=True)
        if self.refuse is not None:
            raise self.refuse
        link = SlowLink(**self._link)
        self.links.append(link)
        self.host.server.take(link.take_far())
        return SocketStream(link.take_near())

    def cancel(self) -> None:
        self.cancelled = True
        self.free.set()

    @property
    def link(self) -> SlowLink:
        """The latest."""
        return self.links[-1]

    def close(self) -> None:
        for link in self.links:
            link.close()


def both_until(host: HostHere, step: Callable[[], object], happened: Callable[[], object]) -> None:
    """Let the host and the window work until this is so."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        host.server.tick()
        step()
        host.server._bell.wait(0.002)
        host.server._bell.clear()
