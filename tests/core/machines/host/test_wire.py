"""The link between window and host: in order, once, whatever the connection does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from fakes.slow_link import SlowLink
from hypothesis import given, settings
from hypothesis import strategies as st

from devexplorer.core.base import LinkError
from devexplorer.core.codec import decoder
from devexplorer.core.machines.host.wire import SILENT_S, Outbox, Wire, compresses, read_hello, send_hello
from devexplorer.core.machines.records import ZLIB, Happened, Hello, ToWindow
from devexplorer.core.records import DeviceSample, Log

_DECODER = decoder(ToWindow)


def decode(payload: bytes) -> Any:
    try:
        return _DECODER.decode(payload)
    except msgspec.MsgspecError as error:
        raise LinkError(str(error)) from error


def said(text: str) -> Happened:
    return Happened(event=Log(level="info", text=text, time_unix_s=1.0))


def reading(time_unix_s: float) -> Happened:
    return Happened(event=DeviceSample(device="cpu", time_unix_s=time_unix_s))


class End:
    """One end of a link, and what it got."""

    def __init__(self, link: SlowLink, near: bool, outbox: Outbox, **options: Any) -> None:
        self.got: list[Any] = []
        self.reasons: list[str] = []
        self.news = threading.Condition()
        stream = link.near if near else link.far
        self.wire = Wire(stream, decode, outbox, self._deliver, self._ended, link.cut, **{"compressed": True} | options)
        self.wire.start()

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


@pytest.fixture
def link() -> Iterator[SlowLink]:
    made = SlowLink()
    yield made
    made.close()


@pytest.mark.parametrize("compressed", [True, False])
def test_records_arrive_in_order_with_readings_among_them(link: SlowLink, compressed: bool) -> None:
    outbox = Outbox()
    for index in range(300):
        outbox.put(said(str(index)))
        outbox.put(reading(float(index)), reading=True)
    sender = End(link, True, outbox, compressed=compressed)
    receiver = End(link, False, Outbox(), compressed=compressed)
    receiver.wait(lambda: len(receiver.got) == 600)
    assert receiver.texts == [str(index) for index in range(300)]
    order = [record.event.time_unix_s for record in receiver.got if isinstance(record.event, DeviceSample)]
    assert order == [float(index) for index in range(300)]
    assert [record.number for record in receiver.got[:4]] == [1, 0, 2, 0]
    assert sender.wire.sent_bytes == receiver.wire.received_bytes


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 4000), max_size=4), count=st.integers(1, 60))
def test_nothing_is_lost_or_said_twice_when_it_breaks_anywhere(cuts: list[int], count: int) -> None:
    outbox, got, received = Outbox(), list[str](), 0
    for index in range(count):
        outbox.put(said(f"{index} " + "x" * (index * 7 % 50)))
    for cut in [*cuts, None]:
        link = SlowLink()
        outbox.resume(received)
        receiver = End(link, False, Outbox(), received=received, compressed=False)
        if cut is None:
            End(link, True, outbox, received=0, compressed=False)
            receiver.wait(lambda wire=receiver.wire: wire.received == count)  # type: ignore[misc]
        else:
            link.near.write(_first_bytes(outbox, cut))
            link.cut()
        link.close()
        assert receiver.wire.join(5)
        got += receiver.texts
        received = receiver.wire.received
    assert got == [f"{index} " + "x" * (index * 7 % 50) for index in range(count)]


def _first_bytes(outbox: Outbox, count: int) -> bytes:
    """What a connection would have carried until it broke."""
    with outbox.changed:
        payloads = outbox.take(1 << 20)
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)[:count]


def test_what_was_acknowledged_is_let_go(link: SlowLink) -> None:
    outbox = Outbox(kept_limit_bytes=60_000)
    End(link, True, outbox)
    receiver = End(link, False, Outbox())
    for index in range(1000):
        outbox.put(said("x" * 100 + str(index)))
        with outbox.changed:  # however slow this machine is, the limit is not reached by what is on its way
            assert outbox.changed.wait_for(lambda: outbox._kept_bytes < 40_000, 20)
    receiver.wait(lambda: receiver.wire.received == 1000)
    assert not outbox.overflowed
    assert outbox.reaches(1000)
    assert not outbox.reaches(1001)


def test_too_much_that_nobody_takes_is_forgotten_and_said_to_be() -> None:
    outbox = Outbox(kept_limit_bytes=1000)
    for _ in range(5):
        outbox.put(said("x" * 300))
    assert outbox.overflowed
    assert not outbox.reaches(0)


def test_a_slow_link_drops_the_oldest_readings_and_no_record() -> None:
    link = SlowLink(bytes_per_s=50_000)
    outbox = Outbox(most_readings=10)
    for index in range(100):
        outbox.put(reading(float(index)), reading=True)
    outbox.put(said("done"))
    End(link, True, outbox)
    receiver = End(link, False, Outbox())
    receiver.wait(lambda: receiver.texts == ["done"])
    assert [record.event.time_unix_s for record in receiver.got[:-1]] == [float(index) for index in range(90, 100)]
    assert outbox.dropped == 90
    link.close()


def test_no_more_is_on_its_way_than_the_window(link: SlowLink) -> None:
    outbox = Outbox()
    link.open.clear()
    for _ in range(100):
        outbox.put(said("x" * 50_000))
    sender = End(link, True, outbox, compressed=False)
    receiver = End(link, False, Outbox(), compressed=False)
    with receiver.news:
        assert not receiver.news.wait_for(lambda: bool(receiver.got), 0.05)
    assert sender.wire.sent_bytes < 450_000
    link.open.set()
    receiver.wait(lambda: len(receiver.got) == 100)


def test_latency_and_the_other_clock_are_measured() -> None:
    link = SlowLink(delay_s=0.02)
    near, far = End(link, True, Outbox(), clock=lambda: 1000.0), End(link, False, Outbox(), clock=lambda: 1500.0)
    near.wire.beat()
    near.wire.outbox.put(said("before"))
    far.wait(lambda: far.texts == ["before"])
    far.wire.outbox.put(said("after"))  # behind the answer to the ping
    near.wait(lambda: near.texts == ["after"])
    assert near.wire.latency_s == 0.0  # by a clock that stands still
    assert near.wire.ahead_s == 500.0
    link.close()


def test_silence_ends_the_connection(link: SlowLink) -> None:
    now = [0.0]
    end = End(link, True, Outbox(), monotonic=lambda: now[0])
    now[0] = SILENT_S + 1
    end.wire.beat()
    assert end.reasons == ["nothing has come for 26 s"]


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\xff\xff\xff\xff", "was refused: the limit is"),
        (b"\x00\x00\x00\x02hi", "what came cannot be read"),
        (b"\x00\x00\x00\x10hi", "in the middle of a record"),
        (b"\x00\x00", "in the middle of a record"),
    ],
)
def test_garbage_ends_only_the_connection(link: SlowLink, garbage: bytes, reason: str) -> None:
    end = End(link, True, Outbox(), compressed=False)
    link.far.write(garbage)
    if "middle" in reason:
        link.hang_up_far()
    end.wait(lambda: bool(end.reasons))
    assert reason in end.reasons[0]


def test_a_stream_that_is_not_compressed_as_agreed_is_refused(link: SlowLink) -> None:
    end = End(link, True, Outbox())
    link.far.write(b"no zlib at all")
    end.wait(lambda: bool(end.reasons))
    assert "cannot be read" in end.reasons[0]


def test_greetings(link: SlowLink) -> None:
    ours = Hello(client="a" * 32, features=(ZLIB,))
    send_hello(link.near, ours)
    assert read_hello(link.far) == ours
    assert compresses(ours, ours)
    assert not compresses(ours, Hello())
    link.near.write(b"Welcome to the machine\n")
    with pytest.raises(LinkError, match="is not DevExplorer"):
        read_hello(link.far)
