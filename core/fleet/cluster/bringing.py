"""Puts our code, and the packages that it needs, onto a node of a cluster that lacks them: by tasks of the cluster,
into the cache that machines behind ssh have, never into the environment there. Waits; on the thread of a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from devexplorer.core.base import Unavailable, first_line
from devexplorer.core.environments import code_cache, packages, whole_folders
from devexplorer.core.environments import probe as probing
from devexplorer.core.environments.environment import Probe, as_probe, refusal
from devexplorer.core.machines.window.link import CannotReach

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
