"""Kinds of benchmarks come from the registry: a registered toy is measured, printed, stored and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.command_line import Document
from fakes.toy_benchmark import ToyResult, ToySpec, register

from devexplorer.core.cli.run import main
from devexplorer.core.history.export import write_csv, write_json
from devexplorer.core.history.filter import Filter
from devexplorer.core.history.report import write_report
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import import_file


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    register(monkeypatch)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # a separate history: others cannot read toys


@pytest.mark.usefixtures("toy", "no_virtual_gpus_left")
def test_a_toy_is_measured_and_printed(document: Document, capfd: pytest.CaptureFixture[str]) -> None:
    content = document("bench", "toy", "--rounds", "5", "--tag", "first")
    assert content["benchmark"] == "toy"
    [run] = content["runs"]
    assert (run["device"], run["rounds"], run["per_second"], run["iterations"]) == ("cpu", 5, 7.0, 5)
    assert run["conditions"]["device"] == "cpu"
    assert main(["bench", "toy", "--no-store"]) == 0
    assert "per second" in capfd.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "toy", "--help"])
    assert "--rounds" in capfd.readouterr().out


@pytest.mark.usefixtures("toy", "no_virtual_gpus_left")
def test_a_toy_is_kept_exported_reported_and_imported(document: Document, tmp_path: Path) -> None:
    printed = document("bench", "toy", "--tag", "first")
    with Store() as store:
        runs = store.runs(Filter(kind="toy"))
    [run] = runs
    assert isinstance(run.result, ToyResult)
    assert run.result.spec == ToySpec(device="cpu", rounds=3)
    assert run.tags == ("first",)
    write_report(tmp_path / "report.html", runs)
    assert "<h2>Toys</h2>" in (tmp_path / "report.html").read_text()
    write_csv(tmp_path / "runs.csv", runs)
    assert ",toy,toy to 3," in (tmp_path / "runs.csv").read_text()
    write_json(tmp_path / "export.json", runs)
    (tmp_path / "printed.json").write_text(json.dumps(printed))
    for name in ("export.json", "printed.json"):
        with Store(tmp_path / f"{name}.sqlite3") as other:
            assert import_file(tmp_path / name, other).startswith("1 run imported")
            [added] = other.runs()
        assert added.result.spec == run.result.spec
        assert added.conditions == run.conditions
