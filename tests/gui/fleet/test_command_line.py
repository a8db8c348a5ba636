"""`devexplorer --cluster`: the window opens on the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from devexplorer.gui.shell.main import main

OPEN_CLUSTER, CONNECT = "fleet.actions:begin", "machines.actions:begin_there"


def test_a_cluster_is_handed_to_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def open_window(**arguments: Any) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr("devexplorer.gui.shell.app.open_window", open_window)
    monkeypatch.setattr("gc.disable", lambda: None)
    for argv in (
        ["--cluster", "head:6379"],
        ["--ssh", "gpu1", "--cluster", "auto"],
        ["--cluster", "auto", __file__],
        [],
    ):
        assert main(argv) == 0
    opens_on = [[(one.args[0], one.args[1].cluster) for one in call["opens_on"]] for call in calls]
    assert opens_on == [
        [(OPEN_CLUSTER, "head:6379")],
        [(CONNECT, "auto"), (OPEN_CLUSTER, "auto")],
        [(OPEN_CLUSTER, "auto")],
        [],
    ]
    assert [call["away"] for call in calls] == [False, True, False, False]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--cluster=-x"], "--cluster '-x' is no address"),
        (["--cluster", " "], "--cluster ' ' is no address"),
        (["tour", "--cluster", "auto"], "--cluster"),
        (["--cluster", "auto", "tour"], "leave tour and --replay away"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_there_is_a_window(
    capfd: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
