"""An all-reduce between devices: two ranks have the sum of both, and bus bandwidth says how fast; simulated where the
devices are."""

from __future__ import annotations

import threading

import pytest
from places import Place

from devexplorer.core.allreduce.kind import AllReduceSpec
from devexplorer.core.allreduce.run import AllReduceRun, check_allreduce

pytestmark = pytest.mark.usefixtures("warm_processes")


def test_every_rank_has_the_sum_and_says_how_fast(place: Place) -> None:
    devices = (place.first,) if place.second in (None, "cpu") else (place.first, place.second)
    ranks = 2 if place.kind == "cpu" else None
    spec = AllReduceSpec(devices=devices, ranks=ranks, sizes=(1 << 16,), seconds=0.01, iterations=3)
    run = AllReduceRun(check_allreduce(spec, place.registry), 1, place.registry, threading.Event(), lambda: 0.0)
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    [row] = result.rows
    assert (row.verified, row.simulated, result.simulated) == (True, place.kind == "vgpu", place.kind == "vgpu")
    assert result.backend == ("nccl" if place.kind == "cuda" else "gloo")
    assert row.algorithm_gb_per_s is not None
    assert row.algorithm_gb_per_s.median > 0
    assert (row.bus_gb_per_s is None) == (result.spec.world_size == 1)
