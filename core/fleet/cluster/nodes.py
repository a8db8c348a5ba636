"""The nodes of the cluster that this process is attached to, with our agent on each. Main thread, but for `agent` and
`is_alive`, which links ask on threads of their own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from devexplorer.core.base import Unavailable, first_line
from devexplorer.core.environments import code_cache, packages, whole_folders
from devexplorer.core.environments import probe as probing
from devexplorer.core.environments.environment import Probe, as_probe, refusal
from devexplorer.core.fleet.cluster.agent import CALLS, Agent
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
        names = {node.id: name for name, node in before.items()}
        listed = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        hosts = [str(node["NodeManagerHostname"]) for node in listed]
        alive: dict[str, Node] = {}
        for entry, host in zip(listed, hosts, strict=True):
            number = entry["NodeID"]
            name = host if hosts.count(host) == 1 else f"{host}-{number[:6]}"
            name = names.get(number, name)  # the one that it joined with, also when another one of its host comes
            cards = float(entry["Resources"].get("GPU", 0))
            rack = rack_of(entry.get("Labels") or {})
            alive[name] = Node(number, name, cards, str(entry["NodeManagerAddress"]), rack)
        self.alive = alive
        return alive.keys() != before.keys()

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


# Puts our code, and the packages that it needs, onto a node of a cluster that lacks them: by tasks of the cluster,
# into the cache that machines behind ssh have, never into the environment there.

ASK_S = 60.0
"""For a worker to start on the node, and Python there to say what it has."""
KEEP_S = 120.0
"""For a disk of a network to take a few hundred files."""


def bring(node: str) -> str:
    """The PYTHONPATH with which our code runs on that node (its id). Raises `CannotReach` with what to do."""
    python = "its Python"
    try:
        answer, python, inherited = _run(node, ASK_S, _asking(), _text(probing))
        about = as_probe(answer)
        if (reason := refusal(about)) is not None:
            raise Unavailable(reason)
        folders = [_keep(node, code_cache.KIND, code_cache.name(), lambda: code_cache.packed()[1])]
        for need in packages.needs(about):
            if need is not None:
                folders.append(_keep(node, packages.KIND, need.name, lambda need=need: _packed(about, need)))  # type: ignore[misc]
    except (Unavailable, RayError, GetTimeoutError) as error:
        why = first_line(error).rstrip(".")
        raise CannotReach(
            f"DevExplorer is not installed there and could not be put there ({why}); install it for {python} on that"
            " node: pip install 'devexplorer[cluster]'",
            final=True,
        ) from None
    return os.pathsep.join(filter(None, (*folders, inherited)))


def _packed(about: Probe, need: packages.Need) -> bytes:
    return code_cache.packed_folder(packages.folder(None, about, need))


def _keep(node: str, kind: str, name: str, archive: Callable[[], bytes]) -> str:
    """A folder that is kept there; what it holds is sent only where it is not there yet."""
    folders = _text(whole_folders)
    found = _run(node, ASK_S, _keeping(), folders, kind, name, b"")
    return str(found or _run(node, KEEP_S, _keeping(), folders, kind, name, archive()))


def _text(module: object) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")  # type: ignore[attr-defined]


# --- what runs there: functions within functions are sent whole; nothing of ours is imported for them ----------------


def _run(node: str, seconds: float, function: Callable[..., Any], *arguments: object) -> Any:
    task = ray.remote(function).options(
        num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
    )
    return ray.get(task.remote(*arguments), timeout=seconds)


def _asking() -> Callable[[str], tuple[dict[str, object], str, str]]:
    def ask(source: str) -> tuple[dict[str, object], str, str]:
        """What this Python has, which one it is, and the path that it was started with."""
        import os
        import sys
        import types

        probing = types.ModuleType("devexplorer_probe")
        exec(source, probing.__dict__)
        return probing.ask(sys.executable, source, with_torch=False), sys.executable, os.environ.get("PYTHONPATH", "")

    return ask


def _keeping() -> Callable[[str, str, str, bytes], str | None]:
    def keep(source: str, kind: str, name: str, data: bytes) -> str | None:
        """A folder that is kept here, made of an archive where one is sent; None: it is not there."""
        import types

        folders = types.ModuleType("devexplorer_folders")
        exec(source, folders.__dict__)
        found = folders.find(kind, name)
        if found is None and data:
            found = folders.make(kind, name, lambda folder: folders.unpack(data, folder))
        return None if found is None else str(found)

    return keep
