"""The doctor's pages: one for each rule; its first code block has the defect at the marked line, its second has
none."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from devexplorer.core.cli.terminal import console
from devexplorer.core.doctor.cli import document, print_diagnosis
from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.findings.rules import RULES
from devexplorer.core.doctor.testing import report
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding, NoGradient, Unchecked
from devexplorer.core.virtual.backend import install

DOCS = Path(__file__).parents[3] / "docs"
PAGES = DOCS / "doctor"
SECTIONS = ["The defect", "On a GPU", "The fix", "When it is not a problem"]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Neither virtual GPUs nor the modules that were examined."""
    install().reset()
    known = set(sys.modules)
    yield
    install().reset()
    for name in set(sys.modules) - known:
        if tmp_path in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


def page(rule: str) -> str:
    return (PAGES / f"{rule}.md").read_text()


def examined(text: str, block: int, folder: Path) -> Diagnosis:
    """Write a page's code block to net.py and examine it with the options of its command."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", text)
    assert len(blocks) == 2
    (folder / "net.py").write_text(blocks[block])
    command = re.search(r"(?m)^`devexplorer doctor (.+)`$", text)
    assert command is not None
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--device", default="vgpu:0")
    parser.add_argument("--input", default="")
    parser.add_argument("--train", action="store_true")
    given = parser.parse_args(command[1].split())
    return examine(
        DoctorRequest(
            source=given.target,
            folder=str(folder),
            device=given.device,
            virtual="2x Tesla T4",
            train=given.train,
            inputs=given.input,
        )
    )


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {file.stem for file in PAGES.glob("*.md")} == set(RULES)
    for key, rule in RULES.items():
        text = page(key)
        assert text.startswith(f"# {rule.title}\n"), key
        assert re.findall(r"(?m)^## (.+)$", text) == SECTIONS, key
        for linked in re.findall(r"\]\(([\w-]+)\.md\)", text):
            assert linked in RULES, f"{key} links to {linked}"
            assert linked != key


def test_what_the_overview_shows_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "doctor.md").read_text()
    code, said = re.findall(r"(?ms)^```(?:python|text)\n(.*?)^```", text)[:2]
    (tmp_path / "net.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    request = DoctorRequest(
        source="net.py:Net", folder=str(tmp_path), device="vgpu:0", virtual="2x Tesla T4", inputs="4x12"
    )
    diagnosis = examine(request)
    print_diagnosis(console(), diagnosis)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == said.splitlines()
    problems = [one for one in diagnosis.problems if one.severity != "note"]
    reported = report(replace(diagnosis, target="Net"), problems)
    assert f"```text\nAssertionError: {reported}\n```" in text


def test_the_overview_names_the_keys_of_the_document() -> None:
    text = (DOCS / "doctor.md").read_text()
    finding = Finding(rule="", path="", file="", line=0, message="", fix="")
    missing = NoGradient(reason="frozen", parameters=())
    diagnosis = Diagnosis(
        target="",
        device="",
        problems=(finding,),
        unchecked=(Unchecked(what="", reason=""),),
        no_gradient=(missing,),
    )
    printed = msgspec.to_builtins(document(diagnosis))
    table = text.partition("| key | |")[2].partition("\n\n")[0]
    assert set(
        re.findall(r"`(\w+)`", "".join(row.partition("|")[2].partition("|")[0] for row in table.splitlines()))
    ) == set(printed["problems"][0])
    assert set(printed["no_gradient"][0]) <= set(
        re.findall(r"`(\w+)`", text.partition("`no_gradient` lists")[2].partition("\n\n")[0])
    )
    around = text.partition("**`--json`** prints")[2].partition("| key | |")[0]
    assert set(printed) <= set(re.findall(r"`(\w+)`", around))
    assert set(printed["unchecked"][0]) <= set(
        re.findall(r"`(\w+)`", text.partition("Each item of `unchecked` has")[2].partition("\n")[0])
    )


def test_the_overview_lists_every_rule_with_its_severity() -> None:
    text = (DOCS / "doctor.md").read_text()
    rows = dict(re.findall(r"(?m)^\| \[([\w-]+)\]\(doctor/[\w-]+\.md\) \| (\w+) \|", text))
    assert rows == {key: rule.severity for key, rule in RULES.items()}


@pytest.mark.parametrize("rule", RULES)
def test_the_first_block_has_exactly_that_defect_at_the_marked_line(rule: str, tmp_path: Path) -> None:
    text = page(rule)
    if "accelerate" in text.partition("```python")[2].partition("```")[0]:
        pytest.importorskip("accelerate")
    diagnosis = examined(text, 0, tmp_path)
    lines = (tmp_path / "net.py").read_text().splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith("# <- here")]
    found = diagnosis.notes if RULES[rule].severity == "note" else diagnosis.problems
    others = diagnosis.problems if found is diagnosis.notes else ()
    assert [(one.rule, one.line) for one in (*others, *found)] == [(rule, line) for line in marked], diagnosis
    assert all(one.file == str(tmp_path / "net.py") for one in found)
    assert marked


@pytest.mark.parametrize("rule", RULES)
def test_the_second_block_has_none(rule: str, tmp_path: Path) -> None:
    diagnosis = examined(page(rule), 1, tmp_path)
    assert diagnosis.clean, diagnosis
    assert not diagnosis.notes, diagnosis.notes
