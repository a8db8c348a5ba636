"""Runs of the history as files for others: JSON (which `importing` reads) and CSV, all or nothing. Any thread; no
torch."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, count_text
from devexplorer.core.benchmark.history.filter import device_of
from devexplorer.core.benchmark.kinds import dtype, figures, kind_name, title
from devexplorer.core.benchmark.kinds.documents import run_documents
from devexplorer.core.records import Spread, StoredRun
from devexplorer.core.telemetry.export import replacing

SCHEMA = 1
COLUMNS = (
    "run", "benchmark", "title", "what", "began", "began_unix_s", "device", "device_name", "uuid", "simulated",
    "imported", "dtype",
    "quantity", "unit", "median", "p20", "p80", "noise", "iterations", "seconds", "stopped", "verified", "host",
    "driver_version",
    "cuda_version", "torch_version", "devexplorer_version", "git_revision", "threads", "sm_clock_mhz",
    "memory_clock_mhz", "power_w",
    "power_cap_w", "temperature_c", "throttle_reasons", "other_processes", "tags",
)  # fmt: skip
"""Of the CSV: a row per figure of a run. Clocks, power and temperature are medians. What is not known is empty."""


def without_names(run: StoredRun) -> StoredRun:
    """The run without the names of the host and of other processes, to be given to strangers; the number of processes
    stays."""
    known, others = run.conditions, run.conditions.other_processes
    if others:
        others = (f"{len(others)} {'process' if len(others) == 1 else 'processes'}",)
    return replace(run, conditions=replace(known, host="", other_processes=others))


def history_document(runs: Sequence[StoredRun], *, now_unix_s: float) -> dict[str, Any]:
    """The document: `runs` are those of `bench --json`, `history` the same as DevExplorer's own records, complete."""
    kinds = list(dict.fromkeys(kind_name(run.result) for run in runs))
    entries = [
        document | {"benchmark": kind_name(run.result), "tags": run.tags, "imported": run.imported, "history": number}
        for number, run in enumerate(runs)
        for document in run_documents(run.result, run.conditions)
    ]
    return {
        "schema": SCHEMA,
        "benchmark": kinds[0] if len(kinds) == 1 else "history",
        "exported_unix_s": now_unix_s,
        "runs": entries,
        "history": [
            {"result": run.result, "conditions": run.conditions, "tags": run.tags, "imported": run.imported}
            for run in runs
        ],
    }


def write_json(
    path: Path, runs: Sequence[StoredRun], *, names: bool = True, clock: Callable[[], float] = time.time
) -> str:
    """Write the document; returns what was written, in words. `names=False`: `without_names`. Raises `BadInput` and
    `Unavailable`."""
    chosen = chosen_runs(runs, names)
    data = msgspec.json.format(msgspec.json.encode(history_document(chosen, now_unix_s=clock())), indent=1)
    with replacing(path) as temporary:
        temporary.write_bytes(data + b"\n")
    return written_message(path, runs)


def write_csv(path: Path, runs: Sequence[StoredRun], *, names: bool = True) -> str:
    """Write a table of all figures; returns what was written, in words. Raises `BadInput` and `Unavailable`."""
    chosen = chosen_runs(runs, names)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for run in chosen:
            for row in _rows(run):
                writer.writerow({name: _cell(value) for name, value in row.items()})
    return written_message(path, runs)


def written_message(path: Path, runs: Sequence[StoredRun]) -> str:
    """`3 runs written to history.json. 1 simulated run among them, marked as such.`"""
    simulated = sum(run.result.simulated for run in runs)
    marked = f" {count_text(simulated, 'simulated run')} among them, marked as such." if simulated else ""
    return f"{count_text(len(runs), 'run')} written to {path}.{marked}"


def chosen_runs(runs: Sequence[StoredRun], names: bool) -> list[StoredRun]:
    """The runs as they are written, with or `without_names`. Raises `BadInput` where there is none."""
    if not runs:
        raise BadInput("there is no run to export; choose some first")
    return list(runs) if names else [without_names(run) for run in runs]


def _rows(run: StoredRun) -> list[dict[str, object]]:
    """One row per figure."""
    result, known = run.result, run.conditions
    shared: dict[str, object] = {
        "run": run.id,
        "benchmark": kind_name(result),
        "title": title(result.spec),
        "began": datetime.fromtimestamp(known.started_unix_s, UTC).isoformat(timespec="milliseconds"),
        "began_unix_s": known.started_unix_s,
        "device": device_of(run),
        "device_name": known.device_name,
        "uuid": known.uuid,
        "imported": run.imported,
        "dtype": dtype(result.spec),
        "stopped": result.stopped,
        "tags": "; ".join(run.tags),
    }
    for name in COLUMNS[COLUMNS.index("host") : COLUMNS.index("tags")]:
        value = getattr(known, name)
        shared[name] = (
            value.median if isinstance(value, Spread) else "; ".join(value) if isinstance(value, tuple) else value
        )
    return [
        {
            **shared,
            "what": figure.label,
            "simulated": figure.simulated,
            "verified": figure.verified,
            "iterations": figure.iterations,
            "seconds": figure.seconds,
            "quantity": figure.quantity,
            "unit": figure.unit,
            "median": figure.spread.median,
            "p20": figure.spread.p20,
            "p80": figure.spread.p80,
            "noise": figure.noise,
        }
        for figure in figures(result)
    ]


def _cell(value: object) -> str:
    """A value as text. Texts that a spreadsheet would take for a formula get an apostrophe: names can come from
    somebody's file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return repr(value)
