"""The doctor's pages: one for each rule, whose first block of code has the defect at the line that is marked, and whose second has none."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.rules import RULES
from devexplorer.core.records.doctor import Diagnosis, DoctorRequest
from devexplorer.core.virtual.backend import install

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "doctor"
SECTIONS = ["The defect", "On a GPU", "The fix", "When it is no problem"]


@pytest.fixture(autouse=True)
def no_devices_left() -> Iterator[None]:
    install().reset()
    yield
    install().reset()


def page(rule: str) -> str:
    return (PAGES / f"{rule}.md").read_text()


def examined(text: str, block: int, folder: Path) -> Diagnosis:
    """Write a page's block of code to net.py and do what its command line says."""
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
            source=given.target, folder=str(folder), device=given.device, virtual="2x Tesla T4", train=given.train, inputs=given.input
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
    assert [(one.rule, one.line) for one in diagnosis.problems] == [(rule, line) for line in marked], diagnosis
    assert all(one.file == str(tmp_path / "net.py") for one in diagnosis.problems)
    assert marked


@pytest.mark.parametrize("rule", RULES)
def test_the_second_block_has_none(rule: str, tmp_path: Path) -> None:
    diagnosis = examined(page(rule), 1, tmp_path)
    assert diagnosis.clean, diagnosis
    assert not diagnosis.notes, diagnosis.notes
