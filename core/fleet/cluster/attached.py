"""Joins a running cluster, follows its nodes, and carries events and orders. Main thread; `orders` is another."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

import devexplorer
from devexplorer.core.base import LinkError, first_line
from devexplorer.core.engine.link import frame
from devexplorer.core.fleet.cluster.messages import (
    CancelMeasuring,
    CannotAttach,
    Frames,
    FromCluster,
    Measure,
    ToCluster,
)
from devexplorer.core.fleet.cluster.nodes import LEFT, Nodes
from devexplorer.core.fleet.events import GroupEnded
from devexplorer.core.fleet.hosts.host_fleet import HostFleet, Member
from devexplorer.core.machines.window.link import CannotReach, Route

STEP_S = 0.05
RESERVE_S = 10.0
REACH_S = 5.0
CLOSE_S = 8.0


def attached(address: str, virtual: str | None, out: int) -> int:
    """Run until standard input ends; returns the exit code."""

    def say(record: FromCluster) -> None:
        data = memoryview(frame(record))
        while data:
            data = data[os.write(out, data) :]

    if why_not := _unreachable(address):
        say(CannotAttach(reason=why_not))
        return 2
    try:
        ray.init(
            address=address,
            namespace=f"devexplorer-{secrets.token_hex(8)}",
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            include_dashboard=False,
        )
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        say(CannotAttach(reason=f"there is no cluster at {address} that can be joined: {first_line(error)}"))
        return 2
    nodes = Nodes(virtual)
    try:
        nodes.look()
        _Following(nodes, say).run()
    except BrokenPipeError:
        pass  # who started this process is gone
    finally:
        nodes.leave()
        ray.shutdown()
    return 0


def _unreachable(address: str) -> str:
    """Why nothing answers there; Ray itself would try for minutes."""
    if address in ("auto", "local"):
        return "" if address == "auto" else "local would start a new cluster; write auto or HOST:PORT"
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in address:
        return f"'{address}' is no address of a cluster; write auto or HOST:PORT of its head, for example 10.0.0.1:6379"
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        return f"there is no cluster at {address}: {(getattr(error, 'strerror', '') or str(error)).lower()}"
    return ""


class _Following:
    """What happens between attaching and leaving."""

    def __init__(self, nodes: Nodes, say: Any) -> None:
        self._nodes, self._say = nodes, say
        self._fleet = HostFleet(())
        self._orders: deque[ToCluster | None] = deque()
        """None: standard input has ended."""
        self._woken = threading.Event()
        self._measuring = 0
        """Groups that have not ended."""

    def run(self) -> None:
        """Until standard input ends."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        self._fleet.start()
        self._follow(tuple(self._nodes.alive), ())
        try:
            while self._carry_out():
                before = set(self._nodes.alive)
                if self._nodes.look():
                    now = set(self._nodes.alive)
                    self._follow(tuple(now - before), tuple(before - now))
                for event in self._fleet.drain():
                    if isinstance(event, GroupEnded):
                        self._measuring -= 1
                    self._say(event)
                if self._measuring <= 0:
                    self._nodes.release()
                self._woken.wait(STEP_S)
                self._woken.clear()
        finally:
            self._fleet.close(CLOSE_S)

    def _follow(self, joined: tuple[str, ...], gone: tuple[str, ...]) -> None:
        for name in joined:
            route = NodeRoute(
                partial(self._nodes.agent, name), partial(self._nodes.bring, name), partial(self._nodes.is_alive, name)
            )
            node = self._nodes.alive[name]
            self._fleet.add(Member(name, route, node.rack, lambda node=node: node.address))  # type: ignore[misc]
        for name in gone:
            self._fleet.lose(name, LEFT)
            self._nodes.forget(name)

    def _read(self) -> None:
        orders = Frames[ToCluster](sys.stdin.buffer, cast("type[ToCluster]", ToCluster))
        order: ToCluster | None
        while True:
            try:
                order = orders.next()
            except LinkError as error:
                print(f"an order was refused: {error}", file=sys.stderr)
                continue
            self._orders.append(order)
            self._woken.set()
            if order is None:
                return

    def _carry_out(self) -> bool:
        """Take what was ordered; False when there will be nothing more."""
        while self._orders:
            match order := self._orders.popleft():
                case None:
                    return False
                case Measure():
                    self._measure(order)
                case CancelMeasuring():
                    self._fleet.cancel()
        return True

    def _measure(self, order: Measure) -> None:
        self._measuring += len(order.order.groups)
        why_not = self._nodes.reserve(RESERVE_S)
        if not why_not:
            self._fleet.measure(order.order)
            return
        for group in range(len(order.order.groups)):
            self._measuring -= 1
            self._say(GroupEnded(number=order.order.number, group=group, failure=why_not))


# The way to the host of a node: bytes through the calls of its agent.

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


class NodeRoute(Route):
    """To one node. `agent` makes its actor, or returns the one that is there; `bring` makes one for
    which our code is put there first; `is_alive` says whether the node still
    belongs to the cluster."""

    def __init__(self, agent: Callable[[], Any], bring: Callable[[], Any], is_alive: Callable[[], bool]) -> None:
        self._agent, self._bring, self._is_alive = agent, bring, is_alive

    def open(self) -> NodeChannel:
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
