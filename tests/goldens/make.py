"""Writes new goldens: files of every kind, with the current program.

    PYTHONPATH=tests python -m goldens.make FOLDER

Run it before a change to what files hold, or after a format deliberately gets a new version, into an empty folder
beside the others here. The committed goldens represent files that users have: never rewrite them to make a test pass.
A test that cannot open one has found a file that a user would lose.

Everything runs on virtual GPUs, one fake card that is too hot, and the CPU. Names of the host, its processor and
folders are replaced on arrival; at the end every file is searched for them."""

from __future__ import annotations

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

from devexplorer.core.alerts.rules import Rule
from devexplorer.core.allreduce.kind import AllReduceSpec
from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.benchmark import conditions
from devexplorer.core.benchmark.conditions import HostInfo, RunRecorder
from devexplorer.core.devices import cpu
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.link import decode_event
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.experiments.records import Crossover, Replicate, TimeWork
from devexplorer.core.files import records as rec
from devexplorer.core.files.records import FarFile, OpenModel
from devexplorer.core.history.export import write_csv, write_json
from devexplorer.core.history.store import Store
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.parameters import records as lab
from devexplorer.core.planner.calibrate.kind import CalibrateResult, CalibrateSpec
from devexplorer.core.planner.calibrate.store import CalibrationStore, calibration_of
from devexplorer.core.records import MatmulSpec, MoveOptimizer
from devexplorer.core.records import messages as said
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import KnownMachine, Place, Settings, SettingsFile
from devexplorer.core.split.records import InsertHops, Join, PlanSplit, Split
from devexplorer.core.sweep.kind import SweepSpec
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
NESTED = {f"0.block {block}": f"vgpu:{block % 2}" for block in range(4)} | {"1": "cpu"}
LAYOUT = '{"layout":"measure","splitters":{"main":[400,500,300]},"span_s":600.0,"left_plot":"parts:vgpu:0"}'
"""Of the window, as it stands in a workspace file."""
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
    """A session with a real engine process."""

    def __init__(self, keep: Callable[..., object]) -> None:
        self.events: list[said.Event] = []
        card = replace(HOT)
        self.session = Session(make_engine=self._make, nvml=Nvml(FakeNvml(card)), virtual_spec=reading.CARDS)
        self.session.run_recorder = RunRecorder(
            keep, find_here=lambda: HostInfo(host=HOST, python_version=platform.python_version())
        )
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
        return self.session.send(command)

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


def before_the_recording() -> Iterator[said.Command]:
    """Makes the objects."""
    yield said.SetThreads(threads=1)
    yield said.BuildModel(recipe="mlp", seed=1)
    yield said.NewTensor(name="x", fill="rand", shape=(2, 20), seed=3)
    yield said.NewTensor(name="y", fill="randn", shape=(2, 20), device="vgpu:1", seed=4, requires_grad=True)
    yield said.NewTensor(name="table", fill="text", text="[[1, 2.5], [3, -4]]", dtype="float64")
    yield said.BuildModel(recipe="nested", seed=5)


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
    yield MoveOptimizer(target="mlp"), True
    yield said.BuildModel(recipe="two-towers", name="towers", seed=6), True
    yield PlanSplit(target="towers", budgets={"vgpu:0": 2**20, "vgpu:1": 2**20}), True
    yield Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}), True
    yield said.Forward(target="towers"), True
    yield TimeWork(device="vgpu:0", size=32, iterations=2), True
    yield Crossover(device="vgpu:0", sizes=(16, 32)), True
    yield said.AddVirtual(spec="L4"), True
    yield said.Move(targets=("table",), device="vgpu:2"), True


