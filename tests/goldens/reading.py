"""Opens each golden with the current program and returns its content as plain JSON values.

`make.py` writes the result to `expected.json`; `tests/project/test_goldens.py` and `test_second_goldens.py` compare."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, get_args

import msgspec
import torch
from fakes.scripts import PROBE, look

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.base.python_names import variable
from devexplorer.core.benchmark.kind import figures, kind_name
from devexplorer.core.cli.run import main
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.engine.link import EVENT_LIMIT, Joiner, decode_command, decode_event, read_payload
from devexplorer.core.experiments.state import ExperimentState
from devexplorer.core.feature import benchmark_kinds, command_types, event_types
from devexplorer.core.files.records import CheckpointCompared, CompareCheckpoint, Load, OpenWorkspace, WorkspaceFile
from devexplorer.core.files.script import commands_of
from devexplorer.core.files.state import FilesState
from devexplorer.core.fleet.report.history import TABLE, stored_checks
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import read_runs
from devexplorer.core.memory.snapshot_file import load
from devexplorer.core.memory.state import MemoryState
from devexplorer.core.parameters.state import ValuesState
from devexplorer.core.planner.calibrate.store import CalibrationStore
from devexplorer.core.planner.state import FitState
from devexplorer.core.recording.format import Recorded, open_recording
from devexplorer.core.recording.timeline import RecordingTimeline, apply_record
from devexplorer.core.records import (
    BuildModel,
    EngineDevices,
    EngineLost,
    Event,
    ObjectChanged,
    ObjectSnapshot,
    StoredRun,
)
from devexplorer.core.session.settings import SettingsFile, saved_form
from devexplorer.core.session.state import State
from devexplorer.core.split.state import SplitState
from devexplorer.core.virtual.backend import install

GOLDENS = Path(__file__).parent
CARDS = "2x Tesla T4"
TINY = ("--virtual", "Tesla T4", "--no-store", "--device", "cpu", "vgpu:0")
TWO = ("--virtual", CARDS, "--no-store", "--device", "vgpu:0", "vgpu:1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "devices": ("devices", "--virtual", "Tesla T4"),
    "watch": ("watch", "--virtual", "Tesla T4", "--count", "1"),
    "place": ("place", "tied", "--device", "vgpu:0", "--virtual", "Tesla T4"),
    "doctor": ("doctor", "misplaced:Net", "--virtual", "Tesla T4", "--train", "--input", "4x12"),
    "fit": ("fit", "mlp", "--gpu", "Tesla T4", "--train", "--batch", "8"),
    "env": ("env", "--virtual", "Tesla T4"),
    "bench_matmul": ("bench", "matmul", *TINY, "--size", "32", "--iterations", "5"),
    "bench_bandwidth": ("bench", "bandwidth", *TINY, "--bytes", "4K", "--seconds", "0.01"),
    "bench_sweep": ("bench", "sweep", *TINY, "--sizes", "16,32", "--seconds", "0.01"),
    "bench_scaling": (
        "bench",
        "scaling",
        "--virtual",
        CARDS,
        "--no-store",
        "--device",
        "vgpu:0",
        "vgpu:1",
        "--size",
        "32",
        "--iterations",
        "5",
    ),
    "bench_model": ("bench", "model", "mlp", *TINY, "--seconds", "0.05", "--train"),
}
"""File -> the command that printed it, which needs `--json` and this folder as the current one."""


SECOND = GOLDENS / "second"
COMMANDS_SINCE: dict[str, tuple[str, ...]] = {
    **COMMANDS,
    "bench_allreduce": ("bench", "allreduce", *TWO, "--size", "4K,64K", "--seconds", "0.01"),
    "bench_calibrate": ("bench", "calibrate", *TINY[:-2], "vgpu:0", "--seconds", "0.5"),
    "fleet": ("fleet", "--nodes", "2", "--virtual", CARDS),
    "fleet_check": (
        "fleet", "check", "--nodes", "2", "--virtual", CARDS, "--defect", "slow:0/1:20%", "--seconds", "2", "--uuids",
    ),
    "fleet_history": ("fleet", "history"),
    "show": ("show", "tensors.safetensors"),
}  # fmt: skip
"""The same of the second goldens."""


def expected(folder: Path = GOLDENS) -> dict[str, Any]:
    """The content of a folder's goldens when they were written."""
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return found


def tags() -> dict[str, dict[str, list[str]]]:
    """The names of all records in files and on the link, with those of their fields."""
    groups = {
        "commands": command_types(),
        "events": event_types(),
        "recorded": get_args(Recorded),
        "benchmarks": [kind.spec for kind in benchmark_kinds().values()],
        "results": [kind.result for kind in benchmark_kinds().values()],
    }
    return {
        group: {type_tag(kind): sorted(kind.__struct_encode_fields__) for kind in kinds}
        for group, kinds in groups.items()
    }


