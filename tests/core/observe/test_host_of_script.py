"""The whole way: a script that listens, the process of its host, a window's session; and the end of the script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil
import pytest
from fakes.hosts import short_folder
from fakes.run_reports import report as run_report
from torch import nn

from devexplorer.core.history.store import Store
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.observe.endpoint import Endpoint
from devexplorer.core.observe.greeting import Greeting
from devexplorer.core.observe.kind import result_of
from devexplorer.core.observe.live import ScriptState
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.records import ObserveSettings
from devexplorer.core.observe.running import ScriptRoute, running
from devexplorer.core.session import State

PATIENCE_S = 60.0


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    observation = Observation(ObserveSettings(script="train.py"))
    model = nn.Linear(2, 3)
    observation.show(model)
    observation.kept = model  # type: ignore[attr-defined]
    with short_folder() as folder:
        for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, str(folder))
        greeting = Greeting(pid=os.getpid(), name="train.py", folder="/", since_unix_s=1.0, torch="2.13.0")
        made = Endpoint(greeting, observation)
        made.open()
        yield made
        made.close()


def test_a_script_is_seen_through_a_host_which_ends_with_it(endpoint: Endpoint) -> None:
    state, session = State(), RemoteSession("train.py", ScriptRoute(os.getpid()))
    session.start()

    def until(happened: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, session.link
            session.beat()
            drained = session.drain()
            if drained.state is not None:
                state.exchange(drained.state)
            for event in drained.events:
                state.apply(event)
            state.away = drained.away
            time.sleep(0.01)

    until(lambda: "linear" in state.objects and state.engine is not None)
    assert state.away == "The script runs on its own, and this window only shows it."
    assert session.link.live
    (host,) = [child for child in psutil.Process().children() if "devexplorer.core.observe.host" in child.cmdline()]
    report = msgspec.structs.replace(run_report(forward=5), started_unix_s=2.0)
    endpoint.close(report)
    assert all(script.pid != os.getpid() for script in running())
    until(lambda: session.link.ended)
    assert (session.link.reason, state.away) == ("train.py has ended.", "train.py has ended.")
    assert "linear" in state.objects
    assert state.engine is not None
    ended = state.part(ScriptState).ended
    assert ended is not None
    assert ended.report == msgspec.json.encode(report)
    assert session.close()
    assert os.waitpid(host.pid, 0) == (host.pid, 0)
    (kept,) = Store().runs()
    assert kept.result == result_of(report), "the history of this user has it"
