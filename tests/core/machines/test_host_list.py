"""`devexplorer host list`: names that come from elsewhere are printed as they are."""

from __future__ import annotations

import pytest

from devexplorer.core.cli.run import main
from devexplorer.core.machines.commands import command
from devexplorer.core.machines.host.listing import Running
from devexplorer.core.machines.records import Hello

NAME = "[/red]:cat:[bold]\x1b[2J"
SHOWN = "[/red]:cat:[bold]?[2J"


def test_the_python_of_a_host(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    hello = Hello(pid=7, since_unix_s=1.7e9, python=f"/opt/{NAME}/bin/python", busy=(NAME,))
    found = Running(pid=7, socket="/run/s", log="/run/l", hello=hello)
    monkeypatch.setattr(command.listing, "running", lambda: [found])
    assert main(["host", "list"]) == 0
    assert capfd.readouterr().out.count(SHOWN) == 2
