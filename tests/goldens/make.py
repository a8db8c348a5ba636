"""Writes new goldens: files of every kind, with the current program.

    PYTHONPATH=tests python -m goldens.make FOLDER

Run it after a format deliberately gets a new version, into an empty folder, whose files are then added to the goldens
under another name. The committed goldens represent files that users have: never rewrite them to make a test pass. A
test that cannot open one has found a file that a user would lose.

Everything runs on virtual GPUs, one fake card that is too hot, and the CPU. Names of the host, its processor and
folders are replaced on arrival; at the end every file is searched for them."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import torch
from fakes.nvml import FakeCard, FakeNvml
from fakes.scripts import Here as ScriptedSession

from devexplorer.core.benchmark import conditions
from devexplorer.core.benchmark.conditions import HostInfo
from devexplorer.core.benchmark.history.export import write_csv, write_json
from devexplorer.core.benchmark.history.run_recorder import RunRecorder
from devexplorer.core.benchmark.history.store import Store
from devexplorer.core.devices import cpu
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.link import decode_event, frame, pieces
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.records import BandwidthSpec, FitSpec, MatmulSpec, ModelSpec, ScalingSpec, SweepSpec
from devexplorer.core.records import laboratory as lab
from devexplorer.core.records import messages as said
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import Settings, SettingsFile
from devexplorer.core.telemetry.alert_rules import Rule
from goldens import reading

HERE = Path(__file__).resolve().parent
HOST = "workstation"
PROCESSOR = "A processor"
WORK = Path(tempfile.gettempdir()) / "devexplorer-goldens"
"""The session's folder: its paths appear in the files."""
ROOT = HERE.parents[1]
DEADLINE_S = 180.0
LONG = 4
"""A shorter name can be part of any word."""
HOT = FakeCard(uuid="GPU-0a0b0c0d-0000-1111-2222-333344445555", name="NVIDIA A10", temperature=97)
PRIVATE = {
    str(Path(torch.__file__).parents[1]): "/opt/python/site-packages",
    str(ROOT): "/opt/devexplorer",
    str(Path.home()): "/home/user",
    platform.node(): HOST,
    cpu._brand(Path("/proc")): PROCESSOR,
}
"""Private text -> its replacement."""


