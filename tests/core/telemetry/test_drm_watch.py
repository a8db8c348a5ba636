"""The sampler of AMD and Intel cards: its thread, device names, and how it completes the engine's readings."""

from __future__ import annotations

import queue

import pytest

from devexplorer.core.devices.drm import DETAILS_INTERVAL_S, Drm, DrmCard, DrmSampler
from devexplorer.core.records import DeviceDetails, DeviceSample, Event

AMD = DrmCard(0, "AMD", "AMD Radeon", "0000:03:00.0", "amdgpu", 16 << 30, shared=False)
ARC = DrmCard(1, "Intel", "Intel Arc", "0000:05:00.0", "xe", 12 << 30, shared=False)


class Kernel(Drm):
    """Cards without files."""

    def __init__(self, *cards: DrmCard) -> None:
        self.found = cards

    def cards(self) -> tuple[DrmCard, ...]:
        return self.found

    def read(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceSample:
        return DeviceSample(device=device, time_unix_s=time_unix_s, temperature_c=50.0, memory_total_bytes=1)

    def details(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceDetails:
        return DeviceDetails(device=device, time_unix_s=time_unix_s)


@pytest.fixture
def events() -> queue.SimpleQueue[Event]:
    return queue.SimpleQueue()


def test_every_card_is_read_again_and_again_and_its_details_seldom(events: queue.SimpleQueue[Event]) -> None:
    now = 100.0
    watch = DrmSampler(events.put, Kernel(AMD), unix_clock=lambda: now)
    watch.tick()
    watch.set_names({"0000:03:00.0": "cuda:0"})
    now += 1
    watch.tick()
    now += DETAILS_INTERVAL_S
    watch.tick()
    said = [events.get(timeout=1) for _ in range(events.qsize())]
    assert [(type(event).__name__, event.device) for event in said] == [  # type: ignore[union-attr]
        ("DeviceSample", "drm:0"), ("DeviceDetails", "drm:0"),
        ("DeviceSample", "cuda:0"), ("DeviceDetails", "cuda:0"),
        ("DeviceSample", "cuda:0"), ("DeviceDetails", "cuda:0"),
    ]  # fmt: skip


def test_what_the_engine_reads_itself_is_completed_not_contradicted(events: queue.SimpleQueue[Event]) -> None:
    watch = DrmSampler(events.put, Kernel(ARC), unix_clock=lambda: 1.0)
    watch.set_names({"0000:05:00.0": "xpu:0"})
    engine = DeviceSample(device="xpu:0", time_unix_s=2.0, memory_used_bytes=7, memory_total_bytes=9)
    assert watch.completed(engine) == engine, "nothing is known yet"
    watch.tick()
    assert isinstance(events.get(timeout=1), DeviceDetails)
    assert events.empty(), "two sources of one curve would take turns"
    assert watch.completed(engine) == DeviceSample(
        device="xpu:0", time_unix_s=2.0, memory_used_bytes=7, memory_total_bytes=9, temperature_c=50.0
    )


def test_the_thread_tells_what_it_found_and_ends_when_asked(events: queue.SimpleQueue[Event]) -> None:
    found: queue.SimpleQueue[tuple[DrmCard, ...]] = queue.SimpleQueue()
    watch = DrmSampler(events.put, Kernel(AMD), found.put, interval_s=0.01)
    watch.start()
    assert found.get(timeout=5) == (AMD,)
    for _ in range(3):
        events.get(timeout=5)
    assert watch.stop(5.0)


def test_without_cards_no_thread_stays(events: queue.SimpleQueue[Event]) -> None:
    found: queue.SimpleQueue[tuple[DrmCard, ...]] = queue.SimpleQueue()
    watch = DrmSampler(events.put, Kernel(), found.put)
    assert watch.stop(0.0), "never started"
    watch = DrmSampler(events.put, Kernel(), found.put)
    watch.start()
    assert found.get(timeout=5) == ()
    assert watch.stop(5.0)
    assert events.empty()
