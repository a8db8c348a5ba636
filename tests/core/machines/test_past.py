"""What a host kept of a device comes to a window: small, with its gaps, and nothing that cannot be shown."""

from __future__ import annotations

import math
import zlib

import msgspec
import numpy as np
import pytest

from devexplorer.core.base import LinkError
from devexplorer.core.machines.host.known import past_readings, unpacked
from devexplorer.core.machines.records import PastReadings
from devexplorer.core.telemetry.history import DEVICE_METRICS, THROUGHPUT, History


def restored(past: PastReadings | None, metrics=DEVICE_METRICS, **options: float) -> History:
    assert past is not None
    over = msgspec.msgpack.decode(msgspec.msgpack.encode(past), type=PastReadings)
    history = History(metrics, **options)
    times, values = unpacked(over)
    history.fill(times, over.metrics, values)
    return history


def test_an_hour_of_eight_noisy_cards_is_small_and_the_newest_is_the_finest() -> None:
    rng = np.random.default_rng(3)
    history = History()
    now = 1_000_000.0
    for second in range(3600):
        for tenth in range(10 if second > 3000 else 1):
            history.append(now + second + tenth / 10, rng.normal(50.0, 9.0, len(DEVICE_METRICS)))
    past = past_readings("cuda:0", history)
    assert past is not None
    assert 8 * len(zlib.compress(msgspec.msgpack.encode(past), 1)) < 300 << 10
    copy = restored(past)
    times, _ = copy.readings("temperature_c")
    assert times[-1] == pytest.approx(history.latest_unix_s)
    assert times[-1] - times[0] > 3500
    assert np.diff(times)[-1] < np.diff(times)[0]
    assert not np.isnan(copy.readings("temperature_c")[1]).any(), "coarse, and no gap"


def test_values_and_gaps_come_back() -> None:
    history = History()
    metrics = [metric.id for metric in DEVICE_METRICS]
    column = metrics.index("memory_used_bytes")

    def row(used: float) -> list[float | None]:
        values: list[float | None] = [None] * len(metrics)
        values[column] = used
        return values

    for second in (*range(100), *range(200, 260)):
        history.append(5000.0 + second, row(80e9 + second * 1e6))
    copy = restored(past_readings("cuda:0", history))
    assert copy.metrics == ("memory_used_bytes",)
    assert copy.latest("memory_used_bytes") == pytest.approx(80e9 + 259e6, rel=2**-16)
    assert math.isnan(copy.value_at("memory_used_bytes", 5150.0))
    assert copy.value_at("memory_used_bytes", 5050.0) == pytest.approx(80e9 + 48e6, rel=2**-14)
    longer = past_readings("cuda:0", copy)
    copy.append(5300.0, row(1.0))
    assert longer is not None
    before = len(copy)
    copy.fill(*_arguments(longer))
    assert len(copy) == before, "nothing of it is newer"


def _arguments(past: PastReadings):
    times, values = unpacked(past)
    return times, past.metrics, values


def test_curves_of_two_runs_stay_two() -> None:
    history = History((THROUGHPUT,), gap_s=math.inf)
    for time_s, tflops in ((1.0, 2.0), (1.2, 2.0), (1.2, None), (1.3, 4.0), (1.4, 4.0), (1.4, None)):
        history.append(time_s, (tflops,))
    copy = restored(past_readings("cpu", history), (THROUGHPUT,), gap_s=math.inf)
    _, values = copy.readings("tflops")
    assert [None if math.isnan(value) else value for value in values] == [2.0, None, 4.0, None]


def test_a_history_without_a_reading_is_nothing() -> None:
    assert past_readings("cpu", History()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"after_s": b"123"},
        {"after_s": np.array([0.0, 1.0], dtype="<f4").tobytes()},
        {"after_s": np.array([2.0, 1.0, 3.0], dtype="<f4").tobytes()},
        {"after_s": np.array([0.0, 1.0, math.inf], dtype="<f4").tobytes()},
        {"after_s": np.array([0.0, 1.0, 1e7], dtype="<f4").tobytes()},
        {"values": b""},
        {"metrics": ()},
        {"metrics": ("a",) * 1000},
        {"values": bytes([0, 0, 0x80, 0x7F] * 3)},
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    history = History((THROUGHPUT,), gap_s=math.inf)
    for second in range(3):
        history.append(float(second), (1.0,))
    past = past_readings("cpu", history)
    assert past is not None
    unpacked(past)
    with pytest.raises(LinkError):
        unpacked(msgspec.structs.replace(past, **wrong))
