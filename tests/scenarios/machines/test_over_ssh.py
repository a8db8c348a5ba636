"""Everything on a machine that is reached through a real sshd, and a network that fails in the middle of it.

`DEVEXPLORER_CUT_S` says how long the network is gone (default 1): 30 was tried by hand.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.sshd import HOST, Sshd, sshd  # noqa: F401 - a fixture

from devexplorer.core.files.kinds import WORKSPACE, recognise
from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.records import WorkspaceArrived
from devexplorer.core.machines.window.file_copying import Bringing, End, FileCopying, HereFiles
from devexplorer.core.machines.window.machines import FarHistory
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.routes import SshRoute
from devexplorer.core.planner.records import FitPlanned, FitSpec, PlanFit
from devexplorer.core.recording.format import peek
from devexplorer.core.records import (
    AddVirtual,
    BenchEnded,
    BenchPoint,
    BuildModel,
    Check,
    Checked,
    Command,
    Event,
    Forward,
    JobEnded,
    MatmulSpec,
    Move,
    Rebuilt,
    SentFrom,
    StartBenchmark,
    StoredRun,
)
from devexplorer.core.session import State
from devexplorer.core.session.poll import fill

CUT_S = float(os.environ.get("DEVEXPLORER_CUT_S", "1"))
PATIENCE_S = 60.0


class Far:
    """A window's view of the far machine, without the window."""

    def __init__(self) -> None:
        self.session = RemoteSession("forge", SshRoute(HOST, sys.executable))
        self.history = FarHistory(self.session)
        self.state, self.events = State(), list[Event]()
        self.session.start()

    def beat(self) -> None:
        self.session.beat()
        result = self.session.drain()
        if result.state is not None:
            result.state.go_on_from(self.state)
            self.state.exchange(result.state)
        if result.catalog is not None:
            self.state.set_catalog(result.catalog)
        for past in result.past:
            fill(self.state, past)
        for event in result.events:
            self.state.apply(event)
        self.events += result.events
        self.history.deliver()

    def until(self, happened: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + patience_s
        while not happened():
            assert time.monotonic() < end, (self.session.link, [line.text for line in self.state.log])
            self.beat()
            time.sleep(0.005)

    def do(self, command: Command) -> None:
        request = self.session.send(command)
        self.until(lambda: self.ends(request))
        assert self.ends(request) == [True], self.state.answer

    def ends(self, request: int) -> list[bool]:
        return [event.ok for event in self.events if isinstance(event, JobEnded) and event.request == request]

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def devices_of(self, name: str) -> set[str]:
        return {device for device, size in self.state.objects[name].bytes_by_device.items() if size}


@pytest.fixture
def far(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:  # noqa: F811
    runtime = Path(tempfile.mkdtemp(prefix="dx-"))  # short: the path of a socket has at most 107 bytes
    sshd.stop()
    sshd.start(SetEnv=f"{sshd.settings['SetEnv']} XDG_RUNTIME_DIR={runtime} XDG_DATA_HOME={sshd.home}/data")
    monkeypatch.setenv("PATH", sshd.environ()["PATH"])
    made = Far()
    yield made
    assert made.session.close(5)
    there = {"XDG_RUNTIME_DIR": str(runtime)}
    for host in listing.running(there):
        if host.socket.startswith(str(runtime)):
            assert listing.stop(host)
    shutil.rmtree(runtime)


def test_a_day_on_another_machine(far: Far, sshd: Sshd, tmp_path: Path) -> None:  # noqa: F811
    far.until(lambda: far.state.engine)
    assert far.session.link.state == "connected"
    far.do(AddVirtual(spec="2x Tesla T4"))
    far.until(lambda: "vgpu:1" in far.state.devices)
    far.do(BuildModel(recipe="mlp", seed=1))
    far.do(Move(targets=("mlp",), device="vgpu:1"))
    assert far.devices_of("mlp") == {"vgpu:1"}
    recording = sshd.home / "day.devrec"
    far.session.start_recording(recording)
    far.until(lambda: far.session.recording)

    # a benchmark, and a move, while the network goes and comes
    seconds = CUT_S + 4
    run = far.session.send(
        StartBenchmark(spec=MatmulSpec(device="vgpu:0", m=1024, n=1024, k=1024, dtype="float16", seconds=seconds))
    )
    far.until(lambda: len(far.of(BenchPoint)) > 5)
    move = far.session.send(Move(targets=("mlp",), device="vgpu:0"))
    sshd.vanish()
    far.until(lambda: far.session.link.state == "reconnecting")
    back_s = time.monotonic() + CUT_S
    far.until(lambda: time.monotonic() > back_s, CUT_S + 5)
    sshd.start()
    far.session.reconnect()
    far.until(lambda: far.session.link.state == "connected")
    far.until(lambda: far.ends(run) and far.ends(move), seconds + 30)
    assert (far.ends(run), far.ends(move)) == ([True], [True])
    assert far.devices_of("mlp") == {"vgpu:0"}
    assert sum(marker.kind == "move" for marker in far.state.markers) == 2
    (ended,) = far.of(BenchEnded)
    assert isinstance(ended, BenchEnded)
    assert not ended.result.stopped
    times, _ = far.state.devices["vgpu:0"].throughput.readings("tflops")
    assert max(b - a for a, b in pairwise(times)) < 3, "the curve has a hole"
    runs: list[StoredRun] = []
    far.history.request(None, "", 10, lambda found, count: runs.extend(found))
    far.until(lambda: runs)
    assert [stored.result.spec.device for stored in runs] == ["vgpu:0"]

    far.do(Forward(target="mlp"))
    far.do(Check(target="mlp", device="vgpu:1"))
    assert far.of(Checked)
    far.do(PlanFit(spec=FitSpec(source="mlp", gpus=("Tesla T4",)), target="mlp"))
    assert far.of(FitPlanned)
    far.session.stop_recording()
    far.until(lambda: far.session.recording is None)
    far.until(lambda: recording.exists() and recording.stat().st_size > 1000)
    peek(recording)

    # a recording and a workspace come here, and the workspace goes there again
    far.do(SaveWorkspace(path=str(sshd.home / "day.devexplorer")))
    here = HereFiles(None, tmp_path)
    ends = End("forge", far.session.ask), End("this machine", here.ask)

    def copied(path: Path, source: End, target: End) -> Path:
        arrived: list[str] = []
        FileCopying(str(path), path.name, source, target, arrived.append, lambda: None).start()
        far.until(lambda: here.beat() or arrived)
        return Path(arrived[0])

    brought = copied(recording, *ends)
    assert brought.read_bytes() == recording.read_bytes()
    peek(brought)
    sent = copied(copied(sshd.home / "day.devexplorer", *ends), *ends[::-1])
    origin = SentFrom(machine="laptop", path="/home/ada/day.devexplorer")
    far.do(OpenWorkspace(path=str(sent), replace=True, sent_from=origin))
    assert far.devices_of("mlp") == {"vgpu:0"}
    file = far.state.part(FilesState).workspace_file
    assert file is not None
    assert (file.path, file.sent_from) == ("", origin)
    assert here.close()
    assert not brought.exists()


def test_a_workspace_is_saved_here_though_the_network_fails(far: Far, sshd: Sshd, tmp_path: Path) -> None:  # noqa: F811
    far.until(lambda: far.state.engine)
    far.do(BuildModel(recipe="resnet18", seed=1))
    far.do(Forward(target="resnet18", output="y"))
    assert far.state.part(FilesState).unsaved_work
    place, here = tmp_path / "day.devexplorer", HereFiles(None, tmp_path / "cache")
    origin = SentFrom(machine="laptop", path=str(place))
    requests: list[int] = []

    def write(path: str, written: Callable[[str], None]) -> None:
        far.do(SaveWorkspace(path=path, overwrite=True, sent_to=origin))
        requests.append(far.of(JobEnded)[-1].request)  # type: ignore[attr-defined]
        written("")

    ends = End("forge", far.session.ask), End("this machine", here.ask)
    bringing = Bringing(str(place), place.name, *ends, write, lambda: None, keep=True)
    bringing.start()
    far.until(lambda: here.beat() or bringing.done_bytes)
    assert far.state.part(FilesState).unsaved_work, "it has not arrived"
    assert not place.exists()
    sshd.vanish()
    far.until(lambda: here.beat() or far.session.link.state == "reconnecting")
    sshd.start()
    far.session.reconnect()
    far.until(lambda: here.beat() or bringing.over)
    assert bringing.stage == "sent", bringing.problem
    assert not list(tmp_path.glob(".*.part"))
    far.session.ask(WorkspaceArrived(request=requests[0]), lambda _: None)
    far.until(lambda: not far.state.part(FilesState).unsaved_work)
    file = far.state.part(FilesState).workspace_file
    assert file is not None
    assert (file.path, file.sent_from) == ("", origin)

    # what cannot be repeated comes back after the end of the engine there: the copy has it
    far.session.restart_engine()
    far.until(lambda: far.of(Rebuilt))
    assert far.state.objects["y"].bytes_by_device == {"cpu": 8000}
    assert recognise(place).kind == WORKSPACE
    assert here.close()
    assert place.exists()