def without_private(value: Any) -> Any:
    """Plain values with every private text replaced."""
    if isinstance(value, str):
        for private, public in PRIVATE.items():
            if len(private) > LONG or value == private:
                value = value.replace(private, public)
        return value
    if isinstance(value, dict):
        return {without_private(key): without_private(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_private(below) for below in value]
    return value


def cleaned(event: said.Event) -> said.Event:
    """The event as another machine would have sent it."""
    return decode_event(msgspec.msgpack.encode(without_private(msgspec.msgpack.decode(msgspec.msgpack.encode(event)))))


# --- the recorded session


class RecordedSession:
    """A session with a real engine process; keeps everything that crosses the link."""

    def __init__(self, keep: Callable[..., object]) -> None:
        self.events: list[said.Event] = []
        self.commands: list[said.Command] = []
        card = replace(HOT)
        self.session = Session(make_engine=self._make, nvml=Nvml(FakeNvml(card)), virtual_spec=reading.CARDS)
        self.session.run_recorder = RunRecorder(
            keep, find_here=lambda: HostInfo(host=HOST, python_version=platform.python_version())
        )
        self.session.run_recorder.start()
        self.session.start()
        self.wait(said.EngineDevices)

    def _make(self, put: Callable[[said.Event], None], spec: str | None, visible: str | None) -> EngineProcess:
        def keep(event: said.Event) -> None:
            event = cleaned(event)
            self.events.append(event)
            put(event)

        return EngineProcess(keep, virtual_spec=spec, visible_devices=visible)

    def wait(self, kind: type, request: int | None = None) -> Any:
        """Drain until an event of this kind (which answers this request) arrives; returns it."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            events = self.session.drain().events
            self.events += [event for event in events if isinstance(event, said.Rebuilt)]
            if kind is said.EngineDevices and any(isinstance(event, said.EngineDevices) for event in self.events):
                return None
            for event in events:
                if isinstance(event, kind) and (request is None or getattr(event, "request", None) == request):
                    return event
            time.sleep(0.005)
        raise TimeoutError(f"no {kind.__name__} came")

    def start(self, command: said.Command) -> int:
        """Send a command."""
        request = self.session.send(command)
        self.commands.append(msgspec.structs.replace(command, request=request))
        return request

    def do(self, command: said.Command, *, ok: bool = True) -> int:
        """Send a command and wait for its end, which must have the expected status."""
        request = self.start(command)
        ended = self.wait(said.JobEnded, request)
        assert ended.ok is ok, (command, [event for event in self.events if getattr(event, "request", 0) == request])
        return request

    def measure(self, spec: Any) -> None:
        """Run a benchmark to its end."""
        request = self.do(said.StartBenchmark(spec=spec))
        if not any(isinstance(event, said.BenchEnded) and event.run == request for event in self.events):
            while self.wait(said.BenchEnded).run != request:
                pass


def before_the_recording(file: str) -> Iterator[said.Command]:
    """Long commands, which are on the link but not recorded."""
    yield said.SetThreads(threads=1)
    yield said.BuildModel(recipe="mlp", seed=1)
    yield lab.Check(target="mlp", device="vgpu:0", train=True)
    yield lab.OpenModel(source="misplaced.py:Net", folder=str(WORK), name="net", inputs="4x12", seed=2)
    yield lab.Check(target="net", device="vgpu:0", inputs="4x12")
    yield lab.OpenModel(source="misplaced.py:wide", folder=str(WORK), name="wide", inputs="1x1")
    yield said.Move(targets=("wide",), device="vgpu:1")
    yield said.Move(targets=("wide:0",), device="vgpu:0")
    yield said.Remove(names=("wide",))
    yield said.ReleaseCache(device="vgpu:1")
    yield said.RecordAllocator(on=True)
    yield lab.PlanFit(spec=FitSpec(source="", gpus=("Tesla T4", "2x Tesla T4"), batch=4, train=True), target="mlp")
    yield said.NewTensor(name="x", fill="rand", shape=(2, 20), seed=3)
    yield said.NewTensor(name="y", fill="randn", shape=(2, 20), device="vgpu:1", seed=4, requires_grad=True)
    yield said.NewTensor(name="table", fill="text", text="[[1, 2.5], [3, -4]]", dtype="float64")
    yield lab.Describe(target="mlp:0.weight", bins=8)
    yield lab.Initialise(target="mlp:2", rule="xavier-uniform", seed=7, biases=True)
    yield said.BuildModel(recipe="nested", seed=5)
    yield lab.Tie(first="nested:0.block 0.0.weight", second="nested:0.block 2.0.weight")
    yield lab.Tie(first="nested:0.block 0.0.bias", second="nested:0.block 2.0.bias")
    yield lab.Untie(target="nested:0.block 2.0.bias")
    yield said.EditElement(target="x", index=(0, 1), value=-7.5)
    yield said.Combine(left="x", right="x", operator="*", name="product")
    yield lab.SetRequiresGrad(targets=("mlp:0",), on=False)
    yield lab.SetRequiresGrad(targets=("mlp:0",), on=True)
    yield lab.SetTraining(target="nested", on=False)
    yield lab.Ask(target="x", question="device")
    yield lab.Save(targets=(), path=str(WORK / "workspace.safetensors"))
    yield lab.Save(targets=("x", "table"), path=str(WORK / "tensors.pt"), form="pt")
    yield lab.Save(targets=("mlp",), path=file, form="pt")
    yield lab.ListFile(path=file)
    yield lab.CompareCheckpoint(target="mlp", path=file)
    yield lab.LoadCheckpoint(target="mlp", path=file)
    yield lab.Load(path=str(WORK / "tensors.pt"), entries=("table",), name="loaded")


def while_recording() -> Iterator[tuple[said.Command, bool]]:
    """The recorded commands, and whether each succeeds."""
    yield said.Move(targets=("mlp", "x"), device="vgpu:0"), True
    yield said.Move(targets=("nested",), device="vgpu:1", copy=True), True
    yield said.Move(targets=("x",), device="vgpu:9"), False
    yield said.Forward(target="mlp", input="x", output="result"), True
    yield said.Forward(target="mlp", input="y"), False
    yield said.Backward(target="mlp", input="x"), True
    yield said.Move(targets=("mlp",), device="vgpu:0", dtype="float16"), True
    yield said.Undo(), True
    yield said.Redo(), True
    yield said.Undo(), True
    yield lab.ClearGradients(target="mlp"), True
    yield lab.MakeOptimizer(target="mlp", kind="adam", learning_rate=0.01), True
    yield lab.TrainStep(target="mlp", input="x"), True
    yield said.Move(targets=("mlp",), device="vgpu:1"), True
    yield lab.MoveOptimizer(target="mlp"), True
    yield said.BuildModel(recipe="two-towers", name="towers", seed=6), True
    yield lab.PlanSplit(target="towers", budgets={"vgpu:0": 2**20, "vgpu:1": 2**20}), True
    yield lab.Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}), True
    yield said.Forward(target="towers"), True
    yield lab.InsertHops(target="towers", on=False), True
    yield lab.InsertHops(target="towers"), True
    yield said.BuildModel(recipe="two-towers", name="joined"), True
    yield lab.Split(target="joined", device_map={"query": "vgpu:0", "item": "vgpu:1"}), True
    yield lab.Join(target="joined", device="vgpu:1"), True
    yield lab.Replicate(target="nested", devices=("vgpu:0", "vgpu:1")), True
    yield lab.TimeWork(device="vgpu:0", size=32, iterations=2), True
    yield lab.Crossover(device="vgpu:0", sizes=(16, 32)), True
    yield said.AddVirtual(spec="L4"), True
    yield said.Move(targets=("table",), device="vgpu:2"), True
    yield said.SaveSnapshot(device="vgpu:1", path=str(WORK / "allocator.pickle")), True
    yield said.OpenSnapshot(device="vgpu:1"), True
    yield said.NewTensor(name="gone", shape=(3,)), True
    yield said.Remove(names=("gone",)), True


SPECS = (
    MatmulSpec(device="vgpu:0", m=64, n=64, k=64, seconds=0.3),
    MatmulSpec(device="cpu", m=32, n=32, k=32, seconds=None, iterations=20, mode="burst"),
    SweepSpec(device="vgpu:0", shapes=((16, 16, 16), (32, 16, 16)), shape_seconds=0.05),
    BandwidthSpec(sources=("cpu", "vgpu:0"), destinations=("vgpu:0", "vgpu:1"), sizes=(1 << 12,), seconds=0.02),
    ScalingSpec(devices=("vgpu:0", "vgpu:1"), size=32, iterations=10),
    ModelSpec(target="mlp", device="vgpu:0", batch=2, train=True, seconds=0.1),
)


def session(folder: Path) -> None:
    """The recording, the link, the history, the files of tensors and the allocator snapshot of one session."""
    with Store(folder / "history.sqlite3") as store:
        tags = itertools.cycle([("before", "the change"), ("after",), ()])
        live = RecordedSession(
            lambda result, known: store.add(result, msgspec.structs.replace(known, git_revision=None), next(tags))
        )
        try:
            for command in before_the_recording(str(WORK / "checkpoint.pt")):
                live.do(command)
            live.session.start_recording(folder / "session.devrec")
            live.session.put(said.Log(level="warning", text="the layout could not be saved", time_unix_s=time.time()))
            for command, ok in while_recording():
                live.do(command, ok=ok)
            for spec in SPECS:
                live.measure(spec)
            endless = live.start(said.StartBenchmark(spec=MatmulSpec(device="vgpu:1", m=32, n=32, k=32, seconds=None)))
            live.do(said.Cancel(job=endless + 1000))
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                live.session.drain()
                time.sleep(0.01)
            live.do(said.StopBenchmark(run=endless))
            end = time.monotonic() + 4.0  # a card must be hot for three seconds
            while time.monotonic() < end:
                live.session.drain()
                time.sleep(0.01)
            live.session.restart_engine()
            live.wait(said.Rebuilt)
            live.session.stop_recording()
        finally:
            live.session.close(10.0)
        runs = sorted(store.runs(), key=lambda run: run.id)
        write_json(folder / "history.json", runs, clock=lambda: 1_800_000_000.0)
        write_csv(folder / "history.csv", runs)
    write_frames(folder / "link_commands.bin.gz", live.commands)
    write_frames(folder / "link_events.bin.gz", live.events)
    for name in ("workspace.safetensors", "tensors.pt", "checkpoint.pt"):
        shutil.copy(WORK / name, folder / name)
    copy_allocator(WORK / "allocator.pickle", folder / "allocator.pickle")


def copy_allocator(source: Path, destination: Path) -> None:
    """The snapshot with the folders of its stacks replaced, written by the same writer."""
    from devexplorer.core.memory import snapshot_file

    snapshot_file.save(without_private(snapshot_file.load(str(source))), str(destination))


def write_frames(path: Path, records: list[Any]) -> None:
    """Frames as on the link, compressed: rows of a large model are repetitive."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for record in records:
            for piece in [record] if isinstance(record, said.Command) else pieces(record):
                file.write(frame(piece))


# --- the rest


def write_settings(folder: Path) -> None:
    """Every key, none with its default."""
    file = SettingsFile(folder)
    problem = file.save(
        Settings(
            theme="light",
            geometry="AdnQywADAAAAAAAAAAAAAAAABP8AAAMf",
            splitters={"main": [400, 500, 300], "right": [250, 350]},
            span_s=600.0,
            left_plot="parts:vgpu:0",
            right_plot="gb_per_s",
            alert_rules=(
                Rule(metric="temperature_c", raise_at=80.0, clear_at=75.0, seconds=4.0),
                Rule(metric="memory_used_percent", enabled=False, raise_at=90.0, clear_at=85.0, seconds=2.0),
            ),
            trusted_folders=("/home/user/models",),
            recent_models=(("net.py:Net", "/home/user/models"), ("torchvision:resnet50", "")),
            learned=("devices", "move-a-tensor"),
            notifications=False,
        )
    )
    assert problem is None, problem


def script(folder: Path) -> dict[str, Any]:
    """A session's Python as script and notebook; returns its placement."""
    here = ScriptedSession(reading.CARDS)
    try:
        for command in (
            said.SetThreads(threads=1),
            said.NewTensor(name="x", fill="rand", shape=(2, 20), seed=3),
            said.NewTensor(name="y", fill="randn", shape=(2, 20), device="vgpu:0", dtype="float64", requires_grad=True),
            said.BuildModel(recipe="mlp", seed=5),
            said.BuildModel(recipe="tied", name="my tied-model", device="vgpu:1", seed=6),
            said.BuildModel(recipe="lazy-mlp", device="vgpu:0"),
            said.BuildModel(recipe="nested", dtype="bfloat16"),
            said.Forward(target="lazy-mlp"),
            said.Move(targets=("mlp:0", "x"), device="vgpu:0"),
            said.Move(targets=("mlp:2",), device="vgpu:1"),
            said.Undo(),
            said.Move(targets=("nested:0.block 1",), device="vgpu:1", dtype="float64"),
            said.EditElement(target="x", index=(0, 1), value=-7.5),
            said.Combine(left="x", right="x", operator="*", name="product"),
            said.Move(targets=("mlp",), device="vgpu:0"),
            said.Backward(target="mlp", input="x"),
            said.Move(targets=("mlp", "product"), device="cpu", copy=True),
            said.AddVirtual(spec="L4"),
            said.Move(targets=("product",), device="vgpu:2"),
            lab.Initialise(target="mlp:2", rule="xavier-uniform", seed=7, biases=True),
            lab.SetRequiresGrad(targets=("mlp:0",), on=False),
            lab.SetTraining(target="mlp", on=False),
            lab.Tie(first="nested:0.block 0.0.weight", second="nested:0.block 2.0.weight"),
            lab.MakeOptimizer(target="my tied-model", kind="adam", learning_rate=0.01),
            lab.TrainStep(target="my tied-model"),
            said.BuildModel(recipe="two-towers", name="towers"),
            lab.Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
            said.Forward(target="towers"),
            lab.Replicate(target="mlp", devices=("vgpu:0", "vgpu:1")),
        ):
            here.do(command)
        (folder / "session.py").write_text(here.session.script(), encoding="utf-8")
        (folder / "session.ipynb").write_text(here.session.notebook(), encoding="utf-8")
        names = here.engine.engine.workspace.names
    finally:
        here.close()
    with tempfile.TemporaryDirectory() as where:
        return reading.run_script((folder / "session.py").read_text(encoding="utf-8"), names, Path(where))


def documents(folder: Path) -> None:
    """What each command prints."""
    os.chdir(HERE)
    for name, argv in reading.COMMANDS.items():
        lines = [json.dumps(without_private(document), ensure_ascii=False) + "\n" for document in reading.printed(argv)]
        (folder / f"{name}.json").write_text("".join(lines), encoding="utf-8")


def demand_nothing_private(folder: Path) -> None:
    """Search every file, including compressed content."""
    from devexplorer.core.recording.format import HEAD_SIZE, MARK

    for path in folder.iterdir():
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if path.suffix == ".devrec":
            data = b"".join(
                zlib.decompressobj().decompress(part[HEAD_SIZE - len(MARK) :]) for part in data.split(MARK)[1:-1]
            )
        names = [private.encode() if len(private) > LONG else msgspec.json.encode(private) for private in PRIVATE]
        for private in (*names, b"/root/", b"/work/"):
            assert private not in data, (path.name, private)


def make(folder: Path) -> None:
    """Everything."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    shutil.copy(HERE / "misplaced.py", WORK)
    with (
        patch.object(platform, "node", lambda: HOST),
        patch.object(platform, "platform", lambda: "Linux-6.8.0-x86_64-with-glibc2.39"),
        patch.object(cpu, "_brand", lambda proc: PROCESSOR),
        patch.object(conditions, "git_revision", lambda root=None: None),
        patch.dict(os.environ, {"XDG_DATA_HOME": str(WORK)}),
    ):
        session(folder)
        write_settings(folder)
        placed = script(folder)
        documents(folder)
        held = {**reading.everything(folder), "script": placed}
    (folder / "expected.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    demand_nothing_private(folder)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
