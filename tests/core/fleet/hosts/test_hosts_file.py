"""The list of the hosts of a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.fleet.hosts.host_fleet import FleetHost, read_hosts


def listed(folder: Path, text: str) -> list[FleetHost]:
    path = folder / "hosts.txt"
    path.write_text(text)
    return read_hosts(path)


def test_a_line_is_a_host_with_what_is_said_of_it(tmp_path: Path) -> None:
    text = "# ours\ngpu1\n\nuser@gpu2 rack=A name=two python=/opt/py/bin/python  # the new one\n"
    assert listed(tmp_path, text) == [
        FleetHost("gpu1", "gpu1"),
        FleetHost("user@gpu2", "two", rack="A", python="/opt/py/bin/python"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "lists no host"),
        ("gpu1 gpu2", r"line 1: 'gpu2' is not understood"),
        ("gpu1\ngpu1", r"line 2: gpu1 is listed twice"),
        ("gpu1 name=two rack=", r"'rack=' is not understood"),
        ("-oProxyCommand=x", r"line 1: a host neither begins with a minus"),
        ("gpu1 name=a/b", "has a slash"),
        ("\n".join(f"gpu{n}" for n in range(65)), "at most 64"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        listed(tmp_path, text)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: no such file"):
        read_hosts(tmp_path / "none")
