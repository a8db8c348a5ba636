"""Copies: other accelerators and CUDA's streams, emulated on the CPU; patterns, samples and the list of rows, by their
properties."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthSpec
from devexplorer.core.bandwidth.run import (
    BandwidthRun,
    Case,
    Copier,
    Send,
    TwoWays,
    cases,
    check_bandwidth,
    pattern,
    send,
)
from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.benchmark import timing
from devexplorer.core.benchmark.statistics import LONGEST_BLOCK, Samples, block_length
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import DeviceInfo
from devexplorer.core.virtual.device.machine import VirtualMachine

KIB, MIB = 1 << 10, 1 << 20


def measured(spec: BandwidthSpec, registry: DeviceRegistry, send: Send = send) -> BandwidthResult:
    run = BandwidthRun(check_bandwidth(spec, registry), 7, registry, threading.Event(), lambda: 5.0, send=send)
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    return result


def spec_of(*devices: str, **other: Any) -> BandwidthSpec:
    return BandwidthSpec(**{"sources": devices, "destinations": devices, "sizes": (KIB,), "seconds": 0.001, **other})


class PlayedCards:
    """Fake accelerators; tensors on them are created on the CPU (see `played`)."""

    def __init__(self, kind: str) -> None:
        self._devices = tuple(DeviceInfo(id=f"{kind}:{index}", kind=kind, name="played") for index in range(2))
        self.synchronized: list[str] = []

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._devices

    def free_bytes(self, device: str) -> None:
        return None

    def synchronize(self, device: str) -> None:
        self.synchronized.append(device)


def played(monkeypatch: pytest.MonkeyPatch, kind: str, *, pins: bool = True) -> tuple[DeviceRegistry, PlayedCards]:
    cards = PlayedCards(kind)
    empty = torch.empty

    def on_the_cpu(*args: Any, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        if pin_memory and not pins:
            raise RuntimeError("Cannot access accelerator device when none is available.\nmore")
        return empty(*args, device=None if str(device).startswith(kind) else device, **kwargs)

    monkeypatch.setattr(torch, "empty", on_the_cpu)
    return DeviceRegistry([TorchBackend(), cards]), cards  # type: ignore[list-item]


def test_real_accelerators_are_waited_for_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, cards = played(monkeypatch, "xpu")
    result = measured(spec_of("cpu", "xpu:0", "xpu:1"), registry)
    assert result.verified is True
    assert not result.simulated
    assert {(one.source, one.destination, one.pinned) for one in result.rows if "cpu" in (one.source,
                                                                                          one.destination)} >= {
        ("cpu", "xpu:0", True), ("cpu", "xpu:0", False), ("xpu:0", "cpu", True), ("xpu:0", "cpu", False),
    }  # fmt: skip
    assert set(cards.synchronized) == {"xpu:0", "xpu:1"}


def test_without_pinned_memory_those_rows_have_the_reason_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _ = played(monkeypatch, "xpu", pins=False)
    spec = BandwidthSpec(sources=("cpu",), destinations=("xpu:0",), sizes=(KIB,), seconds=0.001)
    result = measured(spec, registry)
    pinned, pageable = result.rows
    assert pinned.gb_per_s is None
    assert pinned.reason == "there is no pinned memory here: Cannot access accelerator device when none is available."
    assert pageable.verified is True


def test_two_ways_at_once_are_not_claimed_where_they_cannot_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _ = played(monkeypatch, "xpu")
    result = measured(spec_of("xpu:0", "xpu:1", both_ways=True), registry)
    both = next(one for one in result.rows if one.both_ways)
    assert both.gb_per_s is None
    assert "two copies at once cannot be timed here: torch's generic streams and events are about" in str(both.reason)


def test_a_real_pair_that_is_wrong_gets_its_route_also_without_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _ = played(monkeypatch, "xpu", pins=False)

    def wrong(destination: torch.Tensor, source: torch.Tensor) -> None:
        send(destination, source)
        destination[0] ^= 1

    spec = BandwidthSpec(sources=("xpu:0",), destinations=("xpu:1",), sizes=(KIB,), seconds=0.001)
    result = measured(spec, registry, wrong)
    assert [one.verified for one in result.rows] == [False, None]
    assert "no pinned memory" in str(result.rows[1].reason)


def test_real_and_virtual_cards_are_not_compared(virtual: VirtualMachine) -> None:
    registry = DeviceRegistry([TorchBackend(), PlayedCards("xpu"), virtual])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="xpu:0 is real and vgpu:0 simulated: their clocks cannot be compared"):
        check_bandwidth(spec_of("cpu", "xpu:0", "vgpu:0"), registry)


class PlayedCuda:
    """Streams and events that record what happens, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current: list[str] = []
        self.streams = 0
        outer = self

        class Stream:
            def __init__(self, device: torch.device) -> None:
                outer.streams += 1
                self.name = f"s{outer.streams}@{device.index}"

            def wait_event(self, event: Any) -> None:
                outer.log.append(f"{self.name} waits for {event.on}")

            def wait_stream(self, other: Any) -> None:
                outer.log.append(f"{self.name} joins {other.name}")

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: Any) -> None:
                self.on = stream.name
                outer.log.append(f"event on {stream.name}")

            def elapsed_time(self, other: Any) -> float:
                return 8.0

        self.Stream, self.Event = Stream, Event

    def stream(self, stream: Any) -> Any:
        return _Within(self.current, stream.name)

    def device(self, device: torch.device) -> Any:
        return _Within([], str(device))

    def synchronize(self, device: torch.device) -> None:
        self.log.append(f"wait {device.index}")


