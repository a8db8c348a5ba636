"""Frames on the link: whole, cut, oversized, malformed."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.engine.link import EVENT_LIMIT, FRAME_HEAD, decode_command, decode_event, frame, read_payload
from devexplorer.core.errors import LinkError
from devexplorer.core.records.benchmark import BenchPoint, MatmulSpec
from devexplorer.core.records.messages import AddVirtual, Log, Move, Offer, StartBenchmark


def test_records_survive_the_link() -> None:
    command = StartBenchmark(request=7, spec=MatmulSpec(device="vgpu:1", m=64, n=32, k=16))
    event = Log(level="output", text="ünï", time_unix_s=1.5)
    stream = io.BytesIO(frame(command) + frame(event))
    first, second = read_payload(stream, EVENT_LIMIT), read_payload(stream, EVENT_LIMIT)
    assert first is not None
    assert second is not None
    assert decode_command(first) == command
    assert decode_event(second) == event
    assert read_payload(stream, EVENT_LIMIT) is None


def test_a_command_inside_an_event_keeps_its_type() -> None:
    from devexplorer.core.records.messages import Answer

    answer = Answer(
        title="t",
        words="w",
        offers=(Offer("Add", AddVirtual(spec="T4")), Offer("Move", Move(targets=("x",), device="cpu"))),
    )
    payload = read_payload(io.BytesIO(frame(answer)), EVENT_LIMIT)
    assert payload is not None
    assert decode_event(payload) == answer


def test_an_oversized_frame_is_refused_without_reading_it() -> None:
    stream = io.BytesIO(b"\xff\xff\xff\xff" + b"x" * 10)
    with pytest.raises(LinkError, match="limit"):
        read_payload(stream, EVENT_LIMIT)


@pytest.mark.parametrize("cut", [1, 3, 5, 10])
def test_a_cut_frame_is_an_error_and_not_an_end(cut: int) -> None:
    with pytest.raises(LinkError, match="ended"):
        read_payload(io.BytesIO(frame(Log(level="info", text="x" * 20, time_unix_s=0))[:cut]), EVENT_LIMIT)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_link_error(payload: bytes) -> None:
    for decode in (decode_event, decode_command):
        try:
            decode(payload)
        except LinkError:  # any other exception fails the test
            continue


def test_an_event_is_no_command() -> None:
    payload = frame(Log(level="info", text="", time_unix_s=0))[4:]
    with pytest.raises(LinkError, match="no command"):
        decode_command(payload)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_numbers_that_no_axis_can_show_are_refused(number: float) -> None:
    point = BenchPoint(run=1, device="cpu", time_unix_s=1.0, tflops=number, iterations=1, seconds=1.0)
    with pytest.raises(LinkError, match="BenchPoint was refused"):
        decode_event(frame(point)[FRAME_HEAD:])
    with pytest.raises(LinkError, match="Log was refused"):
        decode_event(frame(Log(level="info", text="", time_unix_s=number))[FRAME_HEAD:])


def test_texts_that_nobody_can_read_are_refused() -> None:
    with pytest.raises(LinkError, match="Log was refused"):
        decode_event(frame(Log(level="info", text="x" * 200_000, time_unix_s=0.0))[FRAME_HEAD:])
