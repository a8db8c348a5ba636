"""`devexplorer fleet`: one document of every card of every machine; one clear line for what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.fleet.command import fleet

T4S = ["--virtual", "2x Tesla T4"]


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


def test_every_tick_is_a_document(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("--nodes", "1", *T4S, "--interval", "0.1", "--count", "3", "--json") == 0
    documents = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    times = [document["devices"][0]["sample"]["time_unix_s"] for document in documents]
    assert len(times) == 3
    assert times == sorted(times)


def test_the_table_marks_what_is_simulated(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--nodes", "1", *T4S) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["machine", "device", "name"]
    assert all("(simulated)" in line for line in lines[1:])


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
    ],
)
def test_what_does_not_fit_is_one_line(words: list[str], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        run(*words)


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


@pytest.mark.parametrize("name", ["landlord.html", "landlord.json"])
def test_a_check_writes_its_report(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    words = ["--seconds", "5", "--kind", "matmul", "--defect", "slow:1/5", "--report", str(path)]
    assert run("check", "--nodes", "2", *H100S, *words) == 1
    assert f"report written to {path}" in capfd.readouterr().err
    text = path.read_text(encoding="utf-8")
    assert "node1/vgpu:5" in text
    assert "simulated" in text


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
