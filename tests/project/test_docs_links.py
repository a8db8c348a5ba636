"""Every relative link in the documents leads to an existing file, and its anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Headings as GitHub's anchors: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_leads_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", prose(page))]
    for page, link in links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), (page, link)
        assert not anchor or anchor in anchors(target), (page, link)


def test_the_rules_of_the_doctor_and_their_overview_lead_to_each_other() -> None:
    overview = prose(ROOT / "docs" / "doctor.md")
    for page in (ROOT / "docs" / "doctor").glob("*.md"):
        assert f"](doctor/{page.name})" in overview
        assert "](../doctor.md#what-it-finds)" in prose(page)
