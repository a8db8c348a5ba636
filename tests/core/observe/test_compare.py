"""`devexplorer compare`: which phase of a step became longer, what grew, and when a pipeline fails."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fakes.run_reports import report

from devexplorer.core.cli.run import main
from devexplorer.core.observe.compare import memory_differences, step_differences
from devexplorer.core.observe.records import RunReport

FIRST = report(forward=5, backward=10, optimizer=5)


def test_the_phase_that_became_longer_comes_first_after_the_step() -> None:
    slower = report(forward=5, backward=10, optimizer=15)
    step, *phases = step_differences(FIRST, slower)
    assert step.text().startswith("1.50 times as long (1.4")
    assert [phase.name for phase in phases] == ["optimizer", "forward", "backward"]
    assert phases[0].text().startswith("3.00 times as long")
    assert {phase.text() for phase in phases[1:]} == {"no significant difference"}


def test_a_phase_of_one_run_only_is_named_and_a_short_one_left_out() -> None:
    other = msgspec.structs.replace(FIRST, phases=(*FIRST.phases[1:], *report(copies=0.01, forward=10).phases[:1]))
    texts = {row.name: row.text() for row in step_differences(FIRST, other)}
    assert texts["forward"] == "only in one of the runs"
    assert "copies" not in texts


def test_memory_of_a_device_is_compared_by_its_peak() -> None:
    texts = [row.text() for row in memory_differences(FIRST, report(peak=150 << 20, forward=1))]
    assert texts == ["the same", "50 % larger"]
    assert memory_differences(msgspec.structs.replace(FIRST, memory=()), FIRST)[1].text() == "not used before"


@pytest.mark.parametrize(
    ("second", "limit", "code"),
    [
        (FIRST, "0%", 0),
        (report(forward=5, backward=10, optimizer=6.5), "5%", 1),
        (report(forward=5, backward=10, optimizer=6.5), "10", 0),
        (report(forward=5, backward=8, optimizer=5), "5%", 0),
        (msgspec.structs.replace(report(forward=50), step_parts=()), "5%", 0),
    ],
    ids=["same", "slower", "within the limit", "faster", "no steps"],
)
def test_a_pipeline_fails_where_a_step_is_slower_than_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: RunReport, limit: str, code: int
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, each in zip(paths, (FIRST, second), strict=True):
        path.write_bytes(msgspec.json.encode(each))
    words = ["compare", *map(str, paths), "--fail-slower", limit]
    assert main(words) == code
    assert ("slower." in capsys.readouterr().out) == bool(code)
    assert main([*words, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["too_slow"], document["simulated"]) == (1, bool(code), False)
    assert [use["device"] for use in document["memory"]] == ["cpu", "cuda:0"]


REFUSED = {
    "other clock": (msgspec.json.encode(report(clock="simulated", forward=1)), "their times are on different clocks"),
    "no report": (b"[]", "is no report of a run; devexplorer run --report FILE writes one"),
    "a later schema": (b'{"schema": 9}', "has schema 9; this DevExplorer reads 1"),
    "no JSON": (b"\xff", "is no report of a run"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    data, words = REFUSED[name]
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(FIRST))
    (tmp_path / "b.json").write_bytes(data)
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert words in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--fail-slower", "much"]) == 2
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "nowhere.json")]) == 2
