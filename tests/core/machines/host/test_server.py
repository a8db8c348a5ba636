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
from devexplorer.core.machines.host.known import unpacked
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
    RestartEngine,
    SaveCopy,
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
    Answer,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    BuildModel,
    Cancel,
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
    window.connect()
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
    window.connect()
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
    window.connect()
    window.wait_for(SnapshotEnd)
    host.until(lambda: window.of(Control) and not window.control.granted)
    other.close()


def test_a_snapshot_says_what_is_under_way_of_what_windows_wanted(host: HostHere, window: WindowHere) -> None:
    requests = [window.control.generation << 32 | number for number in range(1, 4)]
    for request in requests:
        window.say(Do(command=BuildModel(recipe="mlp", request=request)))
    host.until(lambda: len(host.engine.sent) == len(requests))
    window.cut()
    host.say(JobStarted(request=requests[1], title="build", time_unix_s=1.0), *built(requests[0], "mlp"))  # type: ignore[arg-type]
    window.connect()
    assert window.wait_for(SnapshotEnd).running == tuple(requests[1:])
    host.until(lambda: window.control.granted)
    assert window.control.generation > requests[0] >> 32
    host.say(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=2.0))
    window.cut()
    window.connect()
    assert window.wait_for(SnapshotEnd).running == ()


def test_a_copy_that_no_window_waits_for_any_more_is_not_saved(host: HostHere, window: WindowHere) -> None:
    window.say(HostQuestion(id=1, question=SaveCopy(targets=("x",))))
    host.until(lambda: host.engine.sent)
    window.cut()
    host.until(lambda: len(host.engine.sent) == 2)
    save, cancel = host.engine.sent
    assert isinstance(cancel, Cancel)
    assert cancel.job == save.request


def test_a_connection_that_is_only_half_gone_is_replaced(host: HostHere, window: WindowHere) -> None:
    old = window.wire
    assert old is not None
    window.connect()
    host.say(log("again"))
    window.wait_for(Log)
    assert window.control.granted
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
    broken.connect()
    broken.wait_for(SnapshotEnd)
    broken.close()


def test_who_never_greets_is_not_waited_for(host: HostHere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "GREET_S", 0.05)
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


def test_a_window_that_says_much_at_once_is_heard_to_the_end(host: HostHere, window: WindowHere) -> None:
    for number in range(1, 2000):
        window.say(Do(command=BuildModel(recipe="mlp", request=window.control.generation << 32 | number)))
    host.until(lambda: len(host.engine.sent) == 1999)
    assert [command.request & 0xFFFF for command in host.engine.sent] == list(range(1, 2000))


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
