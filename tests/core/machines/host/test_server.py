"""A host and its windows: who is told what, who may command, what a broken connection costs."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.hosts import READY, HostHere, WindowHere
from fakes.stored_runs import matmul, stored

from devexplorer.core.machines.host import server as server_module
from devexplorer.core.machines.host.known import MOST_COMMANDS, unpacked
from devexplorer.core.machines.host.server import LOST, MOST_CLIENTS, MOST_REPLIES, MOST_WAITING
from devexplorer.core.machines.records import (
    PROTOCOL,
    ActionsChanged,
    Control,
    DeleteRuns,
    DevicesChanged,
    Do,
    EngineChoice,
    ExportRuns,
    FindModels,
    Goodbye,
    HistoryChanged,
    HostQuestion,
    ImportRuns,
    ListFolder,
    ListRuns,
    PastReadings,
    ReadFile,
    RecogniseFiles,
    RecordingChanged,
    Reply,
    RestartEngine,
    SetHidden,
    SetPython,
    SetVisibleDevices,
    SnapshotBegin,
    SnapshotEnd,
    StartRecording,
    StopRecording,
    TagRuns,
    TakeOver,
    WriteFile,
    WriteScript,
)
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    BuildModel,
    DeviceSample,
    EngineLost,
    EngineReady,
    JobEnded,
    JobStarted,
    Log,
    MatmulSpec,
    ObjectChanged,
    ObjectSnapshot,
    UndoState,
)
from devexplorer.core.session.poll import MOST_EVENTS
from devexplorer.core.session.state import State


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostHere]:
    made = HostHere(tmp_path)
    made.say(READY)
    yield made
    made.close()


@pytest.fixture
def window(host: HostHere) -> Iterator[WindowHere]:
    made = WindowHere(host)
    made.connect()
    made.wait_for(SnapshotEnd)
    yield made
    made.close()


def log(text: str) -> Log:
    return Log(level="info", text=text, time_unix_s=1.0)


def texts(window: WindowHere) -> list[str]:
    return [line.text for line in window.of(Log)]


def built(request: int, name: str) -> list[object]:
    snapshot = ObjectSnapshot(name=name, kind="model", type="MLP", rows=(), bytes_by_device={}, tensors_by_device={})
    return [
        ObjectChanged(request=request, snapshot=snapshot),
        Answer(request=request, title=f"{name} was built", words="", code="model = build()", time_unix_s=1.0),
        JobEnded(request=request, ok=True, time_unix_s=1.0),
    ]


def test_a_new_window_gets_everything_and_then_what_happens(host: HostHere) -> None:
    spec = MatmulSpec(device="cpu", dtype="float32", m=8, n=8, k=8)
    host.say(
        ObjectChanged(snapshot=ObjectSnapshot(
            name="a", kind="tensor", type="Tensor", rows=(), bytes_by_device={}, tensors_by_device={})),
        UndoState(title="Create a", kept_bytes=7, contents=3),
        JobStarted(request=9, title="measuring", time_unix_s=1.0, command=None),
        BenchPreparing(run=9, spec=spec, simulated=False),
        BenchStarted(run=9, time_unix_s=1.0),
        BenchPoint(run=9, device="cpu", time_unix_s=2.0, tflops=1.5),
        DeviceSample(device="cpu", time_unix_s=2.0, utilization_percent=5.0),
        log("before"),
    )  # fmt: skip
    window = WindowHere(host)
    assert not window.connect().knows
    window.wait_for(SnapshotEnd)
    assert isinstance(window.got[0], SnapshotBegin)

    state = State()
    for event in [record.event for record in window.got if hasattr(record, "event")]:
        state.apply(event)
    assert state.engine == READY
    assert list(state.objects) == ["a"]
    assert state.undo.title == "Create a"
    assert state.jobs[9].title == "measuring"
    assert state.runs[9].started_unix_s == 1.0
    assert [point.tflops for point in window.of(BenchPoint)] == [1.5]
    assert texts(window) == ["before"]
    assert window.of(DeviceSample)[-1].utilization_percent == 5.0
    assert {info.id for info in window.of(DevicesChanged)[-1].devices} == {"cpu"}
    assert window.wait_for(EngineChoice).python == sys.executable
    assert window.wait_for(EngineReady) == READY

    host.say(log("after"))
    window.wait_for(Log, 2)
    assert texts(window) == ["before", "after"]
    window.close()


def test_commands_of_the_window_that_controls_are_carried_out(host: HostHere, window: WindowHere) -> None:
    control = window.control
    assert control.granted
    request = control.generation << 32 | 1
    window.say(Do(command=BuildModel(recipe="mlp", request=request)))
    host.until(lambda: host.engine.sent)
    assert host.engine.sent == [BuildModel(recipe="mlp", request=request)]
    host.say(*built(request, "mlp"))  # type: ignore[arg-type]
    assert window.wait_for(JobEnded).request == request
    assert window.wait_for(ActionsChanged, 2).added[0].title == "mlp was built"
    assert "model = build()" in window.ask(WriteScript()).result.text
    assert window.ask(WriteScript(notebook=True)).result.text.startswith("{")

    host.engine.kill()  # what was done is done again, under a number of the host's
    host.until(lambda: len(host.engines) == 2)
    host.say(READY)
    assert host.engine.sent[0].request >> 32 == 0


def test_one_window_controls_and_another_can_take_over(host: HostHere, window: WindowHere) -> None:
    other = WindowHere(host, "you@home")
    other.connect()
    other.wait_for(SnapshotEnd)
    assert not other.control.granted
    assert other.control.holder == "me@desk"

    other.say(Do(command=BuildModel(recipe="mlp", request=window.control.generation << 32 | 1)))
    refusal = other.wait_for(Answer)
    assert refusal.failed
    assert "is with me@desk" in refusal.words
    assert other.wait_for(JobEnded).ok is False
    assert host.engine.sent == []
    assert "take over" in other.ask(RestartEngine()).problem

    before = window.control.generation
    other.say(TakeOver())
    host.until(lambda: other.control.granted and not window.control.granted)
    assert window.control.holder == "you@home"
    assert other.control.generation > before
    other.say(Do(command=BuildModel(recipe="mlp", request=before << 32 | 1)))
    assert "before this window had control" in other.wait_for(Answer, 2).words
    other.say(Do(command=BuildModel(recipe="mlp", request=other.control.generation << 32 | 1)))
    host.until(lambda: host.engine.sent)
    other.close()


def test_watchers_are_told_when_the_window_that_controls_leaves_and_comes_back(
    host: HostHere, window: WindowHere
) -> None:
    other = WindowHere(host, "you@home")
    other.connect()
    other.wait_for(SnapshotEnd)
    assert not other.control.away
    window.cut()
    host.until(lambda: other.control.away)
    assert (other.control.granted, other.control.holder) == (False, "me@desk")
    assert window.connect().knows
    host.until(lambda: not other.control.away)
    window.wait_for(SnapshotEnd)
    host.until(lambda: window.control.granted)
    assert not other.control.granted
    other.close()


def test_a_window_that_comes_while_nobody_who_controls_is_there_controls(host: HostHere, window: WindowHere) -> None:
    window.cut()
    other = WindowHere(host)
    other.connect()
    other.wait_for(SnapshotEnd)
    assert other.control.granted
    assert window.connect().knows
    window.wait_for(SnapshotEnd)
    host.until(lambda: window.of(Control) and not window.control.granted)
    other.close()


@pytest.mark.parametrize("cut", [(0, 0), (30, 40), (200, 90), (1000, 300)])
def test_each_command_is_carried_out_once_and_its_end_told_wherever_the_connection_breaks(
    host: HostHere, window: WindowHere, cut: tuple[int, int]
) -> None:
    generation = window.control.generation
    commands = [Do(command=BuildModel(recipe="mlp", request=generation << 32 | number)) for number in (1, 2, 3)]
    window.cut()
    for reads, writes in (cut, (None, None)):
        assert window.connect(reads, writes).knows
        for command in commands:
            window.say(command)
        if reads is not None:
            host.until(lambda: window.over.is_set() or host.engine.sent)
            window.cut()
            done = [sent.request for sent in host.engine.sent]
            for request in done:
                host.say(JobStarted(request=request, title="build", time_unix_s=1.0), *built(request, "mlp"))  # type: ignore[arg-type]
    host.until(lambda: len(host.engine.sent) == 3)
    assert [sent.request & 0xFF for sent in host.engine.sent] == [1, 2, 3]
    for request in {sent.request for sent in host.engine.sent} - {*done}:
        host.say(*built(request, "mlp"))  # type: ignore[arg-type]
    window.wait_for(JobEnded, 3)
    assert sorted(ended.request & 0xFF for ended in window.of(JobEnded)) == [1, 2, 3]
    assert window.control.generation == generation


def test_what_ended_long_ago_is_not_done_again_and_what_runs_is_waited_for(host: HostHere, window: WindowHere) -> None:
    requests = [window.control.generation << 32 | number for number in range(1, MOST_COMMANDS + 3)]
    for request in requests:
        window.say(Do(command=BuildModel(recipe="mlp", request=request)))
    host.until(lambda: len(host.engine.sent) == len(requests))
    host.say(JobEnded(request=requests[0], ok=True, time_unix_s=1.0))
    host.say(JobStarted(request=requests[1], title="build", time_unix_s=1.0))
    window.cut()
    window.connect()
    for request in requests[:3]:
        window.say(Do(command=BuildModel(recipe="mlp", request=request)))
    assert (ended := window.wait_for(JobEnded)).request == requests[0]
    assert not ended.ok
    assert LOST in [answer.words for answer in window.of(Answer)]
    host.say(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=2.0))
    window.cut()
    window.connect()
    window.say(Do(command=BuildModel(recipe="mlp", request=requests[2])))
    ended = window.wait_for(JobEnded)
    assert (ended.request, ended.ok) == (requests[2], False)


def test_a_question_that_is_asked_again_gets_the_same_answer(
    host: HostHere, window: WindowHere, tmp_path: Path
) -> None:
    piece = WriteFile(path=str(tmp_path / "a"), offset=0, data=b"abc", sha256=hashlib.sha256(b"abc").hexdigest())
    assert window.ask(piece).problem == ""
    window.cut()
    window.connect()
    window.say(HostQuestion(id=1, question=piece))  # done again, it would say that the file exists
    assert window.wait_for(Reply).problem == ""
    for _ in range(MOST_REPLIES):
        window.ask(SetHidden(hidden=False))
    window.say(HostQuestion(id=1, question=piece))
    host.until(lambda: any(reply.to == 1 and reply.problem == LOST for reply in window.of(Reply)))


def test_a_window_that_left_a_machine_and_adds_it_again_begins_anew_and_controls(
    host: HostHere, window: WindowHere
) -> None:
    request = window.control.generation << 32 | 1
    window.say(Do(command=BuildModel(recipe="mlp", request=request)))
    host.until(lambda: host.engine.sent)
    window.session = ""
    assert not window.connect().knows
    window.wait_for(Control)
    assert window.control.granted
    assert window.control.generation > request >> 32


def test_windows_that_left_first_are_forgotten(host: HostHere, window: WindowHere) -> None:
    window.cut()
    for number in range(MOST_CLIENTS):
        other = WindowHere(host, str(number))
        other.connect()
        other.cut()
    assert other.connect().knows
    other.close()
    assert not window.connect().knows


def test_a_connection_that_is_only_half_gone_is_replaced(host: HostHere, window: WindowHere) -> None:
    old = window.wire
    assert old is not None
    assert window.connect().knows
    host.say(log("again"))
    window.wait_for(Log)
    old.close()
    assert old.join(5)
    assert len(host.server.connected) == 1


def test_a_lost_engine_is_told_also_to_those_who_come_later(host: HostHere, window: WindowHere) -> None:
    host.engine.kill()
    assert window.wait_for(EngineLost).will_restart
    later = WindowHere(host)
    later.connect()
    later.wait_for(SnapshotEnd)
    assert later.of(EngineLost)
    assert not later.of(EngineReady)
    later.close()


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_another_protocol_is_refused_in_one_line(host: HostHere, protocol: int) -> None:
    answer = WindowHere(host, protocol=protocol).connect()
    assert f"protocol {PROTOCOL}" in answer.problem
    assert f"protocol {protocol}" in answer.problem
    assert f"kill {os.getpid()}" in answer.problem
    assert "\n" not in answer.problem
    assert host.server.connected == []


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\x02hi", b"\0\0\0\x01\xc0"]
)
def test_strangers_end_only_their_own_connection(host: HostHere, window: WindowHere, data: bytes) -> None:
    near, far = socket.socketpair()
    host.server.take(far)
    near.sendall(data)
    near.shutdown(socket.SHUT_WR)
    near.settimeout(10)
    with suppress(ConnectionResetError):
        assert near.recv(100) == b""
    near.close()
    host.say(log("still here"))
    window.wait_for(Log)


@pytest.mark.parametrize("data", [b"\xff" * 50, b"\x78\x01" + b"\0" * 50])
def test_a_window_that_speaks_garbage_is_cut_off_and_may_come_back(
    host: HostHere, window: WindowHere, data: bytes
) -> None:
    broken = WindowHere(host)
    broken.connect()
    broken.wait_for(SnapshotEnd)
    broken._stream.write(data)
    host.until(lambda: len(host.server.connected) == 1)
    broken.cut()
    assert broken.connect().knows
    broken.close()


def test_who_never_greets_is_not_waited_for(host: HostHere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "GREET_S", 0.05)
    monkeypatch.setattr(server_module, "MOST_GREETING", 1)
    near, far = socket.socketpair()
    host.server.take(far)
    near.settimeout(10)
    assert near.recv(1) == b""
    near.close()


def test_files_of_the_machine(host: HostHere, window: WindowHere, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.py").write_text(
        "import torch.nn as nn\nclass Net(nn.Module):\n    def __init__(self, size): ...\n"
    )
    listed = window.ask(ListFolder(path=str(tmp_path))).result
    assert [entry.name for entry in listed.entries][:1] == ["folder"]
    assert listed.entries[0].is_folder
    kinds = window.ask(RecogniseFiles(paths=(str(tmp_path / "model.py"), str(tmp_path / "none")))).result
    assert [found.kind for found in kinds.files] == ["model", None]
    (found,) = window.ask(FindModels(path=str(tmp_path / "model.py"))).result.models
    assert (found.name, found.is_class, found.needs) == ("Net", True, ("size",))
    assert "no such file" in window.ask(ListFolder(path=str(tmp_path / "none"))).problem
    assert "zero byte" in window.ask(ListFolder(path="a\0b")).problem
    assert window.ask(ListFolder(path="~")).result.path == str(Path.home())


def test_a_file_crosses_in_pieces_and_is_checked(window: WindowHere, tmp_path: Path) -> None:
    data, path = bytes(range(256)) * 40, tmp_path / "there.bin"
    digest = hashlib.sha256(data).hexdigest()

    def write(offset: int, last: str = "", *, overwrite: bool = False) -> str:
        piece = WriteFile(
            path=str(path), offset=offset, data=data[offset : offset + 5120], sha256=last, overwrite=overwrite
        )
        return window.ask(piece).problem

    assert write(0) == ""
    assert not path.exists()
    assert write(5120, digest) == ""
    assert path.read_bytes() == data
    assert "is not overwritten" in write(0)
    assert "send it from its beginning" in write(5120)
    write(0, overwrite=True)
    assert "arrived damaged" in write(5120, "0" * 64)
    assert path.read_bytes() == data
    write(0, overwrite=True)
    assert "where 5120 was due" in write(10, digest)
    assert [item.name for item in tmp_path.iterdir() if item.name.endswith(".part")] == []

    pieces = [window.ask(ReadFile(path=str(path), offset=at, count=4096)).result for at in (0, 4096, 8192)]
    assert b"".join(piece.data for piece in pieces) == data
    assert [piece.sha256 for piece in pieces] == ["", "", digest]
    assert window.ask(ReadFile(path=str(path), offset=9000)).result.sha256 == digest
    assert "a folder" in window.ask(ReadFile(path=str(tmp_path))).problem


def test_recording_runs_on_the_machine(host: HostHere, window: WindowHere, tmp_path: Path) -> None:
    path = tmp_path / "a.devrec"
    assert window.ask(StartRecording(path=str(path))).problem == ""
    assert window.wait_for(RecordingChanged, 2).path == str(path)
    assert host.server.busy == ("recording",)
    assert "is not overwritten" in window.ask(StartRecording(path=str(path))).problem
    assert window.ask(StopRecording()).problem == ""
    host.until(lambda: window.of(RecordingChanged)[-1].path == "")
    assert host.server.busy == ()


def test_the_history_is_that_of_the_machine(host: HostHere, window: WindowHere, tmp_path: Path) -> None:
    run = stored(matmul())
    host.history.add(run.result, run.conditions)
    window.wait_for(HistoryChanged, 2)
    page = window.ask(ListRuns()).result
    (found,) = page.runs
    assert (found.result, page.count) == (run.result, 1)
    assert window.ask(ListRuns(text="no such words")).result.count == 0
    assert window.ask(TagRuns(tags=((found.id, ("before",)),))).problem == ""
    assert window.ask(ListRuns()).result.runs[0].tags == ("before",)
    path = str(tmp_path / "runs.json")
    assert window.ask(ExportRuns(kind="json", path=path, ids=(found.id,))).problem == ""
    assert "csv, json or html" in window.ask(ExportRuns(kind="exe", path=path, ids=(found.id,))).problem
    assert window.ask(DeleteRuns(ids=(found.id,))).result.words.startswith("1 run ")
    assert window.ask(ImportRuns(path=path)).problem == ""
    assert window.ask(ListRuns()).result.count == 1
    assert window.ask(ImportRuns(path=str(tmp_path / "none"))).problem
    assert window.ask(TagRuns(tags=((99, ("x",)),))).problem


def test_a_flood_of_events_is_told_without_waiting(host: HostHere, window: WindowHere) -> None:
    for index in range(3 * MOST_EVENTS):
        host.engine.put(log(str(index)))
    window.wait_for(Log, 3 * MOST_EVENTS)
    assert texts(window) == [str(index) for index in range(3 * MOST_EVENTS)]


def test_another_engine_can_be_asked_for(host: HostHere, window: WindowHere) -> None:
    assert window.ask(RestartEngine()).problem == ""
    host.until(lambda: len(host.engines) == 2)
    host.say(READY)
    assert window.ask(SetVisibleDevices(value="1")).problem == ""
    assert window.wait_for(EngineChoice, 2).visible_devices == "1"
    assert window.ask(SetVisibleDevices(value="x y")).problem
    assert window.ask(SetPython(path="/opt/python")).problem == ""
    assert window.wait_for(EngineChoice, 3).python == "/opt/python"
    host.until(lambda: len(host.engines) == 4)
    assert host.options[2:] == [{}, {"python": "/opt/python"}]


def test_hidden_windows_are_read_for_once_a_second(host: HostHere, window: WindowHere) -> None:
    assert host.session._hidden is False
    window.ask(SetHidden(hidden=True))
    assert host.session._hidden is True
    window.ask(SetHidden(hidden=False))
    assert host.session._hidden is False
    window.cut()
    assert host.session._hidden is True


def test_an_allocator_that_stands_still_is_told_seldom(host: HostHere, window: WindowHere) -> None:
    for tenth in range(100):
        moment = tenth / 10
        allocated = 2 if tenth == 30 else 1
        host.say(
            AllocatorSample(device="vgpu:0", time_unix_s=moment, allocated_bytes=allocated, reserved_bytes=9),
            DeviceSample(device="vgpu:0", time_unix_s=moment),
        )
    window.wait_for(DeviceSample, 100)
    assert [sample.time_unix_s for sample in window.of(AllocatorSample)] == [0.0, 3.0, 3.1, 8.1]


def test_a_window_that_says_much_at_once_is_heard_to_the_end(host: HostHere, window: WindowHere) -> None:
    for number in range(1, 2 * MOST_WAITING):
        window.say(Do(command=BuildModel(recipe="mlp", request=window.control.generation << 32 | number)))
    host.until(lambda: len(host.engine.sent) == 2 * MOST_WAITING - 1)
    assert [command.request & 0xFFFF for command in host.engine.sent] == list(range(1, 2 * MOST_WAITING))


def test_the_end_is_told(host: HostHere, window: WindowHere) -> None:
    host.server.end("It was ended.")
    assert window.over.wait(10)
    assert window.of(Goodbye)[0].reason == "It was ended."


def test_a_window_that_comes_again_gets_the_curves_of_meanwhile(host: HostHere, window: WindowHere) -> None:
    window.cut()
    for second in range(50):
        host.say(DeviceSample(device="cpu", time_unix_s=1000.0 + second, utilization_percent=5.0))
    window.connect()
    past = window.wait_for(PastReadings)
    assert len(window.of(DeviceSample)) == 1, "of the snapshot"
    times, values = unpacked(past)
    assert times[-1] == 1049.0
    assert values[-1, past.metrics.index("utilization_percent")] == 5.0