SPECS = (
    MatmulSpec(device="vgpu:0", m=64, n=64, k=64, seconds=0.3),
    MatmulSpec(device="cpu", m=32, n=32, k=32, seconds=None, iterations=20, mode="burst"),
    SweepSpec(device="vgpu:0", shapes=((16, 16, 16), (32, 16, 16)), shape_seconds=0.05),
    BandwidthSpec(sources=("cpu", "vgpu:0"), destinations=("vgpu:0", "vgpu:1"), sizes=(1 << 12,), seconds=0.02),
    ScalingSpec(devices=("vgpu:0", "vgpu:1"), size=32, iterations=10),
    ModelSpec(target="mlp", device="vgpu:0", batch=2, train=True, seconds=0.1),
    AllReduceSpec(devices=("vgpu:0", "vgpu:1"), sizes=(1 << 12, 1 << 16), seconds=0.02),
    CalibrateSpec(device="vgpu:0", seconds=0.5),
)


def session(folder: Path) -> None:
    """The recording of a session; its runs go into the history."""
    with Store() as store:
        tags = itertools.cycle([("before", "the change"), ("after",), ()])
        live = RecordedSession(
            lambda result, known: store.add(result, msgspec.structs.replace(known, git_revision=None), next(tags))
        )
        try:
            for command in before_the_recording():
                live.do(command)
            live.session.listener("recording").start_recording(folder / "session.devrec")
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
            live.session.listener("recording").stop_recording()
        finally:
            live.session.close(10.0)


def saved(folder: Path) -> None:
    """Files of tensors and of whole workspaces."""
    here = ScriptedSession(reading.CARDS)
    try:
        for command in (
            said.NewTensor(name="x", fill="rand", shape=(2, 20), seed=3),
            rec.SaveWorkspace(path=str(folder / "copy.devexplorer"), copy_of="/home/user/work.devexplorer"),
            said.NewTensor(name="y", fill="randn", shape=(2, 3), device="vgpu:1", seed=4, requires_grad=True),
            said.NewTensor(name="table", fill="text", text="[[1, 2.5], [3, -4]]", dtype="float64"),
            rec.OpenModel(source="misplaced.py:Net", folder=str(WORK), name="net", inputs="4x12", seed=2),
            lab.MakeOptimizer(target="net", kind="adamw", learning_rate=0.01),
            lab.TrainStep(target="net"),
            rec.Save(targets=("table", "net", "x"), path=str(folder / "tensors.safetensors")),
            said.BuildModel(recipe="mlp", seed=1, dtype="float16", device="vgpu:1"),
            lab.SetRequiresGrad(targets=("mlp:0",), on=False),
            said.BuildModel(recipe="lazy-mlp", device="vgpu:0"),
            said.BuildModel(recipe="nested", seed=5, dtype="bfloat16"),
            lab.Tie(first="nested:0.block 0.0.weight", second="nested:0.block 2.0.weight"),
            lab.SetTraining(target="nested:0.block 1", on=False),
            Split(target="nested", device_map=NESTED),
            rec.SaveWorkspace(path=str(folder / "workspace.devexplorer"), layout=LAYOUT),
        ):
            here.do(command)
    finally:
        here.close()


def history(folder: Path) -> None:
    """The runs and checks that were made, the runs exported, and the calibration of a card."""
    with Store() as store:
        runs = sorted(store.runs(), key=lambda run: run.id)
    shutil.copy(store.path, folder)
    write_json(folder / "history.json", runs, clock=lambda: 1_800_000_000.0)
    write_csv(folder / "history.csv", runs)
    for run in runs:
        if isinstance(run.result, CalibrateResult):
            CalibrationStore(folder / "calibrations").save(calibration_of(run.result, run.conditions))


# --- the rest


