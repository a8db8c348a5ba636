"""`devexplorer fleet`: one document of every card of every machine; one clear line for what does not fit."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.command_line import CLI
from fakes.ssh import fake_ssh
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from devexplorer.core.base import BadInput
from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.run import main
from devexplorer.core.exporter.prometheus import MachineFigures
from devexplorer.core.fleet.alerts import Raised
from devexplorer.core.fleet.check.fleet_check import FleetCheck
from devexplorer.core.fleet.commands import choosing, command, exporting
from devexplorer.core.fleet.commands.command import fleet
from devexplorer.core.fleet.events import BlocksMeasured, FleetEvent, FleetMachine, MachineChanged
from devexplorer.core.fleet.records import StoredCheck
from devexplorer.core.fleet.report.history import TABLE, as_row
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.history.store import Store

T4S = ["--virtual", "2x Tesla T4"]


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def run(*words: str) -> int:
    return fleet(parse(["fleet", *words]))


def test_the_document_has_every_machine_and_card(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("--nodes", "3", *T4S, "--defect", "lost:1/1", "--json") == 0
    document = json.loads(capfdbinary.readouterr().out)
    assert document["schema"] == 1
    assert [machine["name"] for machine in document["machines"]] == ["node0", "node1", "node2"]
    assert {machine["state"] for machine in document["machines"]} == {"connected"}
    assert all(machine["age_s"] < 60 for machine in document["machines"])
    devices = document["devices"]
    assert [(device["machine"], device["id"]) for device in devices][2:4] == [("node1", "vgpu:0"), ("node1", "vgpu:1")]
    assert all(device["simulated"] and device["sample"]["simulated"] for device in devices)
    assert devices[0]["sample"]["temperature_c"] > 0
    assert devices[3]["sample"]["temperature_c"] is None
    assert [(problem["machine"], problem["device"]) for problem in document["problems"]] == [("node1", "vgpu:1")]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nodes", "0", *T4S], "--nodes"),
        (["--nodes", "5000", *T4S], "more than 4096"),
        (["--nodes", "2"], "--nodes needs the cards of a node"),
        (["--defect", "slow:0/0"], "--defect is for simulated fleets"),
        (["--nodes", "2", *T4S, "--defect", "slow:2/0"], "2 nodes with 2 cards, counted from 0"),
        (["--nodes", "2", *T4S, "--defect", "broken"], "write KIND:NODE/CARD"),
        (["--nodes", "2", *T4S, "--seed", "x"], "--seed 'x'"),
        (["--nodes", "2", "--virtual", "no such card"], "no such card"),
        (["--nodes", "2", *T4S, "--interval", "soon"], "soon"),
        (["--nodes", "2", *T4S, "--prometheus", "often"], "'often' is not a port"),
        (["--hosts", "n" * 300], "name too long"),
        (["--nodes", "2", *T4S, "--address", "0.0.0.0"], "give a port with --prometheus"),
    ],
)
def test_what_does_not_fit_is_one_line(words: list[str], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        run(*words)


@pytest.fixture
def scraped(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, list[Any]]]:
    """What a real client gets of a fleet of this command line, whose machines are changed by `change` before."""

    def scrape(*words: str, change: Callable[[FleetTable], None] = lambda cards: None) -> dict[str, list[Any]]:
        got: list[str] = []

        def look(**document: object) -> None:
            url = capfd.readouterr().err.split()[-1]
            with urllib.request.urlopen(url, timeout=30) as answer:
                got.append(answer.read().decode())

        figures = exporting.fleet_figures

        def changed(cards: FleetTable, raised: list[Raised]) -> list[MachineFigures]:
            change(cards)
            return figures(cards, raised)

        monkeypatch.setattr(exporting, "fleet_figures", changed)
        monkeypatch.setattr(command, "print_document", look)
        assert run(*words, "--json", "--count", "1", "--prometheus", "0") == 0
        assert not [thread for thread in threading.enumerate() if "prometheus" in thread.name]
        families = text_string_to_metric_families(got[0])
        return {family.name: family.samples for family in families}

    return scrape


def test_one_exporter_serves_all_machines_with_their_labels(scraped: Callable[..., dict[str, list[Any]]]) -> None:
    found = scraped("--nodes", "9", *T4S)
    temperatures = found["DCGM_FI_DEV_GPU_TEMP"]
    assert len(temperatures) == 18
    labels = temperatures[-1].labels
    assert (labels["machine"], labels["Hostname"], labels["rack"]) == ("node8", "node8", "rack1")
    assert (labels["device"], labels["modelName"], labels["simulated"]) == ("vgpu:1", "Tesla T4", "true")
    assert [sample.value for sample in found["devexplorer_machine_up"]] == [1.0] * 9
    assert all(0 <= sample.value < 60 for sample in found["devexplorer_machine_age_seconds"])


def test_a_machine_that_is_away_is_down_and_its_last_readings_are_not_served(
    scraped: Callable[..., dict[str, list[Any]]],
) -> None:
    def cut(cards: FleetTable) -> None:
        away = FleetMachine(name="node1", state="reconnecting", rack="rack0", simulated=True)
        cards.apply([MachineChanged(machine=away)])

    found = scraped("--nodes", "2", *T4S, change=cut)
    assert [sample.value for sample in found["devexplorer_machine_up"]] == [1.0, 0.0]
    assert {sample.labels["machine"] for sample in found["DCGM_FI_DEV_GPU_TEMP"]} == {"node0"}
    assert len(found["devexplorer_machine_age_seconds"]) == 2


def test_alerts_are_served(scraped: Callable[..., dict[str, list[Any]]]) -> None:
    (alert,) = scraped("--nodes", "2", *T4S, "--defect", "lost:1/0")["devexplorer_alert"]
    assert alert.value == 1.0
    labels = alert.labels
    assert (labels["machine"], labels["device"], labels["metric"]) == ("node1", "vgpu:0", "lost")
    assert (labels["level"], labels["simulated"]) == ("alarm", "true")


def test_it_serves_until_it_is_interrupted_and_prints_only_where() -> None:
    words = ["fleet", "--nodes", "2", *T4S, "--interval", "0.2", "--prometheus", "0"]
    with subprocess.Popen([*CLI, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr is not None
            url = serving.stderr.readline().split()[-1]
            text = ""
            while "devexplorer_machine_up" not in text:
                assert serving.poll() is None
                with urllib.request.urlopen(url, timeout=30) as answer:
                    text = answer.read().decode()
            serving.send_signal(signal.SIGTERM)
            out, err = serving.communicate(timeout=60)
        finally:
            serving.kill()
    assert serving.returncode == 128 + signal.SIGTERM
    assert (out, err) == ("", "")


def test_on_a_terminal_the_table_renews_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=70, height=10, color_system=None, soft_wrap=True)
    monkeypatch.setattr(command, "console", lambda: out)
    monkeypatch.setattr(command, "renews", lambda: True)
    assert run("--nodes", "20", "--virtual", "8x NVIDIA H100 80GB HBM3", "--interval", "0.1", "--count", "3") == 0
    written = out.file.getvalue()  # type: ignore[attr-defined]
    assert written.count("node0 ") >= 3
    assert written.count("node0 ") == written.count("… (simulated) "), "the mark is not cut off"
    assert "\x1b[1A" in written, "the cursor goes back up"
    assert "more cards; a higher terminal shows them" in written


H100S = ["--virtual", "8x NVIDIA H100 80GB HBM3"]


def test_a_check_finds_the_slow_card(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("check", "--nodes", "4", *H100S, "--defect", "slow:3/5:10%", "--seconds", "10", "--json") == 1
    document = json.loads(capfdbinary.readouterr().out)
    assert document["slow"] == ["node3/vgpu:5"]
    card = next(card for card in document["cards"] if card["verdict"] != "normal")
    assert {"machine", "device", "name", "ratio", "verdict", "cause", "simulated"} <= card.keys()
    assert (card["machine"], card["device"], card["verdict"], card["cause"]) == ("node3", "vgpu:5", "slow", "card")
    assert card["simulated"] is True
    assert card["ratio"] == pytest.approx(0.9, abs=0.05)
    assert document["start_spread_s"] <= 0.05


def test_a_check_of_a_healthy_fleet_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--nodes", "2", *H100S, "--seconds", "5", "--kind", "matmul", "--dtype", "fp16") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1].strip() == "no slow cards of 16"
    assert all("(simulated)" in line for line in lines[1:-1])


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Ctrl-C in the middle of a check: in its order of this number, once so many blocks of it have come."""

    def at(number: int, blocks: int) -> None:
        class Interrupted(FleetCheck):
            seen = 0

            def beat(self, events: Sequence[FleetEvent]) -> None:
                for event in events:
                    if isinstance(event, BlocksMeasured) and event.number == number:
                        self.seen += len(event.rates)
                if self.seen >= blocks:
                    signal.raise_signal(signal.SIGINT)
                    self.seen = -(10**9)
                super().beat(events)

        monkeypatch.setattr("devexplorer.core.fleet.commands.command.FleetCheck", Interrupted)

    return at


