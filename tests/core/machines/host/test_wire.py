"""The link between window and host: in order, as much as it takes, and nothing that does not belong there."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.hosts import decode
from fakes.slow_link import SlowLink

from devexplorer.core.base import LinkError
from devexplorer.core.engine.link import frame
from devexplorer.core.machines.host import wire as wire_module
from devexplorer.core.machines.host.wire import (
    LATE_S,
    SILENT_S,
    Wire,
    read_hello,
    send_hello,
)
from devexplorer.core.machines.records import Happened, Hello
from devexplorer.core.records import DeviceSample, Log


def said(text: str) -> bytes:
    return frame(Happened(event=Log(level="info", text=text, time_unix_s=1.0)))


def reading(time_unix_s: float) -> bytes:
    return frame(Happened(event=DeviceSample(device="cpu", time_unix_s=time_unix_s)))


class End:
    """One end of a link, and what it got."""

    def __init__(self, link: SlowLink, near: bool, first: tuple[bytes, ...] = (), **options: Any) -> None:
        self.got: list[Any] = []
        self.reasons: list[str] = []
        self.news = threading.Condition()
        stream = link.near if near else link.far
        self.wire = Wire(stream, decode, self._deliver, self._ended, link.cut, **options)
        self.wire.start(first)

    def _deliver(self, record: Any) -> None:
        with self.news:
            self.got.append(record)
            self.news.notify_all()

    def _ended(self, reason: str) -> None:
        with self.news:
            self.reasons.append(reason)
            self.news.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(condition, 20)

    @property
    def texts(self) -> list[str]:
        return [record.event.text for record in self.got if isinstance(record.event, Log)]

    @property
    def times(self) -> list[float]:
        return [record.event.time_unix_s for record in self.got if isinstance(record.event, DeviceSample)]


@pytest.fixture
def link() -> Iterator[SlowLink]:
    made = SlowLink()
    yield made
    made.close()


def test_records_arrive_in_order_with_readings_among_them(link: SlowLink) -> None:
    sender = End(link, True, (said("first"), said("second")))
    for index in range(200):
        sender.wire.put(said(str(index)))
        sender.wire.put(reading(float(index)), reading=True)
    receiver = End(link, False)
    receiver.wait(lambda: len(receiver.got) == 402)
    assert receiver.texts == ["first", "second", *map(str, range(200))]
    assert receiver.times == [float(index) for index in range(200)]
    assert [type(record.event) for record in receiver.got[2:6]] == [Log, DeviceSample] * 2
    assert sender.wire.sent_bytes == receiver.wire.received_bytes


def test_a_busy_link_is_sent_no_readings(link: SlowLink) -> None:
    now = [0.0]
    sender = End(link, True, monotonic=lambda: now[0])
    link.open.clear()
    sender.wire.beat()
    sender.wire.put(reading(0.0), reading=True)
    now[0] = LATE_S + 0.1
    for index in range(10):
        sender.wire.put(reading(float(index)), reading=True)
    sender.wire.put(said("what happens is told"))
    assert sender.wire.dropped == 10
    link.open.set()
    receiver = End(link, False)
    receiver.wait(lambda: len(receiver.got) == 2)
    assert (receiver.times, receiver.texts) == ([0.0], ["what happens is told"])
    receiver.wire.beat()
    receiver.wire.put(said("asked"))
    sender.wait(lambda: sender.texts == ["asked"])
    sender.wire.put(reading(1.0), reading=True)
    sender.wire.put(said("answered"))
    receiver.wait(lambda: receiver.texts[-1] == "answered")
    assert receiver.wire.dropped_there == 10
    assert receiver.times == [0.0, 1.0]


def test_a_link_that_takes_too_little_ends_but_a_snapshot_may_be_of_any_size(
    link: SlowLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "MOST_WAITING_BYTES", 10_000)
    sender = End(link, True, tuple(said("x" * 500) for _ in range(100)))
    receiver = End(link, False)
    receiver.wait(lambda: len(receiver.got) == 100)
    link.open.clear()
    for _ in range(2000):
        sender.wire.put(said("x" * 500))
    assert sender.reasons == ["the link is too slow for what there is to say"]


def test_latency_and_the_other_clock_are_measured(link: SlowLink) -> None:
    near = End(link, True, clock=lambda: 1000.0, monotonic=lambda: 7.0)
    far = End(link, False, clock=lambda: 1500.0)
    assert near.wire.latency_s is None
    near.wire.beat()
    near.wire.put(said("before"))
    far.wait(lambda: far.texts == ["before"])
    far.wire.put(said("after"))  # behind the answer to the ping
    near.wait(lambda: near.texts == ["after"])
    assert near.wire.latency_s == 0.0  # by a clock that stands still
    assert near.wire.ahead_s == 500.0


def test_silence_ends_the_connection(link: SlowLink) -> None:
    now = [0.0]
    end = End(link, True, monotonic=lambda: now[0])
    now[0] = SILENT_S + 1
    end.wire.beat()
    assert end.reasons == ["nothing has come for 26 s"]


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (zlib.compress(b"\xff\xff\xff\xff")[:-4], "was refused: the limit is"),
        (zlib.compress(b"\x00\x00\x00\x02hi")[:-4], "what came cannot be read"),
        (zlib.compress(b"\x00\x00\x00\x10hi")[:-4], "the link ended after 2 of a frame's 16 bytes"),
        (zlib.compress(b"\x00\x00")[:-4], "inside the length of a frame"),
        (zlib.compress(said("whole")), "the compressed stream has ended"),
        (b"no zlib at all", "what came cannot be read"),
    ],
)
def test_garbage_ends_only_the_connection(link: SlowLink, garbage: bytes, reason: str) -> None:
    end = End(link, True)
    link.far.write(garbage)
    link.hang_up_far()
    end.wait(lambda: bool(end.reasons))
    assert reason in end.reasons[0]


def test_a_few_bytes_that_stand_for_gigabytes_are_refused_as_they_come(link: SlowLink) -> None:
    end = End(link, True)
    pack = zlib.compressobj(9)
    bomb = pack.compress((1 << 25).to_bytes(4, "big")) + pack.compress(bytes(1 << 25)) + pack.flush()
    link.far.write(bomb)
    end.wait(lambda: bool(end.reasons))
    assert "cannot be read" in end.reasons[0]


def test_greetings(link: SlowLink) -> None:
    ours = Hello(client="a" * 32)
    send_hello(link.near, ours)
    assert read_hello(link.far) == ours
    link.near.write(b"Welcome to the machine\n")
    with pytest.raises(LinkError, match="is not DevExplorer"):
        read_hello(link.far)