def write_settings(folder: Path) -> None:
    """Every key, none with its default."""
    file = SettingsFile(folder)
    problem = file.save(
        Settings(
            theme="light",
            geometry="AdnQywADAAAAAAAAAAAAAAAABP8AAAMf",
            places={
                "main": {"DP-1 2560x1440": Place(80, 60, 1440, 900), "eDP-1 1920x1200": Place(0, 0, 1920, 1160, True)}
            },
            detached=("log",),
            layout="measure",
            tabs={"explore": "objects", "measure": "history"},
            splitters={"main": [400, 500, 300], "right": [250, 350]},
            folded=("devices",),
            span_s=600.0,
            left_plot="parts:vgpu:0",
            right_plot="gb_per_s",
            monitor_plots=("power_w", "temperature_c"),
            of_features={
                "alert_rules": (
                    Rule(metric="temperature_c", raise_at=80.0, clear_at=75.0, seconds=4.0),
                    Rule(metric="memory_used_percent", enabled=False, raise_at=90.0, clear_at=85.0, seconds=2.0),
                    Rule(metric="power_w", raise_at=250.0, clear_at=240.0, seconds=5.0, devices=("nvml:0", "vgpu:1")),
                ),
                "trusted_folders": ("/home/user/models",),
                "recent_models": (("net.py:Net", "/home/user/models"), ("torchvision:resnet50", "")),
                "opened_models": (
                    OpenModel(
                        source="net.py:Net", folder="/home/user/models", name="net", seed=3, inputs="2x16:int64,4x12"
                    ),
                    OpenModel(source="transformers:gpt2?n_layer=2", device="vgpu:0", dtype="float16"),
                ),
                "recent_files": (
                    "/home/user/work.devexplorer",
                    FarFile(machine="gpu-server", path="/data/night.devrec"),
                    FarFile(machine="gpu-server", path="/home/user/here.devexplorer", here=True),
                ),
            },
            machines=(KnownMachine(host="gpu-server", python="/opt/torch/bin/python"), KnownMachine(host="user@far")),
            pythons={"/home/user/models": "/home/user/venv/bin/python"},
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
            said.Remove(names=("product2",)),
            said.AddVirtual(spec="L4"),
            said.Move(targets=("product",), device="vgpu:2"),
            lab.Initialise(target="mlp:2", rule="xavier-uniform", seed=7, biases=True),
            lab.SetRequiresGrad(targets=("mlp:0",), on=False),
            lab.SetTraining(target="mlp", on=False),
            lab.Tie(first="nested:0.block 0.0.weight", second="nested:0.block 2.0.weight"),
            lab.MakeOptimizer(target="my tied-model", kind="adam", learning_rate=0.01),
            lab.TrainStep(target="my tied-model"),
            said.BuildModel(recipe="two-towers", name="towers"),
            Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
            said.Forward(target="towers"),
            Replicate(target="mlp", devices=("vgpu:0", "vgpu:1")),
            said.BuildModel(recipe="two-towers", name="joined"),
            Split(target="joined", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
            InsertHops(target="joined", on=False),
            Join(target="joined", device="vgpu:1"),
            lab.Untie(target="nested:0.block 2.0.weight"),
            MoveOptimizer(target="my tied-model"),
            lab.ClearGradients(target="mlp"),
        ):
            here.do(command)
        (folder / "session.py").write_text(here.session.listener("files").script(to_repeat=True), encoding="utf-8")
        (folder / "session.ipynb").write_text(here.session.listener("files").notebook(), encoding="utf-8")
        names = here.engine.engine.workspace.names
    finally:
        here.close()
    with tempfile.TemporaryDirectory() as where:
        return reading.run_script((folder / "session.py").read_text(encoding="utf-8"), names, Path(where))


def documents(folder: Path) -> None:
    """What each command prints."""
    shutil.copy(folder / "tensors.safetensors", WORK)
    os.chdir(WORK)
    for name, argv in reading.COMMANDS_SINCE.items():
        lines = [json.dumps(without_private(document), ensure_ascii=False) + "\n" for document in reading.printed(argv)]
        (folder / f"{name}.json").write_text("".join(lines), encoding="utf-8")


def demand_nothing_private(folder: Path) -> None:
    """Search every file, including compressed content."""
    from devexplorer.core.recording.format import HEAD_SIZE, MARK

    for path in filter(Path.is_file, folder.rglob("*")):
        data = path.read_bytes()
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
        saved(folder)
        write_settings(folder)
        placed = script(folder)
        documents(folder)
        history(folder)  # the documents add a check of a fleet
        held = {**{what: read(folder) for what, read in reading.READINGS.items()}, "script": placed}
    (folder / "expected.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    demand_nothing_private(folder)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
