"""Runs of all-reduces for tests, in this process or as one of several engines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from devexplorer.core.allreduce.kind import AllReduceSpec, Rendezvous
from devexplorer.core.allreduce.run import RANK, AllReduceRun, check_allreduce
from devexplorer.core.base import Unavailable
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint

KIB = 1 << 10
SMALL = AllReduceSpec(devices=("cpu",), ranks=3, sizes=(4 * KIB,), seconds=0.01, iterations=4, limit_seconds=20)


def made(registry: DeviceRegistry, spec: AllReduceSpec = SMALL, module: str = RANK) -> AllReduceRun:
    stop = threading.Event()
    return AllReduceRun(check_allreduce(spec, registry), 1, registry, stop, lambda: 0.0, module=module)


def points(run: AllReduceRun) -> Iterator[BenchPoint]:
    run.prepare()
    while (point := run.step()) is not None:
        yield point


def failure(run: AllReduceRun) -> str:
    """Why it ends; the processes are gone then."""
    try:
        with pytest.raises(Unavailable) as caught:
            list(points(run))
        return str(caught.value)
    finally:
        run.result(stopped=False, failure="it failed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def together(
    specs: Sequence[AllReduceSpec], registry: DeviceRegistry, modules: Sequence[str] = (RANK, RANK)
) -> list[str]:
    """Why each of these runs ends, which are driven at the same time."""
    with ThreadPoolExecutor(len(specs)) as pool:
        runs = [made(registry, spec, module) for spec, module in zip(specs, modules, strict=True)]
        return list(pool.map(failure, runs))


def of_two(first: int, port: int, **other: Any) -> AllReduceSpec:
    meeting = Rendezvous(address="127.0.0.1", port=port, world_size=4, first_rank=first)
    return replace(SMALL, ranks=2, rendezvous=meeting, **other)