def as_then(now: Any, then: Any) -> Any:
    """Without fields of records that have come since; none may go or change."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {name: as_then(now[name], value) if name in now else "is gone" for name, value in then.items()}
    if isinstance(now, list) and isinstance(then, list):
        return [as_then(one, other) for one, other in zip(now, then, strict=True)]
    return now


def plain(value: object) -> Any:
    """As after a round trip through JSON."""
    return json.loads(json.dumps(msgspec.to_builtins(value, str_keys=True)))


# --- recording and link


def recording(path: Path) -> dict[str, Any]:
    """The state at the end of a recording, and the number of records by tag."""
    opened = open_recording(path)
    assert opened is not None
    with opened:
        assert opened.ended
        assert opened.findings == ()
        readings = [entry for frame in opened.frames for entry in opened.readings(frame)]
        entries = sorted((*readings, *opened.events), key=lambda entry: entry.at_ms)
        played = State()
        for entry in entries:
            apply_record(played, entry.record)
        state = RecordingTimeline(opened, State).state_at(opened.last_ms)
        return {
            "host": opened.header.host,
            "tags": _counted(type_tag(entry.record) for entry in entries),
            "devices": {
                name: [one.info.kind, one.info.name, one.info.simulated] for name, one in state.devices.items()
            },
            "used_bytes": {name: one.used_bytes for name, one in state.devices.items()},
            "allocated_bytes": {
                name: one.allocator.allocated_bytes for name, one in state.devices.items() if one.allocator is not None
            },
            "details": [name for name, one in state.devices.items() if one.details is not None],
            "about": {name: plain(one.details) for name, one in state.devices.items() if one.details is not None},
            "samples": {name: plain(one.sample) for name, one in state.devices.items()},
            "readings": {name: len(one.history) for name, one in state.devices.items()},
            "runs": _runs(state),
            "markers": [[marker.text, marker.device, marker.kind] for marker in state.markers],
            "alerts": [
                [
                    change.raised,
                    change.device,
                    change.metric,
                    change.level,
                    change.threshold,
                    change.worst,
                ]
                for change in alerts_of(played).take_news()
            ],
            "log": [[line.level, line.text] for line in state.log],
            "topologies": sorted(state.topologies),
            "engine": state.engine is not None,
        }


def events(path: Path) -> Iterator[Event]:
    """Everything that came over the link."""
    joiner = Joiner()
    for payload in _frames(path):
        event = joiner.take(decode_event(payload))
        if event is not None:
            yield event


def link(path: Path) -> dict[str, Any]:
    """The state before the engine died, and after a new one had rebuilt everything."""
    state, before = State(), None
    for event in events(path):
        if isinstance(event, EngineLost):
            before = _known(state)
        if isinstance(event, EngineDevices):
            state.set_catalog(Catalog(event.devices, event.problems))
        state.apply(event)
    tags = _counted(msgspec.msgpack.decode(payload)["type"] for payload in _frames(path))
    return {"tags": tags, "before": before, "after": _known(state)}


def commands(path: Path) -> list[Any]:
    """Every command that was sent, field by field."""
    return [[command.__struct_config__.tag, plain(command)] for command in map(decode_command, _frames(path))]


def _frames(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as stream:
        while (payload := read_payload(stream, EVENT_LIMIT)) is not None:  # type: ignore[arg-type]
            yield payload


def _known(state: State) -> dict[str, Any]:
    return {
        "devices": list(state.devices),
        "objects": {name: _object(snapshot) for name, snapshot in state.objects.items()},
        "runs": _runs(state),
        "commands": [
            [type_tag(done.command), done.ok, done.answer.title if done.answer is not None else None]
            for done in state.done
        ],
        "moves": [plain(done.report) for done in state.done if done.report is not None],
        "undo": {
            field: value for field, value in plain(state.undo).items() if field not in ("command", "contents")
        },  # came later
        "values": {target: plain(found.values) for target, found in state.part(ValuesState).values.items()},
        "comparison": plain(state.part(FilesState).comparison),
        "file": plain(state.part(FilesState).listed),
        "split_plans": {target: plain(plan) for target, plan in state.part(SplitState).plans.items()},
        "crossings": {target: plain(hops) for target, hops in state.part(SplitState).hops.items()},
        "work": plain(state.part(ExperimentState).work),
        "crossover": plain(state.part(ExperimentState).crossover),
        "diagnoses": {target: _diagnosis(plain(diagnosis)) for target, diagnosis in state.diagnoses.items()},
        "plan": plain(state.part(FitState).report),
        "segments": None
        if state.part(MemoryState).snapshot is None
        else [[one.bytes, one.allocated_bytes, len(one.blocks)] for one in state.part(MemoryState).snapshot.segments],
        "log": [[line.level, line.text] for line in state.log],
    }


def type_tag(record: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The name of a record in files."""
    return str(record.__struct_config__.tag)


