"""The mailbox: order kept, readings bounded and counted, results and failures never lost."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.records import AllocatorSample, BenchPoint, DeviceSample, Event, JobEnded, Log
from devexplorer.core.telemetry.mailbox import Mailbox


def sample(number: int) -> DeviceSample:
    return DeviceSample(device="cpu", time_unix_s=float(number))


def report(number: int) -> Log:
    return Log(level="info", text=str(number), time_unix_s=float(number))


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 10))
def test_what_remains_keeps_its_order_and_only_the_oldest_readings_go(droppable: list[bool], limit: int) -> None:
    mailbox = Mailbox(limit)
    events: list[Event] = [sample(i) if drop else report(i) for i, drop in enumerate(droppable)]
    for event in events:
        mailbox.put(event)
    stream = [event for event in events if isinstance(event, DeviceSample)]
    gone = stream[: max(len(stream) - limit, 0)]
    assert mailbox.dropped == len(gone)
    assert mailbox.drain() == [event for event in events if event not in gone]
    assert mailbox.drain() == []


def test_each_kind_of_reading_can_be_dropped_and_nothing_else() -> None:
    point = BenchPoint(run=1, device="cpu", time_unix_s=0, tflops=1, iterations=1, seconds=1)
    allocator = AllocatorSample(device="cpu", time_unix_s=0, allocated_bytes=0, reserved_bytes=0)
    mailbox = Mailbox(1)
    kept = [report(1), JobEnded(ok=False, time_unix_s=0), report(2)]
    for event in (point, kept[0], allocator, kept[1], sample(1), kept[2], sample(2)):
        mailbox.put(event)
    assert mailbox.dropped == 3
    assert mailbox.drain() == [*kept, sample(2)]


def test_many_threads_put_and_each_one_s_order_is_kept() -> None:
    mailbox = Mailbox(10)
    threads = [
        threading.Thread(
            target=lambda base=base: [mailbox.put(report(base + i)) for i in range(200)], name=f"putter-{base}"
        )
        for base in (0, 1000, 2000)
    ]
    for thread in threads:
        thread.start()
    got: list[Event] = []
    while any(thread.is_alive() for thread in threads):
        got += mailbox.drain()
    for thread in threads:
        thread.join()
    got += mailbox.drain()
    numbers = [int(event.text) for event in got if isinstance(event, Log)]
    for base in (0, 1000, 2000):
        assert [number for number in numbers if base <= number < base + 1000] == list(range(base, base + 200))


@pytest.mark.parametrize("limit", [0, -5])
def test_it_holds_at_least_one(limit: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Mailbox(limit)
