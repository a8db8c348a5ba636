"""The way to the host of a node: bytes through the calls of its agent. Used by the threads of a link, in the process
that is attached to the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

import devexplorer
from devexplorer.core.base import first_line
from devexplorer.core.fleet.cluster.nodes import LEFT
from devexplorer.core.machines.window.link import CannotReach

OPEN_S = 60.0
"""For an agent to start: Python, its modules, and a place among other jobs."""
WRITE_S = 10.0
IMPORT_FAILED = "failed to import"
"""What Ray says of an actor whose class cannot be imported on its node."""


class NodeChannel:
    """One connection to a host."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._number: int = ray.get(agent.open.remote(), timeout=OPEN_S)
        self._stream = agent.read.options(num_returns="streaming").remote(self._number)
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """What there is."""
        if not self._rest:
            try:
                self._rest = ray.get(next(self._stream))
            except StopIteration:
                return b""
            except RayError as error:
                raise OSError(f"the agent of the node does not answer ({_why(error)})") from None
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def write(self, data: bytes | memoryview, /) -> int:
        """All of it."""
        try:
            ray.get(self._agent.write.remote(self._number, bytes(data)), timeout=WRITE_S)
        except RayError as error:
            raise OSError(f"the agent of the node does not answer ({_why(error)})") from None
        return len(data)

    def close(self) -> None:
        """Any thread: the stream ends."""
        try:
            self._agent.hang_up.remote(self._number)
        except RayError:
            pass  # it is gone with its node


class NodeRoute:
    """To one node. `agent` makes its actor, or returns the one that is there; `bring` makes one for
    which our code is put there first; `is_alive` says whether the node still
    belongs to the cluster."""

    def __init__(self, agent: Callable[[], Any], bring: Callable[[], Any], is_alive: Callable[[], bool]) -> None:
        self._agent, self._bring, self._is_alive = agent, bring, is_alive

    def open(self, *, unasked: bool) -> NodeChannel:
        """A new channel. Raises `CannotReach`."""
        if not self._is_alive():
            raise CannotReach(LEFT, final=True)
        try:
            return NodeChannel(self._ready())
        except GetTimeoutError:
            raise CannotReach(f"the node has not started our agent within {OPEN_S:.0f} s") from None
        except RayActorError as error:
            raise CannotReach(_why(error), final=not self._is_alive()) from None
        except RayError as error:
            raise CannotReach(_why(error)) from None

    def _ready(self) -> Any:
        """The agent with our version of the code, which is put there where it is not."""
        agent = self._agent()
        try:
            _, version = ray.get(agent.hello.remote(), timeout=OPEN_S)
        except RayActorError as error:
            if IMPORT_FAILED not in str(error):
                raise
            version = ""
        if version != devexplorer.__version__:
            agent = self._bring()
            ray.get(agent.hello.remote(), timeout=OPEN_S)
        return agent

    def cancel(self) -> None:
        """An `open` that waits ends by its limit."""


def _why(error: RayError) -> str:
    if isinstance(error, RayActorError):
        lines = [line for line in str(error).splitlines() if line.strip()]
        return lines[-1].strip() if IMPORT_FAILED in str(error) else "the agent was ended"
    return first_line(error)