def _diagnosis(told: dict[str, Any]) -> dict[str, Any]:
    for finding in (*told["problems"], *told["notes"]):
        for one in (finding, *finding["consequences"]):
            del one["digest"]  # it came later
    return told


def _object(snapshot: ObjectSnapshot) -> dict[str, Any]:
    rows = [
        [row.path, row.kind, row.type, row.shape, row.dtype, row.devices, row.tied_to] for row in snapshot.rows[:40]
    ]
    return plain(
        {"type": snapshot.type, "rows": len(snapshot.rows), "bytes": snapshot.bytes_by_device, "first_rows": rows}
    )


def _runs(state: State) -> list[Any]:
    return [
        [
            type_tag(run.spec),
            run.spec.device,
            run.ended,
            run.simulated,
            [] if run.result is None else _figures(run.result),
        ]
        for run in state.runs.values()
    ]


def _figures(result: Any) -> list[Any]:
    return [[figure.label, figure.quantity, plain(figure.spread), figure.simulated] for figure in figures(result)]


def _counted(tags: Iterable[Any]) -> dict[str, int]:
    return dict(sorted(Counter(map(str, tags)).items()))


# --- history, settings, tensors, snapshots


def history(path: Path) -> list[Any]:
    """Every run of a database, the newest first."""
    with Store(path) as store:
        found = [_stored(run) for run in store.runs()]
        assert (store.problem, store.unreadable, store.notices()) == (None, 0, ())
        return found


def checks(path: Path) -> Any:
    """Every check of a fleet in a database."""
    with Store(path) as store:
        return plain(stored_checks(store.rows(TABLE)))


def imported(path: Path) -> list[Any]:
    """Every run of an exported history, or of a document of `bench --json`."""
    return [_stored(run) for run in read_runs(path)]


def calibrations(folder: Path) -> Any:
    """Every calibration of a card."""
    return plain(CalibrationStore(folder).load())


def documents(path: Path) -> list[Any]:
    """The output of a command: one document per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    """The rows of an exported CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _stored(run: StoredRun) -> list[Any]:
    return [
        kind_name(run.result),
        list(run.tags),
        run.imported,
        plain(run.conditions),
        plain(run.result),
        _figures(run.result),
    ]


def settings(folder: Path) -> Any:
    """The content of a folder's `window.json`."""
    file = SettingsFile(folder)
    found = plain(saved_form(file.load()))
    assert file.damage is None
    return found


def tensors(folder: Path) -> dict[str, Any]:
    """The content of the tensor files, each loaded into a new workspace."""
    found: dict[str, Any] = {}
    with LocalEngine(CARDS) as engine:
        for name in ("workspace.safetensors", "tensors.pt"):
            found[name] = _loaded(engine, folder / name)
        engine.demand(BuildModel(recipe="mlp", name="other"))
        (compared,) = (
            event.comparison
            for event in engine.demand(CompareCheckpoint(target="other", path=str(folder / "checkpoint.pt")))
            if isinstance(event, CheckpointCompared)
        )
        found["checkpoint.pt"] = [compared.matching, list(compared.missing), list(compared.unexpected)]
    _no_virtual_gpus()
    return found


def _loaded(engine: LocalEngine, path: Path) -> dict[str, Any]:
    events = engine.demand(Load(path=str(path)))
    snapshots = [event.snapshot for event in events if isinstance(event, ObjectChanged)]
    return {one.name: [_object(one), one.values] for one in snapshots}


def loaded(path: Path) -> dict[str, Any]:
    """The objects of a file of tensors, loaded into a new workspace."""
    with LocalEngine(CARDS) as engine:
        found = _loaded(engine, path)
    _no_virtual_gpus()
    return found


def workspace(path: Path) -> dict[str, Any]:
    """A workspace file opened in an empty workspace: every row with its values, optimizers, and the window's layout."""
    with LocalEngine(f"{CARDS}, L4") as engine:
        events = engine.demand(OpenWorkspace(path=str(path)))
        (file,) = (event for event in events if isinstance(event, WorkspaceFile))
        snapshots = {event.snapshot.name: event.snapshot for event in events if isinstance(event, ObjectChanged)}
        live = engine.engine.workspace
        objects = {
            name: {
                "seen": look(name, live.get(name)),
                "first_values": one.values,
                "stored": one.stored,
                "source": one.source,
                "optimizer": one.optimizer,
                "state": _optimizer_state(live.extras(name).optimizer),
                "hops": one.hops,
            }
            for name, one in snapshots.items()
        }
    _no_virtual_gpus()
    return {"objects": plain(objects), "layout": json.loads(file.layout or "null"), "lost": plain(file.lost)}


