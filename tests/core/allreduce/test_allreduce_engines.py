"""All-reduce between several engines: where their ranks meet, over which interface, and how they end together."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psutil
import pytest
from fakes.allreduce import KIB, SMALL, failure, free_port, made, of_two, points, together
from msgspec.structs import replace

from devexplorer.core.allreduce import rank
from devexplorer.core.allreduce.kind import AllReduceResult, AllReduceSpec, Rendezvous, ring_seconds
from devexplorer.core.allreduce.messages import Setup
from devexplorer.core.allreduce.run import RANK, listen
from devexplorer.core.base import Unavailable
from devexplorer.core.benchmark.kind import run_documents
from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.records import BenchEnded, BenchPoint, StartBenchmark, StopBenchmark
from devexplorer.core.virtual.device.machine import VirtualMachine

pytestmark = pytest.mark.usefixtures("warm_processes")


def test_two_engines_form_one_world_of_four_ranks() -> None:
    results = {}
    port = free_port()
    with LocalEngine(None) as one, LocalEngine(None) as other:
        requests = []
        for engine, first in ((other, 2), (one, 0)):
            meeting = Rendezvous(address="127.0.0.1", port=port, world_size=4, first_rank=first)
            spec = replace(SMALL, ranks=2, sizes=(4 * KIB, 64 * KIB), rendezvous=meeting)
            requests.append((engine, engine.send(StartBenchmark(spec=spec))))
        for engine, request in requests:
            [ended] = [event for event in engine.events(request, 60.0) if isinstance(event, BenchEnded)]
            assert ended.reason is None
            results[engine] = ended.result
    theirs, ours = results[other], results[one]
    assert isinstance(ours, AllReduceResult)
    assert isinstance(theirs, AllReduceResult)
    assert ours.rows == theirs.rows, "both have the seconds of the slowest of all four"
    assert [row.verified for row in ours.rows] == [True, True]
    assert (ours.spec.world_size, ours.spec.own_ranks) == (4, 2)
    [entry, _] = run_documents(theirs)
    assert (entry["ranks"], entry["own_ranks"], entry["first_rank"]) == (4, 2, 2)
    bus, algorithm = entry["bus_gb_per_s"]["median"], entry["algorithm_gb_per_s"]["median"]
    assert bus == pytest.approx(1.5 * algorithm)


def test_when_one_engine_is_stopped_the_other_ends_with_that_reason() -> None:
    port = free_port()
    with LocalEngine(None) as one, LocalEngine(None) as other:
        changes = {"seconds": 60.0, "iterations": None}
        follower = other.send(StartBenchmark(spec=of_two(2, port, **changes)))
        request = one.send(StartBenchmark(spec=of_two(0, port, **changes)))
        next(event for event in one.events(request, 60.0) if isinstance(event, BenchPoint))
        one.send(StopBenchmark(run=request))
        [ours] = [event for event in one.events(request, 60.0) if isinstance(event, BenchEnded)]
        [theirs] = [event for event in other.events(follower, 60.0) if isinstance(event, BenchEnded)]
    assert ours.reason == STOPPED_EARLY
    assert theirs.reason == "another engine of this all-reduce has stopped it"


def test_engines_that_were_asked_for_different_things_do_not_measure(registry: DeviceRegistry) -> None:
    port = free_port()
    here, there = together(
        [of_two(0, port, limit_seconds=3), of_two(2, port, sizes=(8 * KIB,), limit_seconds=3)], registry
    )
    assert "rank 0 was started with other settings: 4 ranks, gloo, float32, 4.00 KiB" in there
    assert "8.00 KiB" in there
    assert "the 4 ranks did not all come within 3 s" in here or "did not answer" in here


def test_a_wrong_value_at_one_engine_ends_the_other_with_the_reason(
    registry: DeviceRegistry, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK_FAULT", "wrong:3")
    port = free_port()
    here, there = together([of_two(0, port), of_two(2, port)], registry, (RANK, faulty))
    assert there == "rank 3 has 3 wrong values of 1,024 after an all-reduce of 4.00 KiB"
    assert here == "values are wrong in another engine's rank"


def test_a_rendezvous_where_nobody_is_is_one_line(registry: DeviceRegistry) -> None:
    port = free_port()
    said = failure(made(registry, of_two(2, port, limit_seconds=1)))
    assert said in {f"rank {number}: rank 0 did not answer at 127.0.0.1:{port} within 1 s" for number in (2, 3)}


def test_ranks_that_do_not_come_are_one_line(registry: DeviceRegistry) -> None:
    said = failure(made(registry, of_two(0, free_port(), limit_seconds=1)))
    assert said in {f"rank {number}: the 4 ranks did not all come within 1 s" for number in (0, 1)}


def test_an_address_of_another_machine_and_a_port_that_is_taken_are_one_line(registry: DeviceRegistry) -> None:
    away = replace(SMALL, rendezvous=Rendezvous(address="192.0.2.1", port=29500, world_size=4))
    assert failure(made(registry, away)) == "rank 0 cannot listen at 192.0.2.1:29500: is no address of this machine"
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = failure(made(registry, of_two(0, server.getsockname()[1])))
    assert said.endswith("Address already in use")


def test_a_name_that_means_this_machine_alone_is_no_place_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = socket.getaddrinfo("127.0.1.1", 0, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(Unavailable, match=r"node0 is 127\.0\.1\.1 on this machine itself, where no other reaches it"):
        listen("node0", 0)


@pytest.mark.parametrize(
    ("address", "chosen", "taken"),
    [("10.1.0.7", "", "ib0"), ("10.1.0.7", "eth0", "eth0"), ("fe80::1%ib0", "", "ib0"), ("192.0.2.77", "", "")],
)
def test_gloo_takes_the_interface_over_which_rank_0_was_reached(
    monkeypatch: pytest.MonkeyPatch, address: str, chosen: str, taken: str
) -> None:
    monkeypatch.setenv(rank.IFNAME, chosen)
    own = [SimpleNamespace(address="10.1.0.7"), SimpleNamespace(address="fe80::1%ib0")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [], "ib0": own})
    assert rank.take_interface(address) == taken
    assert os.environ[rank.IFNAME] == taken


def test_an_interface_that_is_not_there_is_one_line(registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rank.IFNAME, "nothing0")
    said = failure(made(registry, replace(SMALL, limit_seconds=3)))
    assert "GLOO_SOCKET_IFNAME is nothing0, but this machine's network interfaces are " in said


def test_ranks_that_came_but_cannot_be_connected_name_the_variable(
    registry: DeviceRegistry, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK_FAULT", "unconnected:1")
    said = failure(made(registry, SMALL, faulty))
    assert said.startswith("rank 1: all 3 ranks came, but gloo did not connect them over lo")
    assert said.endswith(": no route to host; GLOO_SOCKET_IFNAME chooses another network interface")


def test_virtual_gpus_of_two_engines_reduce_together(virtual: VirtualMachine) -> None:
    meeting = Rendezvous(address="127.0.0.1", port=free_port(), world_size=4)
    spec = AllReduceSpec(devices=("vgpu:0", "vgpu:1"), sizes=(1 << 30,), rendezvous=meeting, limit_seconds=20)
    specs = [spec, replace(spec, rendezvous=replace(meeting, first_rank=2))]
    with ThreadPoolExecutor(2) as pool:
        runs = [made(DeviceRegistry([TorchBackend(), virtual]), spec) for spec in specs]
        assert all(point.simulated for seen in pool.map(lambda run: list(points(run)), runs) for point in seen)
        here, there = pool.map(lambda run: run.result(stopped=False), runs)
    assert here is not None
    assert there is not None
    assert here.rows == there.rows
    [row] = here.rows
    assert (row.simulated, row.verified, here.spec.world_size) == (True, True, 4)
    gpus = [(gpu.id, gpu.profile) for gpu in virtual.gpus]
    assert row.operation_seconds is not None
    assert row.operation_seconds.median == ring_seconds(gpus, 1 << 30, 4)


def test_virtual_gpus_and_real_devices_of_two_engines_do_not_measure(virtual: VirtualMachine) -> None:
    registry, port = DeviceRegistry([TorchBackend(), virtual]), free_port()
    simulated = replace(of_two(2, port), devices=("vgpu:0", "vgpu:1"), ranks=None)
    _, there = together([of_two(0, port, limit_seconds=3), replace(simulated, limit_seconds=3)], registry)
    assert "rank 0 was started with other settings: 4 ranks, gloo, float32" in there
    assert "4 ranks, simulated, float32" in there


@pytest.mark.parametrize(
    ("backend", "seconds", "error", "told"),
    [
        (
            "nccl",
            0.1,
            "NCCL error in: /w/torch/csrc/c10d/NCCLUtils.cpp:92, unhandled cuda error, NCCL version 2.30.7\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            ": unhandled cuda error, NCCL version 2.30.7: Cuda failure 2 'out of memory'",
        ),
        ("nccl", 30.0, "wait timeout after 30000ms, keys: /a", " within 30 s; NCCL_SOCKET_IFNAME chooses"),
        ("gloo", 0.1, "[/w/gloo/tcp/pair.cc:144] no route to host", ": no route to host; GLOO_SOCKET_IFNAME chooses"),
        ("gloo", 29.9, "wait timeout after 30000ms, keys: /a", " within 30 s; GLOO_SOCKET_IFNAME chooses"),
    ],
)
def test_only_what_took_the_whole_time_is_called_a_time_out(
    backend: str, seconds: float, error: str, told: str
) -> None:
    setup = Setup(
        rank=0, world_size=2, address="", port=0, listener=None, backend=backend, device="cpu", dtype="float32",
        limit_seconds=30.0, settings="",
    )  # fmt: skip
    said = rank.not_connected(setup, RuntimeError(error), "", seconds)
    assert said.startswith(f"all 2 ranks came, but {backend} did not connect them{told}")
    assert ("SOCKET_IFNAME" in said) == ("SOCKET_IFNAME" in told)
