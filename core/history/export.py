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

from devexplorer.core.base import BadInput, Clock, count_text
from devexplorer.core.benchmark.kind import dtype, figures, kind_name, run_documents, title
from devexplorer.core.history.filter import device_of
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


def write_json(path: Path, runs: Sequence[StoredRun], *, names: bool = True, clock: Clock = time.time) -> str:
    """Write the document; see `write_runs`."""

    def write(file: Path, chosen: Sequence[StoredRun]) -> None:
        data = msgspec.json.encode(history_document(chosen, now_unix_s=clock()))
        file.write_bytes(msgspec.json.format(data, indent=1) + b"\n")

    return write_runs(path, runs, names, write)


def write_csv(path: Path, runs: Sequence[StoredRun], *, names: bool = True) -> str:
    """Write a table of all figures; see `write_runs`."""

    def write(place: Path, chosen: Sequence[StoredRun]) -> None:
        with place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            for run in chosen:
                for row in _rows(run):
                    writer.writerow({name: _cell(value) for name, value in row.items()})

    return write_runs(path, runs, names, write)


def write_runs(
    path: Path, runs: Sequence[StoredRun], names: bool, write: Callable[[Path, Sequence[StoredRun]], None]
) -> str:
    """Write a file of runs, all or nothing, with or `without_names`; returns what was written, in words: `3 runs
    written to history.json. 1 simulated run among them, marked as such.`

    Raises `BadInput` where there is no run, and `Unavailable`.
    """
    if not runs:
        raise BadInput("there is no run to export; choose some first")
    with replacing(path) as temporary:
        write(temporary, runs if names else [without_names(run) for run in runs])
    simulated = sum(run.result.simulated for run in runs)
    marked = f" {count_text(simulated, 'simulated run')} among them, marked as such." if simulated else ""
    return f"{count_text(len(runs), 'run')} written to {path}.{marked}"


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
        if isinstance(value, Spread):
            value = value.median
        elif isinstance(value, tuple):
            value = "; ".join(value)
        shared[name] = value
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
