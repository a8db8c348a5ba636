"""A link between two ends in this process, which can be throttled, delayed, stalled and cut."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque


class SlowLink:
    """`near` and `far` are the two ends, unbuffered; bytes go from one to the other through two threads."""

    def __init__(self, *, bytes_per_s: float = 0.0, delay_s: float = 0.0) -> None:
        """0: as quick as this machine."""
        self.bytes_per_s, self.delay_s = bytes_per_s, delay_s
        self.open = threading.Event()
        """Cleared: nothing goes through, and nobody is told."""
        self.open.set()
        self._near, near_relay = socket.socketpair()
        self._far, far_relay = socket.socketpair()
        self._sockets = (self._near, near_relay, self._far, far_relay)
        for end in self._sockets:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.near = self._near.makefile("rwb", buffering=0)
        self.far = self._far.makefile("rwb", buffering=0)
        self._threads = [
            threading.Thread(target=self._relay, args=pair, daemon=True)
            for pair in ((near_relay, far_relay), (far_relay, near_relay))
        ]
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        """Both ends see the end of the stream."""
        self.open.set()
        for end in self._sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def take_near(self) -> socket.socket:
        """The near end as a socket of its own, for who closes it."""
        return self._near.dup()

    def take_far(self) -> socket.socket:
        """The far end as a socket of its own, for who closes it."""
        return self._far.dup()

    def hang_up_far(self) -> None:
        """The far end says nothing more; what it said still arrives."""
        self._far.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Cut it, and wait for the threads."""
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for item in (self.near, self.far, *self._sockets):
            item.close()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        on_the_way: deque[tuple[float, bytes]] = deque()
        try:
            while True:
                wait_s = None if not on_the_way else max(on_the_way[0][0] - time.monotonic(), 0.0)
                # Not a time limit of the socket: the other thread sends through it, and would run into the limit.
                if select.select([source], [], [], wait_s)[0]:
                    on_the_way.append((time.monotonic() + self.delay_s, source.recv(1 << 14)))
                while on_the_way and on_the_way[0][0] <= time.monotonic():
                    self.open.wait()
                    data = on_the_way.popleft()[1]
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    if self.bytes_per_s:
                        time.sleep(len(data) / self.bytes_per_s)
                    target.sendall(data)
        except OSError:
            return
