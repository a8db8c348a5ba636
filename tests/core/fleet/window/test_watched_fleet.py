"""What a window says of the check that runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from devexplorer.core.fleet.window.watched_fleet import WatchedFleet


def test_the_time_that_is_left_never_rises() -> None:
    now = [0.0]
    source = cast(Any, SimpleNamespace(drain=list))
    fleet = WatchedFleet(source, "lab", (), monotonic=lambda: now[0])
    check = SimpleNamespace(done=0.0, report=None, beat=lambda _events: None)
    fleet.check, fleet.started_s = cast(Any, check), 0.0
    said = []
    for moment, done in ((1.0, 0.01), (10.0, 0.2), (30.0, 0.2), (40.0, 0.5), (60.0, 0.75)):
        now[0], check.done = moment, done
        fleet.beat(0.0)
        said.append(fleet.left_s)
    assert said == [None, 40.0, 40.0, 40.0, 20.0], "30 s at a fifth would be 120 s more"
    fleet.check = None
    fleet.beat(0.0)
    assert fleet.left_s is None
