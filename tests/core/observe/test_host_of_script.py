"""The whole way: a script that listens, the process of its host, a window's session; and the end of the script. On this
machine, and through a real sshd."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil
import pytest
from fakes.hosts import short_folder
from fakes.run_reports import report as run_report
from fakes.sshd import HOST, Sshd, sshd  # noqa: F401 - a fixture
from torch import nn

from devexplorer.core.history.store import Store
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.records import ListScripts, ScriptsFound
from devexplorer.core.machines.window.link import Route
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.routes import SshRoute
from devexplorer.core.observe.endpoint import Endpoint
from devexplorer.core.observe.kind import result_of
from devexplorer.core.observe.live import ScriptState
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.records import ObserveSettings
from devexplorer.core.observe.running import HOST as SCRIPT_HOST
from devexplorer.core.observe.running import ScriptRoute, route_there, running
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
        for host in listing.running():
            if host.socket.startswith(str(folder)):  # of a machine; that of a script ends with it
                listing.stop(host)


class Window:
    """What a window knows of one machine."""

    def __init__(self, name: str, way: Route) -> None:
        self.state, self.session = State(), RemoteSession(name, way)
        self.session.start()

    def until(self, happened: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, self.session.link
            self.session.beat()
            drained = self.session.drain()
            if drained.state is not None:
                self.state.exchange(drained.state)
            for event in drained.events:
                self.state.apply(event)
            self.state.away = drained.away
            time.sleep(0.01)

    def listed(self) -> Greeting | None:
        """The script of this process, as the host of a machine lists it; there may be others."""
        answers: list[ScriptsFound] = []
        self.until(lambda: not self.session.why_not())
        self.session.ask(ListScripts(), answers.append)
        self.until(lambda: answers)
        return next((script for script in answers[0].scripts if script.pid == os.getpid()), None)

    def until_seen(self) -> None:
        self.until(lambda: self.state.away == "The script runs on its own, and this window only shows it.")
        self.until(lambda: "linear" in self.state.objects and self.state.engine is not None)


def test_a_script_is_seen_through_a_host_which_ends_with_it(endpoint: Endpoint) -> None:
    window = Window("train.py", ScriptRoute(os.getpid()))
    window.until_seen()
    state, session = window.state, window.session
    (host,) = [child for child in psutil.Process().children() if SCRIPT_HOST in child.cmdline()]
    report = msgspec.structs.replace(run_report(forward=5), started_unix_s=2.0)
    endpoint.close(report)
    assert all(script.pid != os.getpid() for script in running())
    window.until(lambda: session.link.ended)
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


def test_a_script_on_another_machine_is_listed_and_seen(
    endpoint: Endpoint,
    sshd: Sshd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = " ".join(f"{name}={os.environ[name]}" for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME"))
    sshd.stop()
    sshd.start(SetEnv=f"{sshd.settings['SetEnv']} {folders}")
    monkeypatch.setenv("PATH", sshd.environ()["PATH"])
    machine = Window("forge", SshRoute(HOST, sys.executable))
    script = machine.listed()
    assert script is not None
    assert (script.name, script.torch) == ("train.py", "2.13.0")

    window = Window("train.py on forge", route_there(script.pid, HOST, sys.executable))
    window.until_seen()
    sshd.cut()
    window.until(lambda: window.session.link.state == "reconnecting")
    window.session.reconnect()
    window.until_seen()
    report = msgspec.structs.replace(run_report(forward=5), started_unix_s=2.0)
    endpoint.close(report)
    window.until(lambda: window.session.link.ended)
    assert window.session.link.reason == "train.py has ended."
    assert "linear" in window.state.objects
    window.until(lambda: [kept.result for kept in Store().runs()] == [result_of(report)])
    assert window.session.close()

    assert machine.listed() is None
    late = Window("train.py on forge", route_there(script.pid, HOST, sys.executable))
    late.until(lambda: late.session.link.state == "lost")
    assert f"process {script.pid} has ended" in late.session.link.reason
    assert late.session.link.retry_in_s is None
    assert late.session.close()
    assert machine.session.close()
