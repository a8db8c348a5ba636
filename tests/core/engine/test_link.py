"""Frames on the link: whole, cut, oversized, malformed."""

import io
import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import LinkError
from devexplorer.core.engine.link import (
    EVENT_LIMIT,
    FRAME_HEAD,
    MOST_ROWS,
    ROWS_A_FRAME,
    Joiner,
    decode_command,
    decode_event,
    frame,
    over_the_link,
    pieces,
    read_payload,
)
from devexplorer.core.records import (
    AddVirtual,
    BenchPoint,
    EditElement,
    Event,
    JobStarted,
    Log,
    MatmulSpec,
    Move,
    ObjectChanged,
    ObjectSnapshot,
    Offer,
    Row,
    RowsChanged,
    RowsFollow,
    StartBenchmark,
)


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
    from devexplorer.core.records import Answer

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


def test_unreadable_texts_are_refused() -> None:
    with pytest.raises(LinkError, match="Log was refused"):
        decode_event(frame(Log(level="info", text="x" * 200_000, time_unix_s=0.0))[FRAME_HEAD:])


def snapshot_of(rows: int) -> ObjectSnapshot:
    tree = tuple(
        Row(path=str(at), name=str(at), kind="parameter", type="Parameter", depth=1, shape=(at,)) for at in range(rows)
    )
    return ObjectSnapshot(
        name="big", kind="model", type="Sequential", rows=tree, bytes_by_device={"cpu": 1}, tensors_by_device={"cpu": 1}
    )


def in_pieces(event: Event) -> list[ObjectChanged | RowsChanged | RowsFollow]:
    cut = list(pieces(event))
    assert all(isinstance(piece, ObjectChanged | RowsChanged | RowsFollow) for piece in cut)
    return cut  # type: ignore[return-value]


def changed(rows: int) -> RowsChanged:
    whole = snapshot_of(rows)
    rest = msgspec.structs.replace(whole, rows=())
    return RowsChanged(request=4, name="big", places=tuple(range(rows)), rows=whole.rows, rest=rest)


@pytest.mark.parametrize("rows", [0, 1, ROWS_A_FRAME, ROWS_A_FRAME + 1, 3 * ROWS_A_FRAME])
@pytest.mark.parametrize("kind", [lambda rows: ObjectChanged(request=3, snapshot=snapshot_of(rows)), changed])
def test_an_object_with_many_rows_crosses_in_several_frames_and_arrives_as_one_event(
    rows: int, kind: Callable[[int], Event]
) -> None:
    event = kind(rows)
    assert list(over_the_link(event, Joiner())) == [event]
    counts = [
        len(piece.snapshot.rows if isinstance(piece, ObjectChanged) else piece.rows) for piece in in_pieces(event)
    ]
    assert sum(counts) == rows
    assert max(counts) <= ROWS_A_FRAME
    assert len(counts) == max(1, -(-rows // ROWS_A_FRAME))


def test_other_events_between_the_pieces_arrive_at_once() -> None:
    joiner = Joiner()
    event = ObjectChanged(snapshot=snapshot_of(2 * ROWS_A_FRAME))
    first, second = pieces(event)
    log = Log(level="info", text="x", time_unix_s=0)
    assert joiner.take(first) is None
    assert joiner.take(log) is log
    assert joiner.take(second) == event


def test_pieces_that_do_not_fit_together_are_refused_and_the_next_object_arrives() -> None:
    joiner = Joiner()
    event = ObjectChanged(snapshot=snapshot_of(2 * ROWS_A_FRAME))
    first, second = pieces(event)
    with pytest.raises(LinkError, match="has not come"):
        joiner.take(second)
    joiner.take(first)
    assert isinstance(second, RowsFollow)
    with pytest.raises(LinkError, match="more than it announced"):
        joiner.take(msgspec.structs.replace(second, rows=(*second.rows, second.rows[0])))
    for announced in (-1, MOST_ROWS + 1):
        with pytest.raises(LinkError, match="announces"):
            joiner.take(ObjectChanged(snapshot=snapshot_of(1), following=announced))
    joiner.take(first)  # an engine that began anew: what came before is forgotten
    assert [joiner.take(piece) for piece in (first, second)] == [None, event]


def test_an_unreadable_text_is_refused_beside_rows_too() -> None:
    endless = msgspec.structs.replace(snapshot_of(3), values="x" * 200_000)
    with pytest.raises(LinkError, match="ObjectChanged was refused"):
        decode_event(frame(ObjectChanged(snapshot=endless))[FRAME_HEAD:])


def test_a_replayed_command_may_hold_what_no_axis_could_show() -> None:
    edit = EditElement(target="x", index=(0,), value=math.inf)
    started = JobStarted(title="editing x", time_unix_s=1.0, command=edit)
    assert decode_event(frame(started)[FRAME_HEAD:]) == started
    with pytest.raises(LinkError):
        decode_event(frame(JobStarted(title="editing x", time_unix_s=math.inf, command=edit))[FRAME_HEAD:])