def test_an_interrupted_check_reports_what_was_measured_until_then(
    interrupted: Callable[[int, int], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    interrupted(2, 400)
    words = ["--kind", "matmul,memory,copies", "--seconds", "60", "--defect", "slow:1/5:15%"]
    pages = [tmp_path / "landlord.json", tmp_path / "landlord.html"]
    assert run("check", "--nodes", "2", *H100S, *words, "--report", str(pages[0])) == 130
    said = capfd.readouterr()
    assert f"report written to {pages[0]}" in said.err
    assert "; not measured: copies" in said.out
    assert "1 slow card of 16" in said.out
    document = json.loads(pages[0].read_text())
    assert document["cancelled"]
    assert document["slow"] == ["node1/vgpu:5"]
    assert (document["measured"], document["problems"]) == (["matmul", "memory"], [])
    assert all([rate["kind"] for rate in card["rates"]] == ["matmul", "memory"] for card in document["cards"])
    assert all(card["rates"][0]["blocks"] > card["rates"][1]["blocks"] > 2 for card in document["cards"])
    assert run("check", "--nodes", "2", *H100S, *words, "--report", str(pages[1])) == 130
    assert "Interrupted after" in pages[1].read_text(encoding="utf-8")
    capfd.readouterr()
    assert run("history", "--json") == 0
    assert json.loads(capfd.readouterr().out)["checks"] == [], "it is no measure for later ones"


def test_a_check_that_is_interrupted_at_once_writes_no_report(
    interrupted: Callable[[int, int], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    interrupted(0, 0)
    path = tmp_path / "landlord.html"
    assert run("check", "--nodes", "1", *T4S, "--report", str(path)) == 130
    assert capfd.readouterr() == ("", "devexplorer: interrupted before anything was measured\n")
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--report", "r.pdf"], "ends in .html or .json"),
        (["--kind", "speed"], "'speed' is not a kind of measurement"),
        (["--dtype", "float12"], "float12"),
        (["--seconds", "long"], "long"),
    ],
)
def test_a_check_that_cannot_be_is_one_line(words: list[str], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        run("check", "--nodes", "2", *T4S, *words)


def test_a_card_is_compared_with_its_own_earlier_checks(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    check = ["check", "--nodes", "1", *T4S, "--kind", "matmul", "--seconds", "5"]
    assert run(*check) == 2  # two cards, no history
    assert run(*check, "--seed", "1") == 2  # other cards
    assert run(*check) == 0
    assert run(*check, "--defect", "slow:0/1:20%", "--json") == 1
    document = json.loads(capfdbinary.readouterr().out.splitlines()[-1])
    assert document["slow"] == ["node0/vgpu:1"]
    assert document["cards"][1]["compared_with"] == "own history"
    assert run("history", "--json") == 0
    history = json.loads(capfdbinary.readouterr().out)
    assert history["schema"] == 1
    assert [check["slow"] for check in history["checks"]] == [[], [], [], ["node0/vgpu:1"]]
    assert {rate["simulated"] for check in history["checks"] for rate in check["rates"]} == {True}
    assert run("history") == 0
    assert "(simulated)" in capfdbinary.readouterr().out.decode()


def test_what_failed_is_counted_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--defect", "lost:0/1", "--kind", "matmul", "--seconds", "5"]
    assert run("check", "--nodes", "2", *H100S, *words) == 1
    lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
    assert lines[-2:] == [
        "node0: vgpu:1: matmul float16: the card does not answer (a simulated defect)",
        "no slow cards of 16, 1 failed",
    ]
    assert any("failed: stopped answering (simulated)" in line for line in lines)


@pytest.mark.usefixtures("warm_processes")
def test_this_machine_is_checked_where_no_other_is_named(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "FIRST_S", 120.0)  # a busy machine takes longer to start an engine
    words = ["--virtual", "2x Tesla T4", "--kind", "matmul,memory,copies,peer,model,allreduce", "--seconds", "0.5"]
    assert run("check", *words, "--json") == 2  # measured, but two cards without a history say nothing
    document = json.loads(capfdbinary.readouterr().out)
    assert document["problems"] == []
    kinds = {"matmul", "memory", "copies", "peer", "model", "allreduce"}
    for card in document["cards"]:
        assert {rates["kind"] for rates in card["rates"] if rates["median"]} == kinds
        assert card["simulated"]
    assert document["start_spread_s"] is not None


def test_names_of_machines_in_the_history_are_only_text(capfd: pytest.CaptureFixture[str]) -> None:
    name = "[/red]:cat:[bold]\x1b[2J/cuda:0"
    check = StoredCheck(started_unix_s=1_700_000_000.0, ended_unix_s=1_700_000_060.0, medians=(), slow=(name,))
    with Store() as store:
        store.add_row(TABLE, as_row(check))
    assert run("history") == 0
    assert "[/red]:cat:[bold]?[2J/cuda:0" in capfd.readouterr().out


def test_over_ssh_a_fleet_is_that_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cluster is joined from one of its nodes; a list of hosts is read there, and a report is written there."""
    for name, value in fake_ssh(tmp_path).items():
        monkeypatch.setenv(name, value)
    ssh = ["--ssh", "gpu1", "--python", sys.executable, "fleet"]
    assert main([*ssh, "--nodes", "3", "--virtual", "Tesla T4", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [(device["machine"], device["simulated"]) for device in document["devices"]] == [
        ("node0", True),
        ("node1", True),
        ("node2", True),
    ]
    assert main([*ssh, "--hosts", "no such list"]) == 2
    assert capfd.readouterr().err == "devexplorer: --hosts 'no such list' cannot be read: no such file or directory\n"
    assert main([*ssh, "--cluster", "127.0.0.1:1"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
