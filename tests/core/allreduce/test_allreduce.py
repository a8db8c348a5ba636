"""All-reduce between processes on the CPU: bandwidths, values, and everything that can happen to a rank."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from fakes.allreduce import KIB, SMALL, failure, free_port, made, of_two, points
from msgspec.structs import replace

from devexplorer.core.allreduce import rank
from devexplorer.core.allreduce.kind import AllReduceResult, AllReduceSpec, Rendezvous, ring_seconds
from devexplorer.core.allreduce.messages import DTYPES, Order, Setup
from devexplorer.core.allreduce.run import Ranks, check_allreduce, listen
from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.kind import run_documents
from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.records import BenchEnded, BenchPoint, StartBenchmark, StopBenchmark
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY, NETWORK_GB_S
from devexplorer.core.virtual.device.machine import VirtualMachine

pytestmark = pytest.mark.usefixtures("warm_processes")


# --- what is measured ------------------------------------------------------------------------------------------------


def test_every_size_has_bandwidths_and_verified_values(registry: DeviceRegistry) -> None:
    run = made(registry, replace(SMALL, dtype="bfloat16", sizes=(4 * KIB, 1001), seconds=5.0))  # all four, however busy
    seen = list(points(run))
    result = run.result(stopped=False)
    assert isinstance(result, AllReduceResult)
    row, odd = result.rows
    assert (result.backend, result.spec.world_size, result.verified) == ("gloo", 3, True)
    assert (row.bytes, row.iterations, row.verified, row.simulated) == (4 * KIB, 4, True, False)
    assert odd.bytes == 1000, "whole elements"
    algorithm, bus, seconds = row.algorithm_gb_per_s, row.bus_gb_per_s, row.operation_seconds
    assert algorithm is not None
    assert bus is not None
    assert seconds is not None
    assert algorithm.median == pytest.approx(4096 / seconds.median / 1e9)
    assert algorithm.p20 == pytest.approx(4096 / seconds.p80 / 1e9)
    assert bus.median == pytest.approx(algorithm.median * 4 / 3), "2·(n-1)/n of three ranks"
    assert [point.part for point in seen if point.part] == [row, odd]
    assert all(point.gb_per_s for point in seen)
    first, _ = run_documents(result)
    assert (first["devices"], first["ranks"], first["backend"], first["dtype"]) == (["cpu"], 3, "gloo", "bfloat16")
    assert (first["bytes"], first["verified"], first["simulated"]) == (4 * KIB, True, False)
    assert first["bus_gb_per_s"]["median"] == bus.median


def test_the_sum_of_the_pattern_is_exact_in_every_dtype() -> None:
    for dtype in DTYPES:
        for world in [1, 2, 7, 130, 300]:
            kind = getattr(torch, dtype)
            total = torch.zeros(rank.PERIOD, dtype=kind)
            for number in range(world):
                total += rank.pattern(number, world, dtype).to(kind)
            assert total.to(torch.int64).equal(rank.expected(world, dtype))
            assert total.to(torch.float64).sum() > 0


def test_one_wrong_element_and_a_part_in_another_place_are_found() -> None:
    expected = rank.expected(4, "float32")
    tensor = torch.empty(1000)
    rank.fill(tensor, expected)
    assert rank.differing(tensor, expected) == 0
    for place in (0, 600, 999):
        tensor[place] += 1
    assert rank.differing(tensor, expected) == 3
    rank.fill(tensor, expected)
    assert rank.differing(torch.cat([tensor[256:512], tensor[:256], tensor[512:]]), expected) > 100
    tensor[5] = math.nan
    assert rank.differing(tensor, expected) == 1


def test_the_engine_measures_it_and_its_command_can_be_stopped(registry: DeviceRegistry) -> None:
    spec = replace(SMALL, seconds=60.0, iterations=None)
    with LocalEngine(None) as engine:
        request = engine.send(StartBenchmark(spec=spec))
        ended = None
        for event in engine.events(request, 60.0):
            if isinstance(event, BenchPoint):
                engine.send(StopBenchmark(run=request))
            if isinstance(event, BenchEnded):
                ended = event
        assert ended is not None
        assert (ended.result, ended.reason) == (None, STOPPED_EARLY)


def test_an_engine_that_is_closed_in_the_middle_leaves_no_rank() -> None:
    before = set(psutil.Process().children())
    with LocalEngine(None) as engine:
        request = engine.send(StartBenchmark(spec=replace(SMALL, seconds=60.0, iterations=None)))
        next(event for event in engine.events(request, 60.0) if isinstance(event, BenchPoint))
        assert len(set(psutil.Process().children()) - before) >= 3
    assert not [child for child in psutil.Process().children() if child not in before and child.is_running()]
    (ended,) = (event for event in engine.events(request, 1.0) if isinstance(event, BenchEnded))
    assert (ended.result, ended.reason) == (None, STOPPED_EARLY)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong:2", "rank 2 has 3 wrong values of 1,024 after an all-reduce of 4.00 KiB"),
        ("dies:1", "rank 1 ended its process by signal SIGKILL (as the system does when memory runs out)"),
        ("hangs:2", "rank 2 did not answer within 3 s and was ended"),
        ("fails:0", "rank 0: CUDA error: an illegal memory access was encountered"),
    ],
)
def test_a_rank_that_goes_wrong_is_named_in_one_line(
    registry: DeviceRegistry, faulty: str, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setenv("RANK_FAULT", fault)
    run = made(registry, replace(SMALL, limit_seconds=3 if "hangs" in fault else 20), faulty)
    assert failure(run) == said
    result = run.result(stopped=False, failure=said)
    if "wrong" not in fault:
        assert result is None
        return
    assert result is not None
    [row] = result.rows
    assert (result.verified, row.verified, row.bus_gb_per_s, row.reason) == (False, False, None, said)


def test_a_cancelled_run_leaves_no_process_and_no_port(registry: DeviceRegistry) -> None:
    before = psutil.Process().net_connections("tcp")
    run = made(registry, of_two(0, free_port()))
    asked = iter([False, False, True])
    run.prepare(lambda: next(asked, True))
    assert run.result(stopped=True) is None
    assert psutil.Process().net_connections("tcp") == before


def test_the_ranks_of_an_engine_that_is_gone_end_by_themselves() -> None:
    ranks = started(3)
    try:
        pids = [process.pid for process in ranks._processes.values()]
        ranks.tell(Order(kind="block", count=1024, iterations=10_000_000))
        for process in ranks._processes.values():
            assert process.stdin is not None
            process.stdin.close()  # as when the engine dies
            process.wait(20)
        assert not any(map(psutil.pid_exists, pids))
    finally:
        ranks.close()


def started(count: int) -> Ranks:
    """Ranks that have met."""
    listener = listen("127.0.0.1", 0)
    shared = Setup(
        rank=0, world_size=count, address="127.0.0.1", port=listener.getsockname()[1], listener=None, backend="gloo",
        device="cpu", dtype="float32", limit_seconds=20, settings="",
    )  # fmt: skip
    ranks = Ranks([replace(shared, rank=number) for number in range(count)], listener, limit_seconds=20)
    assert ranks.meet(lambda: False)
    return ranks


def test_a_rank_that_writes_nonsense_has_failed(registry: DeviceRegistry, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "babbling.py").write_text("import os, sys, time\nos.write(int(sys.argv[1]), b'x\\n')\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert failure(made(registry, module="babbling")) == "rank 0: it wrote something else than an answer"


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranks": 1}, "an all-reduce needs two ranks at least"),
        ({"ranks": 999}, "999 ranks cannot be started; from 1 to 256 are possible"),
        ({"dtype": "complex64"}, "an all-reduce of complex64 is not measured"),
        ({"sizes": ()}, "needs a size of at least 1 byte"),
        ({"sizes": (1 << 50,)}, "are free; take less"),
        ({"iterations": 0}, "0 iterations cannot be measured"),
        ({"devices": ("cpu", "cpu")}, "cpu is named twice"),
        ({"devices": ("cuda:7",)}, "cuda:7"),
        ({"rendezvous": Rendezvous(address="", port=1, world_size=4)}, "is no place to meet"),
        ({"rendezvous": Rendezvous(address="a", port=70000, world_size=4)}, "is no place to meet"),
        (
            {"rendezvous": Rendezvous(address="a", port=1, world_size=4, first_rank=2)},
            "ranks 2 to 4 are not in a world",
        ),
        ({"rendezvous": Rendezvous(address="a", port=1, world_size=1 << 20)}, "is not possible; it has from 2 to 4096"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    registry: DeviceRegistry, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        check_allreduce(replace(SMALL, **changes), registry)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_torch_without_process_groups_is_one_line(registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(BadInput, match=r"this torch was built without torch\.distributed"):
        check_allreduce(SMALL, registry)


# --- virtual GPUs ----------------------------------------------------------------------------------------------------


def test_between_virtual_gpus_values_are_real_and_seconds_are_the_rings(virtual: VirtualMachine) -> None:
    registry = DeviceRegistry([TorchBackend(), virtual])
    before = [gpu.clock.busy_seconds for gpu in virtual.gpus]
    run = made(registry, AllReduceSpec(devices=("vgpu:0", "vgpu:1"), sizes=(4 * KIB, 1 << 30)))
    seen = list(points(run))
    result = run.result(stopped=False)
    assert result is not None
    assert (result.simulated, result.verified) == (True, True)
    assert all(point.simulated for point in seen)
    small, large = result.rows
    assert all(row.simulated and row.verified for row in result.rows)
    assert small.operation_seconds is not None
    assert large.operation_seconds is not None
    gpus = [(gpu.id, gpu.profile) for gpu in virtual.gpus]
    assert large.operation_seconds.median == ring_seconds(gpus, 1 << 30)
    spent = small.operation_seconds.median + large.operation_seconds.median
    assert [gpu.clock.busy_seconds - was for gpu, was in zip(virtual.gpus, before, strict=True)] == [
        pytest.approx(spent)
    ] * 2


def test_the_ring_reaches_the_rate_of_its_slowest_link() -> None:
    a100, t4 = parse_virtual("NVIDIA A100-SXM4-80GB, Tesla T4")
    eight = [(f"vgpu:{number}", a100) for number in range(8)]
    seconds = ring_seconds(eight, 1 << 33)
    bus = (1 << 33) / seconds / 1e9 * 14 / 8
    assert bus == pytest.approx(300 * LINK_EFFICIENCY, rel=0.01)
    assert bus == pytest.approx(235, rel=0.01), "what NCCL's tuning model allows compute capability 8.0"
    mixed = [("vgpu:0", a100), ("vgpu:1", t4)]
    assert (1 << 33) / ring_seconds(mixed, 1 << 33) / 1e9 == pytest.approx(t4.link_gb_s * LINK_EFFICIENCY, rel=0.01)
    assert ring_seconds(eight, 4) == pytest.approx(3.6e-6 + 14 * 0.47e-6, rel=0.01), "LL over NVLink"
    assert ring_seconds(mixed, 4) == pytest.approx(3.6e-6 + 2 * 1e-6, rel=0.01), "LL over PCIe"


def test_a_ring_over_several_machines_has_the_rate_of_the_network() -> None:
    (h100,) = parse_virtual("NVIDIA H100 80GB HBM3")
    eight = [(f"vgpu:{number}", h100) for number in range(8)]
    bus = (1 << 33) / ring_seconds(eight, 1 << 33, 16) / 1e9 * 30 / 16
    assert bus == pytest.approx(NETWORK_GB_S * LINK_EFFICIENCY, rel=0.01)
    assert ring_seconds(eight, 4, 16) == pytest.approx(3.6e-6 + 28 * 0.47e-6 * 1.8 + 2 * 2.7e-6, rel=0.01), "LL"
    assert ring_seconds(eight[:1], 4, 2) == pytest.approx(3.6e-6 + 2 * 2.7e-6, rel=0.01), "a card each"


def test_virtual_gpus_are_in_no_world_with_a_real_device(virtual: VirtualMachine) -> None:
    registry = DeviceRegistry([TorchBackend(), virtual])
    with pytest.raises(BadInput, match="choose devices of one kind"):
        check_allreduce(AllReduceSpec(devices=("cpu", "vgpu:1")), registry)
    with pytest.raises(BadInput, match="two ranks at least"):
        check_allreduce(AllReduceSpec(devices=("vgpu:1",)), registry)
    with pytest.raises(BadInput, match="every device has one rank, so there are 2, not 3"):
        check_allreduce(AllReduceSpec(devices=("vgpu:0", "vgpu:1"), ranks=3), registry)