class _Within:
    def __init__(self, names: list[str], name: str) -> None:
        self._names, self._name = names, name

    def __enter__(self) -> None:
        self._names.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._names.pop()


@pytest.mark.parametrize("devices", [("cuda:0",), ("cuda:0", "cuda:1")])
def test_two_ways_on_cuda_have_streams_of_their_own_between_one_pair_of_events(
    monkeypatch: pytest.MonkeyPatch, devices: Sequence[str]
) -> None:
    cuda = PlayedCuda()
    monkeypatch.setattr(timing, "torch", SimpleNamespace(cuda=cuda, device=torch.device))
    moves = [lambda way=way: cuda.log.append(f"{way} on {' '.join(cuda.current)}") for way in ("there", "back")]
    block = TwoWays(devices, moves).block(4)
    assert (block.iterations, block.seconds, block.samples) == (4, 0.008, (0.002,))
    there = {line for line in cuda.log if line.startswith("there")}
    back = {line for line in cuda.log if line.startswith("back")}
    if len(devices) == 1:
        assert (there, back) == ({"there on s1@0"}, {"back on s2@0"})
    else:
        assert (there, back) == ({"there on s1@0 s2@1"}, {"back on s3@0 s4@1"})
    count = 2 * len(devices)
    first, last = cuda.log.index("event on s1@0"), len(cuda.log) - 1 - cuda.log[::-1].index("event on s1@0")
    copies = [place for place, line in enumerate(cuda.log) if line.startswith(("there", "back"))]
    assert len(copies) == 8
    assert cuda.log[first + 1 : copies[0]] == [
        f"s{n}@{(n - 1) % len(devices)} waits for s1@0" for n in range(2, count + 1)
    ]
    assert cuda.log[copies[-1] + 1 : last] == [f"s1@0 joins s{n}@{(n - 1) % len(devices)}" for n in range(2, count + 1)]
    assert cuda.log[last + 1 :] == [f"wait {index}" for index in range(len(devices))]


def test_pinning_asks_torch_for_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _ = played(monkeypatch, "xpu", pins=False)
    copier = Copier(registry, threading.Event(), set())
    assert len(copier.legs(Case("cpu", "xpu:0", 64, pinned=False))) == 1
    with pytest.raises(Unavailable, match="no pinned memory"):
        copier.legs(Case("cpu", "xpu:0", 64, pinned=True))