def saved_for(path: Path) -> Any:
    """Which file a copy of unsaved work is a copy of, and on which machine."""
    with LocalEngine(CARDS) as engine:
        events = engine.demand(OpenWorkspace(path=str(path), copy=True))
        (file,) = (event for event in events if isinstance(event, WorkspaceFile))
    _no_virtual_gpus()
    return plain({"path": file.path, "copy": file.copy, "machine": file.sent_from})


def _optimizer_state(optimizer: torch.optim.Optimizer | None) -> Any:
    """Digests of its tensors, and its numbers."""
    if optimizer is None:
        return None
    return [
        {
            key: look(key, value)[1] if isinstance(value, torch.Tensor) else value
            for key, value in optimizer.state[parameter].items()
        }
        for group in optimizer.param_groups
        for parameter in group["params"]
    ] + [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def allocator(path: Path) -> Any:
    """An allocator snapshot as the window shows it."""
    return plain(load(str(path), path.name))


# --- output of commands, and the script


def printed(argv: Sequence[str]) -> list[Any]:
    """The documents that a command prints; it runs in this process."""
    _no_virtual_gpus()
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out):
        code = main([*argv, "--json"])
    _no_virtual_gpus()
    assert code in (0, 1), code
    out.flush()
    return [json.loads(line) for line in out.buffer.getvalue().splitlines()]  # type: ignore[attr-defined]


def _no_virtual_gpus() -> None:
    install().reset()


Keys = dict[str, Any]
"""Key -> the keys below it; empty below a plain value, a null or an empty list."""


def keys(value: object) -> Keys:
    """The keys of a document, at every depth; all entries of a list together."""
    if isinstance(value, dict):
        # which readings have a reason for their absence varies, so those keys are not part of the format
        return {key: {} if key == "unavailable" else keys(below) for key, below in value.items()}
    merged: Keys = {}
    for entry in value if isinstance(value, list) else ():
        _merge(merged, keys(entry))
    return merged


def _merge(into: Keys, more: Keys) -> None:
    for key, below in more.items():
        _merge(into.setdefault(key, {}), below)


def differing(then: Keys, now: Keys, path: str = "") -> list[str]:
    """Paths that only one of the two has. An empty one matches anything: a list without entries, a null."""
    if not then or not now:
        return []
    found = [f"{path}.{key}: only {'now' if key in now else 'then'}" for key in then.keys() ^ now.keys()]
    return found + [
        text for key in then.keys() & now.keys() for text in differing(then[key], now[key], f"{path}.{key}")
    ]


def lost(path: Path, now: list[Any]) -> list[str]:
    """Keys of the documents in a file that those of now do not have any more."""
    return [line for line in differing(keys(documents(path)), keys(now)) if line.endswith("only then")]


def run_script(text: str, names: Iterable[str], folder: Path) -> dict[str, Any]:
    """Run a session's Python in a new process; returns name -> placement rows and training modes."""
    out, path = folder / "seen.json", folder / "script.py"
    known = {name: variable(name) for name in names}
    path.write_text(text + PROBE.replace("__OUT__", repr(str(out))).replace("__NAMES__", repr(known)), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd=folder, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    seen = json.loads(out.read_text(encoding="utf-8"))
    return {name: [rows, modes] for name, (rows, _values, modes) in seen.items()}


def run_notebook(path: Path, names: Iterable[str], folder: Path) -> dict[str, Any]:
    """The same with the cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return run_script(text + "\n", names, folder)


READINGS: dict[str, Callable[[Path], Any]] = {
    "recording": lambda folder: recording(folder / "session.devrec"),
    "history": lambda folder: history(folder / "history.sqlite3"),
    "checks": lambda folder: checks(folder / "history.sqlite3"),
    "calibrations": lambda folder: calibrations(folder / "calibrations"),
    "documents": lambda folder: {path.stem: imported(path) for path in sorted(folder.glob("bench_*.json"))},
    "settings": settings,
    "workspace": lambda folder: workspace(folder / "workspace.devexplorer"),
    "copy": lambda folder: saved_for(folder / "copy.devexplorer"),
    "tensors": lambda folder: loaded(folder / "tensors.safetensors"),
    "commands": lambda folder: [
        [type_tag(command), plain(command)] for command in commands_of(folder / "session.py").commands
    ],
}
"""How each file of the second goldens is read: the keys of its `expected.json`, beside the placement that the script
makes."""
