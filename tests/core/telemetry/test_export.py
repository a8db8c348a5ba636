"""Exports read back: every value, units, simulated values; and a full disk."""

from __future__ import annotations

import csv
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

from devexplorer.core.base import Unavailable
from devexplorer.core.records import Answer, Event
from devexplorer.core.session.background import Background
from devexplorer.core.telemetry.export import Extract, write_bytes, write_csv, write_parquet
from devexplorer.core.telemetry.history import BY_ID, THROUGHPUT, History

START = 1_800_000_000.0
METRICS = ("memory_used_bytes", "power_w")


def extract(device: str, *, simulated: bool, rows: int = 3, readings: int = 100) -> Extract:
    history = History([BY_ID[name] for name in METRICS], gap_s=math.inf, readings=readings)
    for tick in range(rows):
        history.append(START + tick, (8_589_934_592 + tick, None if tick == 1 else 80.5 + tick))
    return Extract(device, simulated, METRICS, history.table(METRICS, START, START + rows))


def test_a_csv_has_units_times_and_what_is_simulated(tmp_path: Path) -> None:
    words = write_csv(tmp_path / "out.csv", [extract("cuda:0", simulated=False), extract("vgpu:0", simulated=True)])
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == ["time", "time_unix_s", "device", "simulated", "seconds", "memory_used_bytes", "power_w"]
    assert [row["device"] for row in rows] == ["cuda:0"] * 3 + ["vgpu:0"] * 3
    assert [row["simulated"] for row in rows] == ["false"] * 3 + ["true"] * 3
    assert rows[0]["time"] == "2027-01-15T08:00:00.000+00:00"
    assert float(rows[2]["time_unix_s"]) == START + 2
    assert [row["memory_used_bytes"] for row in rows[:3]] == ["8589934592", "8589934593", "8589934594"]
    assert [row["power_w"] for row in rows[:3]] == ["80.5", "", "82.5"]
    assert words == f"6 rows of 2 devices in {tmp_path / 'out.csv'}. Simulated and marked as such: vgpu:0."


def test_a_span_of_bins_has_lowest_mean_and_highest(tmp_path: Path) -> None:
    coarse, fine = extract("cuda:0", simulated=False, rows=60, readings=2), extract("cuda:1", simulated=False)
    write_csv(tmp_path / "out.csv", [coarse, fine])
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["seconds"] for row in rows if row["device"] == "cuda:0"} == {"5"}
    assert {row["seconds"] for row in rows if row["device"] == "cuda:1"} == {"0"}
    second = next(row for row in rows if row["device"] == "cuda:0" and float(row["time_unix_s"]) == START + 7.5)
    assert [second[f"power_w_{kind}"] for kind in ("min", "mean", "max")] == ["85.5", "87.5", "89.5"]


def test_a_parquet_file_has_types_units_and_nulls(tmp_path: Path) -> None:
    throughput = History((THROUGHPUT,), gap_s=math.inf)
    throughput.append(START + 0.5, (41.25,))
    run = Extract("vgpu:0", True, (THROUGHPUT.id,), throughput.table((THROUGHPUT.id,), START, START + 9))
    write_parquet(
        tmp_path / "out.parquet", [extract("cuda:0", simulated=False), extract("vgpu:0", simulated=True), run]
    )
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 7
    assert table.column("power_w").to_pylist() == [80.5, None, 82.5, 80.5, None, 82.5, None]
    assert table.column("tflops").to_pylist() == [None] * 6 + [41.25]
    assert table.column("simulated").to_pylist() == [False] * 3 + [True] * 4
    assert table.column("time")[0].as_py().isoformat() == "2027-01-15T08:00:00+00:00"
    assert table.schema.field("power_w").metadata[b"unit"] == b"W"
    assert table.schema.metadata[b"unit:memory_used_bytes"] == b"B"
    assert table.schema.metadata[b"simulated_devices"] == b"vgpu:0"


def test_an_empty_span_is_a_file_without_rows(tmp_path: Path) -> None:
    empty = extract("cuda:0", simulated=False, rows=0)
    assert write_csv(tmp_path / "out.csv", [empty]).startswith("0 rows of 0 devices")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1
    write_parquet(tmp_path / "out.parquet", [empty])
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 0


@contextmanager
def full_disk(after_bytes: int) -> Iterator[None]:
    """Limits the size of files in this process: writes fail as on a full disk (Python ignores the signal)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def written(path: Path) -> str:
    """Export so much that it does not fit."""
    if path.suffix == ".png":
        return write_bytes(path, b"x" * 10_000)
    big = [extract("cuda:0", simulated=False, rows=3000, readings=3000)]
    return write_csv(path, big) if path.suffix == ".csv" else write_parquet(path, big)


@pytest.mark.parametrize("ending", ["csv", "parquet", "png"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    path.write_text("what was there")
    with full_disk(4096), pytest.raises(Unavailable, match="Choose another folder or free some space") as failed:
        written(path)
    assert "\n" not in str(failed.value)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_background_work_ends_in_an_answer(tmp_path: Path) -> None:
    events: list[Event] = []
    background = Background(events.append, clock=lambda: 5.0)
    background.start("export", "Export", lambda: write_bytes(tmp_path / "a.png", b"png"))
    assert background.join(5.0)
    background.start("export", "Export", lambda: write_bytes(tmp_path / "gone" / "a.png", b"png"))
    assert background.join(5.0)
    good, bad = events
    assert isinstance(good, Answer)
    assert isinstance(bad, Answer)
    assert (good.title, good.failed, good.time_unix_s) == ("Export", False, 5.0)
    assert good.words == f"The picture is in {tmp_path / 'a.png'}."
    assert bad.failed
    assert "could not be written" in bad.words
