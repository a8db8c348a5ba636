"""The nodes of the cluster that this process is attached to, with our agent on each. Main thread, but for `agent` and
`is_alive`, which links ask on threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from devexplorer.core.fleet.cluster.agent import CALLS, Agent
from devexplorer.core.fleet.cluster.bringing import bring
from devexplorer.core.machines.window.link import CannotReach

LOOK_S = 1.0
"""Between two looks at who is there."""
CLOSE_S = 8.0
SEES_ALL_CARDS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""An actor that reserves no card is shown none otherwise (CUDA_VISIBLE_DEVICES=""): watching would be blind."""
NODE = "ray.io/node-id"
LEFT = "the node has left the cluster or died"


class Node(NamedTuple):
    """One node that is alive."""

    id: str
    name: str
    """Its host name; with a part of the id where several nodes share one."""
    cards: float
    """That Ray has to give away there."""
    address: str = ""
    """As other nodes reach it."""
    rack: str = ""


class Nodes:
    """`look` often; `leave` at the end."""

    def __init__(self, virtual_spec: str | None) -> None:
        self.alive: dict[str, Node] = {}
        """By name."""
        self._virtual = virtual_spec
        self._agents: dict[str, Any] = {}
        self._paths: dict[str, str] = {}
        """The PYTHONPATH of agents on nodes to which our code was brought."""
        self._lock = threading.Lock()
        self._looked_s = 0.0
        self._reserved: list[PlacementGroup] = []

    def look(self) -> bool:
        """Whether nodes have come or gone since the last look."""
        if time.monotonic() - self._looked_s < LOOK_S:
            return False
        self._looked_s = time.monotonic()
        before = self.alive
        listed = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        hosts = [str(node["NodeManagerHostname"]) for node in listed]
        found = {
            node.name: node
            for entry, host in zip(listed, hosts, strict=True)
            for node in [
                Node(
                    entry["NodeID"],
                    host if hosts.count(host) == 1 else f"{host}-{entry['NodeID'][:6]}",
                    float(entry["Resources"].get("GPU", 0)),
                    str(entry["NodeManagerAddress"]),
                    rack_of(entry.get("Labels") or {}),
                )
            ]
        }
        # A node keeps the name that it joined with, also when another one of its host comes or goes.
        names = {node.id: name for name, node in before.items()}
        self.alive = {
            names.get(node.id, name): node._replace(name=names.get(node.id, name)) for name, node in found.items()
        }
        return self.alive.keys() != before.keys()

    def is_alive(self, name: str) -> bool:
        """Whether it is a part of the cluster, as far as was looked."""
        return name in self.alive

    def agent(self, name: str) -> Any:
        """Our actor there, made where there is none. Raises `CannotReach` where the node has left, and `RayError`."""
        with self._lock:
            if name not in self._agents:
                self._agents[name] = self._place(self._alive(name))
            return self._agents[name]

    def bring(self, name: str) -> Any:
        """Our actor there, after our code was put there. Raises `CannotReach` and `RayError`."""
        path = bring(self._alive(name).id)
        self.forget(name)
        with self._lock:
            self._paths[name] = path
        return self.agent(name)

    def forget(self, name: str) -> None:
        """The node is gone."""
        with self._lock:
            agent = self._agents.pop(name, None)
        if agent is not None:
            _kill(agent)

    def reserve(self, seconds: float) -> str:
        """Keep other jobs of the cluster away from all cards until `release`; returns why that cannot be, if so."""
        self.release()
        for node in self.alive.values():
            if node.cards >= 1:
                self._reserved.append(
                    placement_group([{"GPU": float(int(node.cards))}], bundle_label_selector=[{NODE: node.id}])
                )
        until = time.monotonic() + seconds
        for group in self._reserved:
            if not group.wait(max(until - time.monotonic(), 0.1)):
                self.release()
                return "cards of the cluster are in use by other jobs"
        return ""

    def release(self) -> None:
        """Give the cards back."""
        for group in self._reserved:
            remove_placement_group(group)
        self._reserved = []

    def leave(self) -> None:
        """End every agent; nothing of ours is left in the cluster."""
        self.release()
        with self._lock:
            agents, self._agents = list(self._agents.values()), {}
        ends = [agent.close.remote() for agent in agents]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=CLOSE_S)
        for agent in agents:
            _kill(agent)

    def _alive(self, name: str) -> Node:
        node = self.alive.get(name)
        if node is None:
            raise CannotReach(LEFT, final=True)
        return node

    def _place(self, node: Node) -> Any:
        path = self._paths.get(node.name)
        return (
            ray.remote(Agent)
            .options(
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                runtime_env={"env_vars": SEES_ALL_CARDS | ({"PYTHONPATH": path} if path else {})},
            )
            .remote(self._virtual)
        )


def rack_of(labels: Mapping[str, str]) -> str:
    """Where a node stands, as it was started: `ray start --labels rack=A`, or a label of Kubernetes like
    `topology.kubernetes.io/rack`."""
    return next((value for key, value in labels.items() if key.rpartition("/")[2] == "rack"), "")


def _kill(agent: Any) -> None:
    try:
        ray.kill(agent, no_restart=True)
    except (RayError, ValueError):
        pass  # it is gone with its node
