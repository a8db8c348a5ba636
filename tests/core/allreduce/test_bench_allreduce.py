"""`bench allreduce` as a user runs it, on the CPU and on virtual GPUs: document, table, history, wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.command_line import T4S, Document, Refusal

from devexplorer.core.allreduce.kind import AllReduceResult, Rendezvous
from devexplorer.core.cli.run import main
from devexplorer.core.history.export import write_json
from devexplorer.core.history.report import write_report
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import import_file

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left", "warm_processes")


def test_between_processes_on_the_cpu(document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    quick = ("--iterations", "3", "--seconds", "0.01")
    content = document("bench", "allreduce", "--device", "cpu", "--ranks", "2", "--size", "4K:16K", *quick)
    assert content["benchmark"] == "allreduce"
    assert [run["bytes"] for run in content["runs"]] == [4096, 8192, 16384], "by powers of two"
    for run in content["runs"]:
        assert (run["devices"], run["ranks"], run["backend"]) == (["cpu"], 2, "gloo")
        assert (run["dtype"], run["verified"], run["simulated"]) == ("float32", True, False)
        assert run["iterations"] == 3
        for rate in (run["algorithm_gb_per_s"], run["bus_gb_per_s"], run["operation_seconds"]):
            assert 0 < rate["p20"] <= rate["median"] <= rate["p80"]
        assert run["bus_gb_per_s"] == run["algorithm_gb_per_s"], "two ranks: 2·(2-1)/2 is 1"
    with Store() as store:
        [stored] = runs = store.runs()
    write_report(tmp_path / "report.html", runs)
    assert "<h2>All-reduce</h2>" in (tmp_path / "report.html").read_text()
    write_json(tmp_path / "export.json", runs)
    with Store(tmp_path / "other.sqlite3") as other:
        assert import_file(tmp_path / "export.json", other).startswith("1 run imported")
        [added] = other.runs()
    assert isinstance(stored.result, AllReduceResult)
    assert isinstance(added.result, AllReduceResult)
    assert added.result.rows == stored.result.rows
    assert (added.result.spec.devices, added.result.spec.ranks) == (("cpu",), 2)


def test_between_virtual_gpus(document: Document) -> None:
    [run] = document("bench", "allreduce", "--virtual", T4S, "--size", "64M", "--no-store")["runs"]
    assert (run["devices"], run["ranks"], run["simulated"], run["verified"]) == (["vgpu:0", "vgpu:1"], 2, True, True)


def test_the_table_says_what_is_simulated(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "allreduce", "--virtual", T4S, "--size", "64M", "--no-store"]
    assert main([*command, "--dtype", "bf16"]) == 0
    printed = capfd.readouterr().out
    assert "simulated, 2 ranks on vgpu:0, vgpu:1, modelled as a ring, values checked over gloo, bfloat16" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rendezvous", "here", "--world-size", "4"], "--rendezvous 'here' is no place to meet; write HOST:PORT"),
        (["--rendezvous", "here:29500"], "--rendezvous needs the number of ranks on all machines together"),
        (["--world-size", "4"], "--world-size is for ranks on several machines; say where they meet with --rendezvous"),
        (["--rendezvous", "a:1", "--world-size", "4", "--first-rank", "-1"], "--first-rank -1 is no rank"),
        (["--ranks", "0"], "--ranks"),
        (["--size", "64x64"], "is not a number of bytes"),
        (["--mode", "burst"], "--mode means nothing to bench allreduce"),
    ],
)
def test_wrong_input_is_one_line(refusal: Refusal, arguments: list[str], said: str) -> None:
    assert said in refusal("bench", "allreduce", "--device", "cpu", *arguments)


def test_where_the_ranks_of_several_machines_meet() -> None:
    import argparse

    from devexplorer.core.base import Findings
    from devexplorer.core.cli.bench_options import bench_arguments
    from devexplorer.core.feature import benchmark_kinds

    parser = argparse.ArgumentParser(add_help=False)
    bench_arguments(parser)
    given = ["allreduce", "--rendezvous", "[fe80::1]:29500", "--world-size", "16", "--first-rank", "8"]
    [spec] = benchmark_kinds()["allreduce"].specs(parser.parse_args(given), Findings())
    assert spec.rendezvous == Rendezvous(address="fe80::1", port=29500, world_size=16, first_rank=8)
