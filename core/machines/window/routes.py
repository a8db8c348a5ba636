"""Ways to a host. Used by the thread of a link; `reports`, `answer` and `cancel` come from the main thread."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from devexplorer.core.base import Cancelled, without_cards
from devexplorer.core.machines.host.finding import VARIANT, reach, serve_command
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.putting import choose, prepare
from devexplorer.core.machines.ssh.records import ConnectionFailed, FailureKind, Report
from devexplorer.core.machines.window.link import CannotReach, LocalRoute, Route

MOST_REPORTS = 1000
HOST_PROXY = ("devexplorer.core.machines.host", "proxy")
PASSING: tuple[FailureKind, ...] = (
    "unknown host", "refused", "unreachable", "timed out", "closed", "login waits", "lost", "other",
)  # fmt: skip
"""What can be otherwise a moment later: a machine that starts, a network that comes back."""


class SshRoute(Route):
    """A host of another machine: logs in, makes a Python there ready, starts the proxy of the host. `open` as often as
    it takes; every time a process of the user's own ssh."""

    def __init__(
        self,
        host: str,
        python: str = "",
        make: Callable[[str, Callable[[Report], None]], Connection] = Connection,
        program: Sequence[str] = HOST_PROXY,
    ) -> None:
        """`python`: the interpreter there; empty: the one that is most likely meant. `program`: our module there, and
        its arguments, that joins its streams to a host."""
        self.host, self.python = host, python
        self._make, self._program = make, program
        self._reports: deque[Report] = deque(maxlen=MOST_REPORTS)
        self._connection: Connection | None = None

    # --- main thread

    def reports(self) -> list[Report]:
        """What was reported since the last call."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def answer(self, number: int, text: str | None) -> None:
        """Answer a prompt; None: the user does not."""
        if (connection := self._connection) is not None:
            connection.answer(number, text)

    def cancel(self) -> None:
        """An `open` that waits ends soon."""
        if (connection := self._connection) is not None:
            connection.cancel()

    # --- the thread of the link

    def open(self) -> SshChannel:
        """A channel to the host there, which is started where there is none. Raises `CannotReach`."""
        connection = self._make(self.host, self._reports.append)
        self._connection = connection
        self.failure = None
        try:
            connection.open()
            command = prepare(connection, self.python or choose(connection))
            marker = secrets.token_hex(16)
            output, into = connection.launch([*command, *self._program, "--marker", marker], marker)
        except ConnectionFailed as error:
            self.failure = error.failure
            connection.close()
            raise CannotReach(str(error), final=error.failure.kind not in PASSING) from error
        except Cancelled as error:
            connection.close()
            raise CannotReach("it was given up", final=True) from error
        except BaseException:
            connection.close()
            raise
        return SshChannel(connection, output, into)


class SshChannel:
    """The streams of the proxy there."""

    def __init__(self, connection: Connection, output: IO[bytes], into: IO[bytes]) -> None:
        self._connection, self._output, self._into = connection, output, into

    def read(self, size: int, /) -> bytes:
        """What there is."""
        return self._output.read(size)

    def write(self, data: bytes | memoryview, /) -> int:
        """As much of it as goes now."""
        return self._into.write(data)

    def close(self) -> None:
        """Any thread: ends ssh, and with it the reads and writes."""
        self._connection.close()


def virtual_route() -> LocalRoute:
    """To the virtual GPUs beside this machine's cards: a host from which the cards are hidden. torch cannot have both
    in one process (`core.virtual.backend`)."""
    return LocalRoute(lambda: reach({**without_cards(os.environ), VARIANT: "simulated"}, serve_command))
