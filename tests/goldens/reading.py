"""Opens each golden with the current program and returns its content as plain JSON values.

`make.py` writes the result to `expected.json`; `tests/project/test_goldens.py` compares."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, get_args

import msgspec
from fakes.scripts import PROBE

from devexplorer.core.base.python_names import variable
from devexplorer.core.benchmark.history.importing import read_runs
from devexplorer.core.benchmark.history.store import Store
from devexplorer.core.benchmark.kinds import figures, kind_name
from devexplorer.core.cli.run import main
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import EVENT_LIMIT, Joiner, decode_command, decode_event, read_payload
from devexplorer.core.engine.local import LocalEngine
from devexplorer.core.memory.snapshot_file import load
from devexplorer.core.memory.snapshot_rows import digest
from devexplorer.core.recording.format import Recorded
from devexplorer.core.recording.reader import open_recording
from devexplorer.core.records import (
    BenchResult,
    BenchSpec,
    BuildModel,
    CheckpointCompared,
    Command,
    CompareCheckpoint,
    EngineDevices,
    EngineLost,
    Event,
    Load,
    ObjectChanged,
    ObjectSnapshot,
    StoredRun,
)
from devexplorer.core.replay.timeline import RecordingTimeline, apply_record
from devexplorer.core.session.settings import SettingsFile
from devexplorer.core.session.state import State
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


def expected() -> dict[str, Any]:
    """The content of all goldens when they were written."""
    found: dict[str, Any] = json.loads((GOLDENS / "expected.json").read_text(encoding="utf-8"))
    return found


def everything(folder: Path) -> dict[str, Any]:
    """All readings, in the form of `expected.json`."""
    return {
        "tags": tags(),
        "recording": recording(folder / "session.devrec"),
        "link": link(folder / "link_events.bin.gz"),
        "commands": commands(folder / "link_commands.bin.gz"),
        "history": history(folder / "history.sqlite3"),
        "exported": imported(folder / "history.json"),
        "table": table(folder / "history.csv"),
        "documents": {name: imported(folder / f"{name}.json") for name in COMMANDS if name.startswith("bench")},
        "settings": settings(folder),
        "tensors": tensors(folder),
        "allocator": allocator(folder / "allocator.pickle"),
    }


def tags() -> dict[str, dict[str, list[str]]]:
    """The names of all records in files and on the link, with those of their fields."""
    groups = {
        "commands": Command,
        "events": Event,
        "recorded": Recorded,
        "benchmarks": BenchSpec,
        "results": BenchResult,
    }
    return {
        group: {type_tag(kind): sorted(kind.__struct_encode_fields__) for kind in get_args(union)}
        for group, union in groups.items()
    }


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
                for change in played.alerts.take_news()
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
        "values": {target: plain(found.values) for target, found in state.values.items()},
        "comparison": plain(state.comparison),
        "file": plain(state.file),
        "split_plans": {target: plain(plan) for target, plan in state.split_plans.items()},
        "crossings": {target: plain(hops) for target, hops in state.hops.items()},
        "work": plain(state.work),
        "crossover": plain(state.crossover),
        "diagnoses": {target: _diagnosis(plain(diagnosis)) for target, diagnosis in state.diagnoses.items()},
        "plan": plain(state.fit),
        "segments": None
        if state.snapshot is None
        else [[one.bytes, one.allocated_bytes, len(one.blocks)] for one in state.snapshot.segments],
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


def imported(path: Path) -> list[Any]:
    """Every run of an exported history, or of a document of `bench --json`."""
    return [_stored(run) for run in read_runs(path)]


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
    found = plain(file.load())
    assert file.damage is None
    return found


def tensors(folder: Path) -> dict[str, Any]:
    """The content of the tensor files, each loaded into a new workspace."""
    found: dict[str, Any] = {}
    with LocalEngine(CARDS) as engine:
        for name in ("workspace.safetensors", "tensors.pt"):
            answers = engine.demand(Load(path=str(folder / name)))
            loaded = [event.snapshot for event in answers if isinstance(event, ObjectChanged)]
            found[name] = {one.name: [_object(one), one.values] for one in loaded}
        engine.demand(BuildModel(recipe="mlp", name="other"))
        (compared,) = (
            event.comparison
            for event in engine.demand(CompareCheckpoint(target="other", path=str(folder / "checkpoint.pt")))
            if isinstance(event, CheckpointCompared)
        )
        found["checkpoint.pt"] = [compared.matching, list(compared.missing), list(compared.unexpected)]
    _no_virtual_gpus()
    return found


def allocator(path: Path) -> Any:
    """An allocator snapshot as the window shows it."""
    return plain(digest(load(str(path)), path.name))


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
