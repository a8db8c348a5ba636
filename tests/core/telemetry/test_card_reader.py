"""Readings of one card: an unexpected failure loses that reading and nothing more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.nvml import FakeCard, FakeNvml, opened

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import DeviceDetails, DeviceSample, Event
from devexplorer.core.telemetry.card_reader import CardReader, Schedule


@pytest.fixture
def put() -> list[Event]:
    return []


def reader_of(nvml: Nvml, put: list[Event]) -> CardReader:
    (card,) = nvml.cards()
    return CardReader(card, nvml, put.append, lambda reader: reader.card.nvml_id, Schedule(lambda: 0.0, lambda: 1.0))


def tick(reader: CardReader) -> None:
    """One tick with everything that it leaves for later."""
    jobs: list[Callable[[], None]] = []
    reader.tick(jobs.extend)
    while jobs:
        jobs.pop(0)()


@pytest.mark.parametrize("function", ["read", "read_slow", "read_details"])
def test_a_reading_that_fails_beyond_all_expectations_does_not_end_the_curve(
    put: list[Event], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    nvml, _ = opened(FakeNvml(FakeCard(uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001")))
    reader = reader_of(nvml, put)
    with monkeypatch.context() as broken:

        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("nobody expected this")

        broken.setattr(nvml, function, fails)
        assert reader.claim()
        with pytest.raises(RuntimeError):
            tick(reader)
    assert reader.claim(), "it is free for the next tick"
    tick(reader)
    assert isinstance(put[-2 if isinstance(put[-1], DeviceDetails) else -1], DeviceSample)
    assert reader.claim()
    with monkeypatch.context() as broken:
        broken.setattr(nvml, "read", fails)
        with pytest.raises(RuntimeError):
            reader.answer(lambda *_: None)
    assert reader.claim()
