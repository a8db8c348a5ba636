"""The Chinese pages: they show and run what the English ones do, and all name what is on screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
FIRST, STEPS = ((ROOT / "docs" / folder / "first-steps.md").read_text(encoding="utf-8") for folder in (".", "zh-CN"))
SOURCES = "\n".join(
    path.read_text(encoding="utf-8").lower() for top in ("core", "gui") for path in (ROOT / top).rglob("*.py")
)
HAN = r"[\u4e00-\u9fff，。；：、]"


@pytest.mark.parametrize(
    "part",
    [r"(?ms)^```sh\n.*?^```", r"!\[[^\]]*\]\(([^)]*)\)", r"(`devexplorer.*?`)", r"\]\((docs/\w+\.md)\)"],
    ids=["blocks", "pictures", "commands", "documents"],
)
def test_both_readmes_have_the_same_parts_in_the_same_order(part: str) -> None:
    english = re.findall(part, ENGLISH)
    assert english
    assert re.findall(part, CHINESE) == english


@pytest.mark.parametrize(
    "part",
    [r"(?ms)^```\w+\n.*?^```", r"!\[[^\]]*\]\((?:\.\./)?([^)]*)\)", r"\]\((?:\.\./)?(\w+\.md)\)"],
    ids=["commands", "pictures", "documents"],
)
def test_both_first_steps_have_the_same_parts_in_the_same_order(part: str) -> None:
    english = re.findall(part, FIRST)
    assert english
    assert re.findall(part, STEPS) == english


def test_both_first_steps_name_the_same_controls_and_keys() -> None:
    """In any order, within each section."""
    sections = [re.split(r"(?m)^## ", page)[1:9] for page in (FIRST, STEPS)]
    for english, chinese in zip(*sections, strict=True):
        for named in (r"\*\*([ -~]+?)\*\*", r"`((?:Ctrl|Alt|Shift|Esc|F1)[^`]*|[A-Z+])`"):
            controls, expected = (
                {word.rstrip("…") for word in re.findall(named, part)} - {"in place", "new", "English"}
                for part in (english, chinese)
            )
            assert controls == expected, english[:20]


def test_each_readme_leads_to_the_other() -> None:
    assert "[简体中文](README.zh-CN.md)" in ENGLISH.splitlines()[2]
    assert "[English](README.md)" in CHINESE.splitlines()[2]


def test_every_control_that_is_named_in_bold_is_on_screen() -> None:
    for label in set(re.findall(r"\*\*([ -~]+?)\*\*", CHINESE + STEPS + FIRST)) - {"English", "in place", "new"}:
        assert re.search(rf'"{re.escape(label.lower())}["…]', SOURCES), f"the window has no {label}"


@pytest.mark.parametrize("page", [CHINESE, STEPS], ids=["README", "first steps"])
def test_no_line_ends_within_a_chinese_sentence(page: str) -> None:
    """GitHub shows the end of such a line as a space between two characters."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", page)
    assert not re.findall(rf"{HAN}\n{HAN}", prose)
