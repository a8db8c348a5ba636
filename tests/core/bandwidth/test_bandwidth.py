"""The bandwidth benchmark: its rows, detection of wrong data, refusals, and what is kept after an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from places import Place, place_of

from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthRow, BandwidthSpec
from devexplorer.core.bandwidth.run import PIECE_BYTES, BandwidthRun, Send, check_bandwidth, send
from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import BenchPoint
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.cost import Kind, Roofline, Work, launch_seconds, overlapped, transfer_seconds
from devexplorer.core.virtual.device.machine import VirtualMachine

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(params=["cpu", "vgpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine or this torch has no CUDA device")
    with place_of(request.param) as made:
        yield made


@pytest.fixture
def registry(virtual: VirtualMachine) -> DeviceRegistry:
    return DeviceRegistry([TorchBackend(), virtual])


def spec_of(*devices: str, **other: Any) -> BandwidthSpec:
    return BandwidthSpec(
        **{"sources": devices, "destinations": devices, "sizes": (4 * KIB, MIB), "seconds": 0.001, **other}
    )


def run_of(
    spec: BandwidthSpec, registry: DeviceRegistry, send: Send = send, stop: threading.Event | None = None
) -> BandwidthRun:
    return BandwidthRun(check_bandwidth(spec, registry), 7, registry, stop or threading.Event(), lambda: 5.0, send=send)


def measured(run: BandwidthRun) -> tuple[list[BenchPoint], BandwidthResult]:
    run.prepare()
    points = list(iter(run.step, None))
    result = run.result(stopped=False)
    assert result is not None
    return points, result


def row(result: BandwidthResult, source: str, destination: str, nbytes: int = MIB, **other: Any) -> BandwidthRow:
    found = [one for one in result.rows if (one.source, one.destination, one.bytes) == (source, destination, nbytes)]
    return next(one for one in found if all(getattr(one, name) == value for name, value in other.items()))


def test_every_pair_and_size_is_a_row_that_was_verified(place: Place) -> None:
    devices = tuple(dict.fromkeys(("cpu", place.first, place.second or "cpu")))
    points, result = measured(run_of(spec_of(*devices, both_ways=True), place.registry))
    assert [point.part for point in points if point.part] == list(result.rows)
    assert {(one.source, one.destination, one.bytes) for one in result.rows} == {
        (a, b, size) for a in devices for b in devices for size in (4 * KIB, MIB)
    }
    for one in result.rows:
        assert one.simulated == ("vgpu:0" in (one.source, one.destination) or "vgpu:1" in (one.source, one.destination))
        assert (one.pinned is None) == ((one.source == "cpu") == (one.destination == "cpu"))
        if one.reason is None:
            assert one.verified is True
            assert one.gb_per_s is not None
            assert one.seconds is not None
            assert 0 < one.gb_per_s.p20 <= one.gb_per_s.median <= one.gb_per_s.p80
            assert 0 < one.seconds.p20 <= one.seconds.median <= one.seconds.p80
            assert one.iterations >= 1
    assert result.verified is True
    assert result.simulated == (place.kind == "vgpu")
    assert not result.stopped
    assert result.threads == torch.get_num_threads()
    assert result.iterations == sum(point.iterations for point in points)
    assert result.seconds == pytest.approx(sum(point.seconds for point in points))


def test_points_come_live_with_the_progress(place: Place) -> None:
    points, result = measured(run_of(spec_of(place.first), place.registry))
    shares = [point.done for point in points]
    assert shares == sorted(shares)  # type: ignore[type-var]
    assert shares[-1] == 1.0
    assert all(point.gb_per_s is not None and point.gb_per_s > 0 for point in points)
    assert sum(point.iterations > 0 for point in points) >= len(result.rows)
    assert points[0].text == f"{place.first} → {place.first}, 4 KiB"


def test_virtual_gpus_answer_with_the_cost_model(registry: DeviceRegistry, virtual: VirtualMachine) -> None:
    _, result = measured(run_of(spec_of("cpu", "vgpu:0", "vgpu:1", both_ways=True), registry))
    profile = virtual.gpu("vgpu:0").profile
    expected = {
        ("cpu", "vgpu:0"): transfer_seconds(None, profile, MIB),
        ("vgpu:1", "cpu"): transfer_seconds(profile, None, MIB),
        ("vgpu:0", "vgpu:1"): transfer_seconds(profile, profile, MIB),
        ("vgpu:0", "vgpu:0"): overlapped(Roofline(profile).seconds(Work(Kind.COPY, 0, 2 * MIB)), launch_seconds()),
    }
    for (source, destination), seconds in expected.items():
        one = row(result, source, destination, both_ways=False, pinned=True if "cpu" in (source, destination) else None)
        assert one.seconds is not None
        assert one.gb_per_s is not None
        assert one.seconds.median == pytest.approx(seconds)
        assert one.gb_per_s.median == pytest.approx(MIB / seconds / 1e9)


def test_both_ways_at_once_is_the_sum_of_both_and_measured_once_per_pair(registry: DeviceRegistry) -> None:
    _, result = measured(run_of(spec_of("vgpu:0", "vgpu:1", both_ways=True), registry))
    both = [one for one in result.rows if one.both_ways and one.bytes == MIB]
    assert [(one.source, one.destination) for one in both] == [("vgpu:0", "vgpu:1")]
    one_way = row(result, "vgpu:0", "vgpu:1", both_ways=False)
    assert both[0].gb_per_s is not None
    assert one_way.gb_per_s is not None
    assert both[0].gb_per_s.median == pytest.approx(2 * one_way.gb_per_s.median)
    assert both[0].verified is True


def test_pageable_memory_beside_a_virtual_gpu_has_a_reason_instead_of_a_number(registry: DeviceRegistry) -> None:
    _, result = measured(run_of(spec_of("cpu", "vgpu:0"), registry))
    one = row(result, "cpu", "vgpu:0", pinned=False)
    assert (one.gb_per_s, one.seconds, one.verified, one.iterations) == (None, None, None, 0)
    assert "not modelled" in str(one.reason)


def test_a_large_copy_on_virtual_gpus_takes_no_such_memory_here(
    registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 0
    empty, arange = torch.empty, torch.arange

    def watched(make: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            nonlocal largest
            made: torch.Tensor = make(*args, **kwargs)
            if made.device.type == "cpu":
                largest = max(largest, made.nbytes)
            return made

        return call

    monkeypatch.setattr(torch, "empty", watched(empty))
    monkeypatch.setattr(torch, "arange", watched(arange))
    _, result = measured(
        run_of(BandwidthSpec(sources=("vgpu:0",), destinations=("vgpu:1",), sizes=(8 * PIECE_BYTES,)), registry)
    )
    assert result.rows[0].verified is True
    assert largest == PIECE_BYTES


def test_all_of_a_large_copy_is_compared_also_its_end(registry: DeviceRegistry) -> None:
    nbytes = PIECE_BYTES + 12345
    last: list[int] = []

    def loses_the_end(destination: torch.Tensor, source: torch.Tensor) -> None:
        send(destination, source)
        if len(destination) == 12345:
            destination[-1:].bitwise_xor_(1)
            last.append(len(destination))

    run = run_of(BandwidthSpec(sources=("vgpu:0",), destinations=("vgpu:0",), sizes=(nbytes,)), registry, loses_the_end)
    _, result = measured(run)
    assert last
    assert result.rows[0].verified is False
    assert result.rows[0].reason is not None
    assert result.rows[0].reason.startswith("1 of 16,789,561 bytes arrived wrong")


def flipped(source: str, destination: str) -> Send:
    """Copies of which one byte arrives wrong in this direction."""

    def copy(to: torch.Tensor, origin: torch.Tensor) -> None:
        send(to, origin)
        if (str(origin.device), str(to.device)) == (source, destination):
            to[100:101].bitwise_xor_(1)

    return copy


def test_a_pair_whose_data_arrives_wrong_is_routed_through_the_host(registry: DeviceRegistry) -> None:
    points, result = measured(run_of(spec_of("vgpu:0", "vgpu:1"), registry, flipped("vgpu:0", "vgpu:1")))
    wrong = row(result, "vgpu:0", "vgpu:1", pinned=None)
    assert wrong.verified is False
    assert wrong.reason == (
        "1 of 1,048,576 bytes arrived wrong; copy through the host (vgpu:0 → cpu → vgpu:1): x.cpu().to('vgpu:1')"
    )
    route = row(result, "vgpu:0", "vgpu:1", pinned=True)
    assert route.verified is True
    assert route.reason == "through the host, one leg after the other: vgpu:0 → cpu → vgpu:1"
    assert route.seconds is not None
    legs = transfer_seconds(None, card_profile(registry), MIB)
    assert route.seconds.median == pytest.approx(2 * legs)
    assert "vgpu:0 → cpu → vgpu:1, 1 MiB" in [point.text for point in points]
    assert row(result, "vgpu:1", "vgpu:0").verified is True
    assert result.verified is False
    assert not [one for one in result.rows if one.pinned and one.source == "vgpu:1"]


def card_profile(registry: DeviceRegistry) -> Any:
    machine = registry.backend("vgpu:0")
    assert isinstance(machine, VirtualMachine)
    return machine.gpu("vgpu:0").profile


@pytest.mark.parametrize(
    ("source", "destination"), [("cpu", "cpu"), ("cpu", "vgpu:0"), ("vgpu:0", "cpu"), ("vgpu:0", "vgpu:0")]
)
def test_wrong_data_is_noticed_on_every_other_way_too(registry: DeviceRegistry, source: str, destination: str) -> None:
    spec = BandwidthSpec(sources=(source,), destinations=(destination,), sizes=(MIB,), pinned=(True,), seconds=0.001)
    _, result = measured(run_of(spec, registry, flipped(source, destination)))
    assert [one.verified for one in result.rows] == [False]
    assert "trust nothing" in str(result.rows[0].reason)


def test_data_that_never_arrives_is_no_old_data_that_looks_right(registry: DeviceRegistry) -> None:
    def nothing(destination: torch.Tensor, source: torch.Tensor) -> None:
        """A copy that the driver drops: the destination keeps its old data."""

    _, result = measured(run_of(spec_of("cpu", sizes=(64,)), registry, nothing))
    assert result.rows[0].verified is False
    assert "64 of 64 bytes arrived wrong" in str(result.rows[0].reason)


def test_wrong_data_both_ways_is_counted_in_both(registry: DeviceRegistry) -> None:
    _, result = measured(run_of(spec_of("vgpu:0", "vgpu:1", both_ways=True), registry, flipped("vgpu:1", "vgpu:0")))
    both = row(result, "vgpu:0", "vgpu:1", both_ways=True)
    assert both.verified is False
    assert "1 of 2,097,152 bytes" in str(both.reason)
    assert row(result, "vgpu:0", "vgpu:1", both_ways=False).verified is True


def test_data_of_the_wrong_buffer_is_noticed(registry: DeviceRegistry) -> None:
    """Bidirectional, with wrong data on the way back: the two directions have different patterns."""
    sources: dict[str, torch.Tensor] = {}

    def crossed(destination: torch.Tensor, source: torch.Tensor) -> None:
        other = sources.get(str(destination.device), source)
        sources[str(source.device)] = source
        has_values = not any(getattr(tensor, "_inner", tensor).is_meta for tensor in (other, destination))
        send(destination, other if has_values and other.shape == destination.shape else source)

    _, result = measured(run_of(spec_of("vgpu:0", "vgpu:1", sizes=(MIB,), both_ways=True), registry, crossed))
    assert row(result, "vgpu:0", "vgpu:1", both_ways=True).verified is False


def test_a_card_that_is_lost_in_the_middle_leaves_the_rows_that_are_finished(registry: DeviceRegistry) -> None:
    def lost(destination: torch.Tensor, source: torch.Tensor) -> None:
        if len(destination) == MIB:
            raise RuntimeError("CUDA error: GPU is lost")
        send(destination, source)

    run = run_of(spec_of("vgpu:0"), registry, lost)
    run.prepare()
    with pytest.raises(RuntimeError, match="GPU is lost"):
        list(iter(run.step, None))
    result = run.result(stopped=False, failure="CUDA error: GPU is lost")
    assert result is not None
    assert [one.bytes for one in result.rows] == [4 * KIB]
    assert (result.failure, result.stopped) == ("CUDA error: GPU is lost", True)
    assert sum(one.measured_seconds or 0.0 for one in result.rows) == pytest.approx(result.seconds)
    assert run.step() is None


def test_a_card_that_is_full_in_the_middle_leaves_the_rows_that_are_finished(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    run = run_of(spec_of("vgpu:0", sizes=(MIB, 4 * GIB)), registry)
    taken = meta_empty((8 * GIB,), torch.uint8, "vgpu:0")  # changed after the check
    run.prepare()
    with pytest.raises(torch.OutOfMemoryError):
        list(iter(run.step, None))
    result = run.result(stopped=False, failure="full")
    assert result is not None
    assert [one.bytes for one in result.rows] == [MIB]
    del taken, run
    assert virtual.gpu("vgpu:0").memory.allocated_bytes == 0


def test_stopping_keeps_what_was_measured_and_gives_the_memory_back(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    stop = threading.Event()
    run = run_of(spec_of("vgpu:0", sizes=(MIB, 2 * MIB, 4 * MIB)), registry, stop=stop)
    run.prepare()
    while (point := run.step()) is not None:
        if point.part is None and point.text.endswith("2 MiB"):
            stop.set()
    result = run.result(stopped=True)
    assert result is not None
    assert result.stopped
    assert [one.bytes for one in result.rows] == [MIB]
    assert virtual.gpu("vgpu:0").memory.allocated_bytes == 0


def test_the_result_gives_the_memory_back_though_the_run_was_left_in_the_midst_of_a_row(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    run = run_of(spec_of("vgpu:0"), registry)
    assert run.step() is not None
    assert virtual.gpu("vgpu:0").memory.allocated_bytes > 0
    assert run.result(stopped=True) is None
    assert virtual.gpu("vgpu:0").memory.allocated_bytes == 0


def test_stopped_before_the_first_row_there_is_no_result(registry: DeviceRegistry) -> None:
    stop = threading.Event()
    stop.set()
    run = run_of(spec_of("cpu"), registry, stop=stop)
    run.prepare(stop.is_set)
    assert run.step() is None
    assert run.result(stopped=True) is None


def test_nothing_stays_allocated_after_a_run(registry: DeviceRegistry, virtual: VirtualMachine) -> None:
    measured(run_of(spec_of("cpu", "vgpu:0", "vgpu:1", both_ways=True), registry))
    assert [gpu.memory.allocated_bytes for gpu in virtual.gpus] == [0, 0]


# --- what is refused


def test_everything_that_is_wrong_is_said_at_once(registry: DeviceRegistry) -> None:
    wrong = BandwidthSpec(sources=("cpu", "cuda:7"), destinations=("vgpu:0",), sizes=(0, 4096), pinned=(), seconds=0)
    with pytest.raises(BadInput) as caught:
        check_bandwidth(wrong, registry)
    findings = caught.value.findings
    assert findings[0] == "there is no device 'cuda:7' here; there are cpu, vgpu:0, vgpu:1"
    assert any("a copy of 0 bytes" in finding for finding in findings)
    assert any("pinned, pageable or both" in finding for finding in findings)
    assert any("0 seconds" in finding for finding in findings)


def test_an_absent_device_offers_virtual_gpus_where_there_are_none() -> None:
    with pytest.raises(BadInput) as caught:
        check_bandwidth(spec_of("cuda:13"), DeviceRegistry([TorchBackend()]))
    assert caught.value.virtual_helps


def test_a_size_that_does_not_fit_is_refused_with_the_bytes_needed(registry: DeviceRegistry) -> None:
    with pytest.raises(
        DoesNotFit, match=r"copies of 10.00 GiB need 20.00 GiB on vgpu:0, and 14.36 GiB are free"
    ) as caught:
        check_bandwidth(spec_of("vgpu:0", sizes=(10 * GIB,)), registry)
    assert (caught.value.device, caught.value.needed_bytes) == ("vgpu:0", 20 * GIB)
    with pytest.raises(DoesNotFit, match=r"need 1048576\.00 TiB on cpu"):
        check_bandwidth(spec_of("cpu", sizes=(1 << 59,)), registry)


def test_beside_a_virtual_gpu_only_its_own_memory_counts(registry: DeviceRegistry) -> None:
    spec = BandwidthSpec(sources=("cpu",), destinations=("vgpu:0",), sizes=(14 * GIB,))
    assert check_bandwidth(spec, registry) == spec
    with pytest.raises(DoesNotFit, match=r"need 28\.00 GiB on vgpu:0"):
        check_bandwidth(
            BandwidthSpec(sources=("cpu",), destinations=("vgpu:0",), sizes=(14 * GIB,), both_ways=True), registry
        )


def test_no_pair_and_no_size_are_refused(registry: DeviceRegistry) -> None:
    with pytest.raises(BadInput, match="a source, a destination and a size"):
        check_bandwidth(spec_of(), registry)
    with pytest.raises(BadInput, match="a source, a destination and a size"):
        check_bandwidth(spec_of("cpu", sizes=()), registry)


def test_names_become_canonical(registry: DeviceRegistry) -> None:
    assert check_bandwidth(spec_of("CPU", "vgpu"), registry).sources == ("cpu", "vgpu:0")