def test_what_is_copied_was_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untouched pages all map to one zero page: reading them would be faster than memory."""
    registry, _ = played(monkeypatch, "xpu")
    copier = Copier(registry, threading.Event(), set())
    for case in (
        Case("cpu", "cpu", 64),
        Case("xpu:0", "xpu:1", 64, both_ways=True),
        Case("xpu:0", "xpu:1", 64, pinned=True, through_host=True),
    ):
        legs = copier.legs(case)
        assert all(bool(source.all()) for _, source in (legs[:1] if case.through_host else legs))
        assert len(legs) == 1 + (case.both_ways or case.through_host)


def test_each_row_is_measured_for_as_long_as_was_asked() -> None:
    registry = DeviceRegistry([TorchBackend()])
    short, long = (measured(spec_of("cpu", seconds=seconds), registry) for seconds in (1e-6, 0.12))
    assert short.seconds < long.seconds
    assert long.seconds >= 0.12


# --- properties

devices = st.lists(st.sampled_from(["cpu", "vgpu:0", "vgpu:1", "cuda:0"]), min_size=1, max_size=4).map(tuple)
sizes = st.lists(st.sampled_from([1, 4096, MIB]), min_size=1, max_size=3).map(tuple)


@given(devices, devices, sizes, st.sampled_from([(True,), (False,), (True, False), (False, True, True)]), st.booleans())
def test_every_pair_size_and_kind_is_measured_exactly_once(
    sources: tuple[str, ...],
    destinations: tuple[str, ...],
    nbytes: tuple[int, ...],
    pinned: tuple[bool, ...],
    both_ways: bool,
) -> None:
    found = cases(
        BandwidthSpec(sources=sources, destinations=destinations, sizes=nbytes, pinned=pinned, both_ways=both_ways)
    )
    assert len(found) == len(set(found))
    one_way = [case for case in found if not case.both_ways]
    assert {case[:3] for case in one_way} == {(a, b, size) for a in sources for b in destinations for size in nbytes}
    assert all((case.pinned is None) == (("cpu" in case[:2]) == (case[:2] == ("cpu", "cpu"))) for case in found)
    both = [(frozenset(case[:2]), case.nbytes) for case in found if case.both_ways]
    assert len(both) == len(set(both))
    assert both_ways or not both
    assert all(case.pinned is not False for case in found if case.both_ways)


@given(st.integers(1, 5000), st.integers(0, 1000), st.integers(0, 50))
def test_a_pattern_repeats_no_eight_bytes_and_no_earlier_pattern(size: int, words: int, number: int) -> None:
    first = pattern(size, 8 * words, number)
    assert (first.dtype, len(first)) == (torch.uint8, size)
    whole = first[: size // 8 * 8].view(torch.int64)
    assert len(torch.unique(whole)) == len(whole)
    later = pattern(size, 8 * words, number + 1)
    assert not torch.equal(first, later)
    if size >= 8:
        assert not bool((whole == later[: size // 8 * 8].view(torch.int64)).any())


@given(st.integers(1, 400), st.integers(0, 60))
def test_a_pattern_in_pieces_is_the_pattern(size: int, words: int) -> None:
    whole = pattern(size + 8 * words, 0, 3)
    assert torch.equal(whole[8 * words :], pattern(size, 8 * words, 3))


@given(st.lists(st.floats(1e-9, 1e3), max_size=300), st.integers(2, 40))
def test_samples_are_kept_evenly_and_in_their_order(samples: list[float], most: int) -> None:
    kept = Samples(most)
    numbered = list(range(len(samples)))
    for start in range(0, len(samples), 7):
        kept.add(numbered[start : start + 7])
    assert len(kept.kept) <= most
    steps = {after - before for before, after in zip(kept.kept, kept.kept[1:], strict=False)}
    assert len(steps) <= 1
    if samples:
        assert kept.kept[0] == 0
        stride = steps.pop() if steps else 1
        assert kept.kept[-1] + stride >= len(samples) - 1 or len(samples) <= most
    if len(samples) <= most:
        assert kept.kept == numbered


@given(st.floats(0, 1e6, allow_nan=False))
def test_a_block_is_one_iteration_at_least_and_bounded(each: float) -> None:
    length = block_length(each)
    assert 1 <= length <= LONGEST_BLOCK
    assert length == 1 or length * each <= 0.05 + 1e-9
