"""Runs of scripts in the history: kept once, exported and read again, compared as `devexplorer compare` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.run_reports import report

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.cli.run import main
from devexplorer.core.feature import benchmark_kinds, kind_of_head, offered_kinds
from devexplorer.core.history.compare import compare, refusal
from devexplorer.core.history.export import write_json
from devexplorer.core.history.report import report_html
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import read_runs
from devexplorer.core.observe.compare import memory_differences, step_differences
from devexplorer.core.observe.kind import conditions_of, result_of
from devexplorer.core.observe.records import REPORT_KIND, DeviceUse, ParameterPlace, RunReport
from devexplorer.core.records import StoredRun

FIRST = msgspec.structs.replace(
    report(forward=5, backward=10, optimizer=5),
    arguments=("--lr", "3e-4"),
    started_unix_s=1_700_000_000.0,
    parameters=(ParameterPlace(name="w", device="cuda:0", dtype="float32", bytes=4),),
    memory=(
        DeviceUse(device="cpu", peak_allocated_bytes=300 << 20),
        DeviceUse(device="cuda:0", peak_allocated_bytes=100 << 20, name="Tesla T4"),
    ),
)
SLOWER = msgspec.structs.replace(
    report(150 << 20, forward=5, backward=10, optimizer=15), arguments=("--lr", "1e-3"), started_unix_s=1_700_000_100.0
)


def kept(store: Store, *reports: RunReport) -> list[StoredRun]:
    return [store.add(result_of(one), conditions_of(one, here=True), once=True) for one in reports]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "history.sqlite3")
    yield made
    made.close()


def test_a_run_is_kept_once_under_the_device_that_it_used_most(store: Store) -> None:
    first, again, other = kept(store, FIRST, FIRST, SLOWER)
    assert (first.id, again.id, other.id) == (1, 1, 2)
    assert store.get(1) == first
    assert first.result.spec.device == "cuda:0"
    assert first.conditions.device_name == "Tesla T4"
    assert first.conditions.host
    assert conditions_of(FIRST, here=False).host == "", "a file can be from anywhere"
    kind = kind_of(first.result)
    assert kind.subject(first.result) == "train.py --lr 3e-4"
    assert kind.remark(first.result) == "compute-bound"
    assert kind.headline(first.result).unit == "s"
    assert kind.headline(first.result).spread.median == pytest.approx(0.02)  # type: ignore[union-attr]
    assert first.result.report.parameters == ()


def test_two_are_compared_as_on_the_command_line(store: Store) -> None:
    runs = kept(store, FIRST, SLOWER)
    rows = {row.label: row.cells[1] for row in compare(runs).rows}
    steps = {row.name: row for row in step_differences(FIRST, SLOWER)}
    assert next(iter(rows)) == "a step"
    for name, step in steps.items():
        cell = rows[name]
        assert cell is not None
        assert cell.difference is not None
        assert cell.difference[:3] == pytest.approx((step.ratio, step.low, step.high))
        assert cell.words.endswith("no significant difference") is not step.significant
    assert rows["optimizer"].words == "3.00 times as long, more than the noise of either run"  # type: ignore[union-attr]
    card = memory_differences(FIRST, SLOWER)[1]
    assert rows["peak memory, cuda:0"].words == card.text() == "50 % larger"  # type: ignore[union-attr]
    assert ("arguments", ("--lr, 3e-4", "--lr, 1e-3")) in compare(runs).differing


def test_simulated_steps_are_compared_by_their_samples(store: Store) -> None:
    first, second = (msgspec.structs.replace(one, clock="simulated") for one in (FIRST, SLOWER))
    cell = compare(kept(store, first, second)).rows[0].cells[1]
    assert cell is not None
    assert cell.difference is not None
    assert cell.difference.p_value is not None
    assert cell.words == "1.50 times as long, more than the noise of either run"
    assert refusal(kept(store, FIRST, first)) == "their times are on different clocks (cpu, simulated)"


def test_a_run_without_steps_is_listed_and_has_nothing_to_compare(store: Store) -> None:
    bare = msgspec.structs.replace(FIRST, step_parts=(), phases=(), memory=())
    (run,) = kept(store, bare)
    assert kind_of(run.result).headline(run.result).spread is None
    assert run.result.spec.device == "cpu"
    with pytest.raises(BadInput, match="no figure in common"):
        compare([run, msgspec.structs.replace(run, id=2)])


def test_it_is_exported_and_read_again(store: Store, tmp_path: Path) -> None:
    runs = kept(store, FIRST, SLOWER)
    write_json(tmp_path / "runs.json", runs)
    assert [run.result for run in read_runs(tmp_path / "runs.json")] == [run.result for run in runs]
    page = report_html(runs, now_unix_s=0.0)
    assert "Runs of scripts" in page
    assert "optimizer" in page
    assert "TFLOP/s" not in page


def test_it_is_no_benchmark_that_can_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert "script" in benchmark_kinds()
    assert "script" not in offered_kinds()
    assert main(["bench", "script"]) == 2
    assert "there is no benchmark 'script'" in capsys.readouterr().err


def test_the_file_of_a_report_is_known_by_its_beginning() -> None:
    data = msgspec.json.format(msgspec.json.encode(FIRST), indent=2)
    assert kind_of_head(data[:64]) == REPORT_KIND
