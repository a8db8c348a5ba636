"""The package as published: the metadata, the description on an index, the source distribution."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def described() -> str:
    """The long description, as the build reads it."""
    return (ROOT / PROJECT["tool"]["setuptools"]["dynamic"]["readme"]["file"]).read_text(encoding="utf-8")


def test_the_metadata_names_who_what_and_which_pythons() -> None:
    project = PROJECT["project"]
    assert project["authors"] == [{"name": "DevExplorer contributors"}]
    assert "pytorch" in project["keywords"]
    versions = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    assert versions == {"3.11", "3.12", "3.13", "3.14"}
    assert project["requires-python"] == ">=3.11"
    assert not [line for line in project["classifiers"] if line.startswith("License")], (
        "the licence is an SPDX expression"
    )


def test_the_description_on_an_index_needs_no_file_beside_it() -> None:
    text = described()
    assert "readme" in PROJECT["project"]["dynamic"]
    assert not re.findall(r"!\[", text), "an index has no pictures of ours"
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")]


def test_the_description_s_command_is_readme_s() -> None:
    first = re.findall(r"(?ms)^```sh\n(.*?)^```", README)[0]
    assert re.findall(r"(?ms)^```sh\n(.*?)^```", described()) == [first]


@pytest.mark.parametrize(
    "path",
    [
        "constraints.txt",
        "README.md",
        "README.zh-CN.md",
        "tests/conftest.py",
        "tests/fakes/nvml_c/identity.c",
        "docs/pictures/sweep.png",
        ".ci/run",
    ],
)
def test_the_source_distribution_has_what_readme_speaks_of(path: str) -> None:
    assert (ROOT / path).exists()
    lines = [
        line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines() if line and not line.startswith("#")
    ]
    included = [pattern for verb, *patterns in lines if verb == "include" for pattern in patterns]
    grafted = [folder for verb, *folders in lines if verb == "graft" for folder in folders]
    left_out = [pattern for verb, *patterns in lines if verb == "global-exclude" for pattern in patterns]
    assert path in included or path.split("/")[0] in grafted
    assert not any(fnmatch(Path(path).name, pattern) for pattern in left_out)
