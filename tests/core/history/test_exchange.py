"""Export and import of runs: nothing is lost, and nothing wrong is imported."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.disk import full_disk
from fakes.runs import BEGAN, around, bandwidth, conditions, matmul, model, samples, scaling, stored, sweep

from devexplorer.core.bandwidth.kind import BandwidthResult
from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.benchmark.kind import benchmark_document, run_documents
from devexplorer.core.history.export import COLUMNS, write_csv, write_json
from devexplorer.core.history.report import report_html
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import MOST_BYTES, import_file, parse_runs, read_runs
from devexplorer.core.records import BenchResult, MatmulResult, StoredRun
from devexplorer.core.sweep.kind import SweepCell, SweepResult

RUNS = (
    stored(matmul(samples(100), parts_tflops=(99.0,) * 8, drift=-0.01, datasheet_tflops=125.0), 1, tags=("baseline",)),
    stored(sweep(), 2, other_processes=("python (77)", "Xorg (5)")),
    stored(bandwidth(), 3),
    stored(scaling(), 4),
    stored(model(train=True), 5, driver_version=None, throttle_reasons=None),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "history.sqlite3") as opened:
        yield opened


def written(tmp_path: Path, runs: tuple[StoredRun, ...] = RUNS, **more: bool) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "runs.json"
    write_json(path, runs, clock=lambda: BEGAN, **more)
    return path, json.loads(path.read_text(encoding="utf-8"))


def content(run: StoredRun) -> tuple[object, ...]:
    return (msgspec.structs.replace(run.result, run=0), run.conditions, run.tags)


# --- JSON there and back


def test_an_export_comes_back_as_it_was(tmp_path: Path, store: Store) -> None:
    path, document = written(tmp_path)
    assert (document["schema"], document["benchmark"], document["exported_unix_s"]) == (1, "history", BEGAN)
    assert import_file(path, store) == "5 runs imported from runs.json."
    assert [content(run) for run in reversed(store.runs())] == [content(run) for run in RUNS]
    assert all(run.imported for run in store.runs())


def test_runs_of_a_benchmark_that_is_not_here_are_counted_and_left_out(tmp_path: Path, store: Store) -> None:
    path, document = written(tmp_path)
    document["history"][0]["result"]["type"] = "triathlon"
    path.write_text(json.dumps(document))
    left = "1 run left out: this DevExplorer has no benchmark triathlon."
    assert import_file(path, store) == f"4 runs imported from runs.json. {left}"
    path.write_text(
        json.dumps(
            {
                "schema": 1,
                "runs": [{**run, "benchmark": "triathlon"} for run in document["runs"][:1]]
                + [{**document["runs"][1], "benchmark": "sweep"}],
            }
        )
    )
    assert left in import_file(path, store)


def test_the_runs_of_an_export_are_those_of_the_command_line(tmp_path: Path) -> None:
    _, document = written(tmp_path, RUNS[:1])
    ours = benchmark_document([(RUNS[0].result, RUNS[0].conditions)])
    assert document["benchmark"] == "matmul"
    (entry,) = document["runs"]
    assert json.loads(msgspec.json.encode(ours["runs"][0])).items() <= entry.items()
    assert (entry["tags"], entry["imported"], entry["history"]) == (["baseline"], False, 0)


def test_what_was_imported_before_is_recognised(tmp_path: Path, store: Store) -> None:
    path, _ = written(tmp_path)
    import_file(path, store)
    assert import_file(path, store) == "0 runs imported from runs.json. 5 runs already in the history."
    assert store.count() == 5


def test_ones_own_runs_are_recognised_even_without_names(tmp_path: Path, store: Store) -> None:
    for run in RUNS:
        store.add(run.result, run.conditions)
    path, _ = written(tmp_path, names=False)
    assert import_file(path, store).endswith("5 runs already in the history.")


def test_names_can_be_left_out(tmp_path: Path) -> None:
    path, _ = written(tmp_path, names=False)
    text = path.read_text(encoding="utf-8")
    assert "node7" not in text
    assert "Xorg" not in text
    _, second, *_ = read_runs(path)
    assert second.conditions.other_processes == ("2 processes",), "that there were some is a condition"
    assert second.conditions.host == ""


def test_nothing_to_export_is_said(tmp_path: Path) -> None:
    for write in (write_json, write_csv):
        with pytest.raises(BadInput, match="no run to export"):
            write(tmp_path / "x", [])


@pytest.mark.parametrize("write", [write_json, write_csv])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "runs.out"
    path.write_text("what was there")
    with full_disk(4096), pytest.raises(Unavailable, match="Choose another folder or free some space"):
        write(path, RUNS * 10)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


# --- documents of the command line


def printed(*results: BenchResult, with_conditions: bool = True, **more: Any) -> bytes:
    known = [
        conditions(number, simulated=result.simulated) if with_conditions else None
        for number, result in enumerate(results)
    ]
    document = benchmark_document(list(zip(results, known, strict=True)))
    return msgspec.json.encode({"schema": 1, **document, **more})


def test_what_the_command_line_printed_is_read_too() -> None:
    sustained = matmul(parts_tflops=(99.0, 100.0), drift=0.01, noise=0.02)
    (run,) = parse_runs(printed(sustained), BEGAN)
    expected = msgspec.structs.replace(sustained, run=0, spec=msgspec.structs.replace(sustained.spec, seconds=None))
    assert (run.result, run.conditions, run.imported) == (expected, conditions(0), True)


@pytest.mark.parametrize(
    "result", [sweep(), bandwidth(), scaling(), model(train=True)], ids=lambda result: type(result).__name__
)
def test_every_kind_of_document_is_one_run_with_the_same_figures(result: BenchResult) -> None:
    from devexplorer.core.benchmark.kind import figures

    (run,) = parse_runs(printed(result), BEGAN)
    assert type(run.result) is type(result)
    assert figures(run.result) == figures(result)
    assert run.result.spec.device == result.spec.device


def test_runs_of_several_devices_stay_apart() -> None:
    assert [run.result.spec.device for run in parse_runs(printed(sweep("cuda:0"), sweep("cuda:1")), BEGAN)] == [
        "cuda:0",
        "cuda:1",
    ]


def test_a_document_without_conditions_has_the_time_of_its_file() -> None:
    (run,) = parse_runs(printed(matmul(), with_conditions=False), BEGAN)
    assert (run.conditions.ended_unix_s, run.conditions.started_unix_s) == (BEGAN, BEGAN - 2.0)
    assert (run.conditions.device, run.conditions.torch_version, run.conditions.driver_version) == (
        "cuda:0",
        "2.13.0",
        None,
    )


def test_a_virtual_gpu_is_simulated_whatever_the_file_says() -> None:
    (run,) = parse_runs(printed(matmul(device="vgpu:0", simulated=False)), BEGAN)
    assert run.result.simulated
    assert run.conditions.simulated


def test_a_copy_with_a_virtual_gpu_is_simulated_whatever_our_own_records_say(tmp_path: Path) -> None:
    path, document = written(tmp_path, (stored(bandwidth(), 1),))
    for row in document["history"][0]["result"]["rows"]:
        row["destination"] = "vgpu:0"
    path.write_text(json.dumps(document), encoding="utf-8")
    (run,) = read_runs(path)
    assert isinstance(run.result, BandwidthResult)
    assert all(row.simulated for row in run.result.rows)


def test_the_samples_that_the_command_line_printed_come_along() -> None:
    measured = matmul(samples(100))
    (run,) = parse_runs(printed(measured), BEGAN)
    assert isinstance(run.result, MatmulResult)
    assert run.result.samples_tflops == measured.samples_tflops


def test_times_and_verification_of_each_part_survive_the_way_there_and_back() -> None:
    """A document has the duration of each shape and copy, and whether it was correct."""
    shapes = msgspec.structs.replace(
        sweep(),
        verified=False,
        cells=(
            SweepCell(8, 8, 8, around(2.0), 10, verified=True, seconds=0.25),
            SweepCell(9, 9, 9, reason="its values are wrong", verified=False),
            SweepCell(10, 10, 10, reason="it does not fit"),
        ),
    )
    documents = run_documents(shapes)
    assert [(one["verified"], one["seconds"]) for one in documents] == [(True, 0.25), (False, None), (None, None)]
    (run,) = parse_runs(printed(shapes), BEGAN)
    assert isinstance(run.result, SweepResult)
    assert (run.result.cells, run.result.verified) == (shapes.cells, False)
    rows = tuple(
        msgspec.structs.replace(row, measured_seconds=0.5, verified=at > 0) for at, row in enumerate(bandwidth().rows)
    )
    copies = msgspec.structs.replace(bandwidth(), rows=rows, verified=False)
    assert {one["seconds"] for one in run_documents(copies)} == {0.5}
    (run,) = parse_runs(printed(copies), BEGAN)
    assert isinstance(run.result, BandwidthResult)
    assert (run.result.rows, run.result.verified) == (copies.rows, False)


# --- invalid files

GOOD: dict[str, Any] = {
    "device": "cuda:0", "dtype": "float32", "shape": [8, 8, 8], "mode": "burst", "tflops": {"median": 2.0, "p20": 1.0,
                                                                                            "p80": 3.0},
    "iterations": 3, "seconds": 1.0, "simulated": False,
}  # fmt: skip


def one_run(**more: Any) -> bytes:
    return json.dumps({"schema": 1, "benchmark": "matmul", "runs": [GOOD, GOOD | more]}).encode()


def test_the_least_that_is_a_run_is_read() -> None:
    assert len(parse_runs(one_run(dtype="float16"), BEGAN)) == 2
    assert len(parse_runs(one_run(), BEGAN)) == 1, "the same run twice is one"


WRONG: list[tuple[bytes, str]] = [
    (b"", "no JSON"),
    (b"\xff\xfe", "no JSON"),
    (b'{"schema": 1, "runs": [{"x": ' + b"[" * 100_000, "no JSON"),
    (b"[]", "no list of benchmark runs"),
    (b'{"runs": []}', "no list of benchmark runs"),
    (b'{"schema": 2, "runs": []}', "schema 2; this version reads schema 1"),
    (b'{"schema": 1, "runs": []}', "no run in it"),
    (b'{"schema": 1, "runs": [], "history": [{}]}', "run 1: Object missing required field `result`"),
    (b'{"schema": 1, "benchmark": "triathlon", "runs": [{}]}', "there is no benchmark 'triathlon'"),
    (one_run(dtype=None), "run 2: Expected `str`"),
    (one_run(tflops={"median": "fast"}), "run 2: Expected `float`"),
    (one_run(tflops={"median": -1.0, "p20": -2.0, "p80": 0.0}), "p20 ≤ median ≤ p80"),
    (one_run(tflops={"median": 1.0, "p20": 2.0, "p80": 3.0}), "p20 ≤ median ≤ p80"),
    (one_run(tflops={"median": 1.0, "p20": 0.5, "p80": 1e999}), "no JSON|p20 ≤ median|Expected `float`|out of range"),
    (one_run(shape=[8, 8]), "run 2: Expected `array` of length 3"),
    (one_run(shape=[8, 8, 0]), "a size in it is below 1"),
    (one_run(shape=[8, 8, 10**300]), "above 1,000,000|Expected `int`"),
    (one_run(seconds=-1), "which cannot be"),
    (one_run(iterations=-1), "which cannot be"),
    (one_run(parts_tflops=[1.0, 0.0]), "not above 0"),
    (one_run(device="x" * 3000), "a text of 3,000 letters"),
    (one_run(mode="warp"), "run 2: Invalid enum value 'warp'"),
    (one_run(conditions={"started_unix_s": 5.0, "ended_unix_s": 4.0}), "ends after that"),
    (one_run(conditions={"started_unix_s": 5.0, "ended_unix_s": 1e300}), "ends after that"),
    (one_run(conditions={"host": 3}), "run 2: "),
]


@pytest.mark.parametrize(("data", "line"), WRONG, ids=[line[:30] for _, line in WRONG])
def test_what_is_wrong_is_one_line_and_nothing_comes_in(tmp_path: Path, store: Store, data: bytes, line: str) -> None:
    path = tmp_path / "theirs.json"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=line) as refused:
        import_file(path, store)
    assert str(refused.value).startswith("theirs.json: ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    assert store.runs() == []


def damaged_entry(**more: Any) -> bytes:
    entry = json.loads(msgspec.json.encode({"result": scaling(), "conditions": conditions(), "tags": ()}))
    entry["result"]["spec"] |= more
    return json.dumps({"schema": 1, "runs": [], "history": [entry]}).encode()


@pytest.mark.parametrize("figure", [1e308, -1e308, 10**40, 1e-320])
@pytest.mark.parametrize("name", ["noise", "drift", "datasheet_tflops", "samples_tflops"])
def test_a_figure_that_arithmetic_would_make_infinite_does_not_come_in(name: str, figure: float) -> None:
    value = [1.0, figure] if name == "samples_tflops" else figure
    with pytest.raises(BadInput, match=r"a figure of|above 0|not above|Expected"):
        parse_runs(one_run(**{name: value}), BEGAN)


def test_our_own_records_are_checked_as_well() -> None:
    assert len(parse_runs(damaged_entry(), BEGAN)) == 1
    for fields, line in (
        ({"devices": []}, "names no device"),
        ({"size": 0}, "below 1"),
        ({"size": "big"}, "Expected `int`"),
    ):
        with pytest.raises(BadInput, match=line):
            parse_runs(damaged_entry(**fields), BEGAN)


def test_a_file_that_is_not_there_or_far_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_runs(tmp_path / "nothing.json")
    with pytest.raises(BadInput, match="cannot be read"):
        read_runs(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(BadInput, match="it is no file"):  # reading it would never end
        read_runs(tmp_path / "pipe.json")
    path = tmp_path / "endless.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(BadInput, match="no export of runs"):
        read_runs(path)


# --- CSV


def test_a_csv_has_a_row_per_figure(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    words = write_csv(path, RUNS)
    assert words == f"5 runs written to {path}. 1 simulated run among them, marked as such."
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["run"], row["what"], row["unit"]) for row in rows] == [
        ("1", "", "TFLOP/s"),
        ("2", "256×256×256", "TFLOP/s"),
        ("2", "512×512×512", "TFLOP/s"),
        ("3", "cpu → cuda:0, 4.00 KiB, pinned", "GB/s"),
        ("3", "cpu → cuda:0, 4.00 KiB, pageable", "GB/s"),
        ("3", "cpu → cuda:0, 1.00 MiB, pinned", "GB/s"),
        ("3", "cpu → cuda:0, 1.00 MiB, pageable", "GB/s"),
        ("4", "at once", "s"),
        ("4", "one after the other", "s"),
        ("4", "", "times"),
        ("5", "", "samples/s"),
        ("5", "", "TFLOP/s"),
    ]
    first = rows[0]
    assert float(first["median"]) == RUNS[0].result.tflops.median  # type: ignore[union-attr]
    assert (first["began"], first["sm_clock_mhz"], first["power_cap_w"]) == (
        "2027-01-15T08:01:00.000+00:00",
        "1410.0",
        "150.0",
    )
    assert (first["driver_version"], rows[-1]["driver_version"]) == ("570.1", "")
    assert [row["simulated"] for row in rows if row["run"] == "4"] == ["true"] * 3
    assert first["tags"] == "baseline"


def test_only_what_is_wrong_is_called_wrong(tmp_path: Path) -> None:
    rows = tuple(
        msgspec.structs.replace(row, verified=at > 0, iterations=at, measured_seconds=float(at))
        for at, row in enumerate(bandwidth().rows)
    )
    run = stored(msgspec.structs.replace(bandwidth(), rows=rows, verified=False), 1)
    path = tmp_path / "runs.csv"
    write_csv(path, [run])
    read = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["verified"] for row in read] == ["false", "true", "true", "true"]
    assert [(row["iterations"], row["seconds"]) for row in read] == [
        ("0", "0.0"),
        ("1", "1.0"),
        ("2", "2.0"),
        ("3", "3.0"),
    ], "its own"
    assert report_html([run], now_unix_s=BEGAN).count("VALUES WERE WRONG") == 1


def test_a_copy_on_the_host_beside_virtual_gpus_was_measured(tmp_path: Path) -> None:
    rows = tuple(msgspec.structs.replace(row, simulated=at > 0) for at, row in enumerate(bandwidth().rows))
    path = tmp_path / "runs.csv"
    write_csv(path, [stored(msgspec.structs.replace(bandwidth(), rows=rows, simulated=True), 1)])
    read = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["simulated"] for row in read] == ["false", "true", "true", "true"]


def test_no_name_becomes_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    write_csv(
        path, [stored(matmul(), 1, device_name="=HYPERLINK(1)", host="@x"), stored(matmul(tflops=around(1.0)), 2)]
    )
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert (rows[0]["device_name"], rows[0]["host"]) == ("'=HYPERLINK(1)", "'@x")
