"""A Ray cluster as a fleet: attached to, watched, measured, left as it was; a node dies in the middle, another one
joins."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
from fakes.ray_cluster import SETTINGS, RayCluster, bare_python, ray_cluster  # noqa: F401 - a fixture
from fakes.sshd import HOST, Sshd, sshd  # noqa: F401 - a fixture

from devexplorer.core.fleet.check.fleet_check import FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.cluster.cluster_fleet import ClusterFleet, ClusterWay, OverSsh
from devexplorer.core.fleet.events import FleetEvent, GroupStarted
from devexplorer.core.fleet.records import MeasuredKind, Verdict
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.machines.window.link import CannotReach

PATIENCE_S = 300.0
pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


class Attached:
    """A fleet of the cluster, and what is known of it."""

    def __init__(self, address: str, way: ClusterWay | None = None) -> None:
        self.fleet, self.table = ClusterFleet(address, "1x Tesla T4", way), FleetTable()
        self.fleet.start()

    def until(
        self, happened: Callable[[], object], also: Callable[[Sequence[FleetEvent]], None] = lambda _: None
    ) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, (self.table.machines, self.fleet.problem)
            events = self.fleet.drain()
            self.table.apply(events)
            also(events)
            time.sleep(0.005)

    def of_state(self, state: str) -> list[str]:
        return [machine.name for machine in self.table.machines.values() if machine.state == state]

    def with_cards(self, number: int) -> bool:
        cards = {card.machine for card in self.table.cards if card.info.id == "vgpu:0"}
        return len(cards & set(self.of_state("connected"))) == number


@pytest.fixture
def attached(ray_cluster: RayCluster) -> Iterator[Attached]:  # noqa: F811
    made = Attached(ray_cluster.address)
    yield made
    assert made.fleet.close()


def test_a_day_of_a_cluster(attached: Attached, ray_cluster: RayCluster, tmp_path: Path) -> None:  # noqa: F811
    attached.until(lambda: attached.with_cards(3))
    assert all(machine.state == "connected" for machine in attached.table.machines.values())

    assert {machine.rack for machine in attached.table.machines.values()} == {"", "rack1", "rack2"}

    names = list(attached.table.machines)
    check = FleetCheck(
        attached.fleet, attached.table.cards, CheckPlan(kinds=(MeasuredKind.MATMUL,), dtypes=("float16",), seconds=4)
    )
    check.start()
    started: list[GroupStarted] = []

    def beat(events: Sequence[FleetEvent]) -> None:
        check.beat(events)
        started.extend(event for event in events if isinstance(event, GroupStarted))

    attached.until(lambda: len(started) == 3, beat)
    assert ray_cluster.left()["taken"] == ["GPU"]  # no other job gets cards that are measured
    ray_cluster.kill_node()
    attached.until(lambda: len(attached.of_state("connected")) < 3, beat)
    attached.until(lambda: check.report, beat)
    assert check.join(PATIENCE_S)
    assert check.report is not None
    measured = {card.machine: card for card in check.report.measurements}
    (dead,) = (name for name in names if measured[name].lost)
    assert all(len(measured[name].rates[0].blocks) > 8 for name in names if name != dead)
    assert [card.verdict for card in check.report.verdict.cards if card.machine == dead] == [Verdict.FAILED]
    assert attached.of_state("lost") == [dead]

    ray_cluster.add_node_of(bare_python(tmp_path / "bare"))  # DevExplorer is put there
    attached.until(lambda: attached.with_cards(3))
    assert list(Path(os.environ["XDG_CACHE_HOME"]).glob("devexplorer/code/*/devexplorer/__init__.py"))
    assert attached.fleet.close()
    assert ray_cluster.left() == {"actors": 0, "groups": 0, "taken": []}


@pytest.mark.parametrize("ray_cluster", [1], indirect=True)
def test_a_window_elsewhere_attaches_on_a_node_behind_ssh(
    ray_cluster: RayCluster,  # noqa: F811
    sshd: Sshd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sshd.stop()
    settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    sshd.start(SetEnv=f"{sshd.settings['SetEnv']} {settings}")
    monkeypatch.setenv("PATH", sshd.environ()["PATH"])
    attached = Attached(ray_cluster.address, OverSsh(HOST, sys.executable))
    attached.until(lambda: attached.with_cards(1))
    assert attached.fleet.close()
    assert ray_cluster.left() == {"actors": 0, "groups": 0, "taken": []}

    nowhere = Attached("127.0.0.1:1", OverSsh(HOST, sys.executable))
    nowhere.until(lambda: nowhere.fleet.problem)
    assert nowhere.fleet.problem == "there is no cluster at 127.0.0.1:1: connection refused"
    assert nowhere.fleet.close()
    gone = Attached("auto", OverSsh("no.such.place.invalid"))
    gone.until(lambda: gone.fleet.problem)
    assert "no.such.place.invalid" in gone.fleet.problem
    assert gone.fleet.close()


def test_a_node_that_leaves_before_it_is_asked_cannot_be_reached_any_more() -> None:
    from devexplorer.core.fleet.cluster.nodes import Nodes

    nodes = Nodes(None)
    for ask in (nodes.agent, nodes.bring):
        with pytest.raises(CannotReach, match="has left the cluster") as raised:
            ask("node7")
        assert raised.value.final


def test_where_there_is_no_cluster_one_line_says_so() -> None:
    fleet = ClusterFleet("127.0.0.1:1")
    fleet.start()
    end = time.monotonic() + PATIENCE_S
    while not fleet.problem and time.monotonic() < end:
        assert not fleet.drain()
        time.sleep(0.005)
    assert fleet.problem == "there is no cluster at 127.0.0.1:1: connection refused"
    assert fleet.close()


def test_a_cluster_for_trying_is_its_owners_alone(tmp_path: Path) -> None:
    """`cluster up` on a machine with other users: nothing listens beyond loopback, a job of somebody else is refused,
    and the command that is printed shows the cards."""
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": tempfile.mkdtemp(prefix="dx-")}
    devexplorer = [sys.executable, "-m", "devexplorer.core.cli"]
    process = subprocess.Popen(
        [*devexplorer, "cluster", "up", "--nodes", "1"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # pitfall of nohup
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        address = process.stdout.readline().strip()
        words = next(line for line in process.stderr if "another terminal" in line)
        (folder,) = Path(environ["TMPDIR"]).iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        listening = [
            connection.laddr
            for one in psutil.Process(process.pid).children(recursive=True)
            for connection in one.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {place.ip.removeprefix("::ffff:") for place in listening} == {"127.0.0.1"}
        assert int(address.rpartition(":")[2]) in {place.port for place in listening}
        answers = {_job_of_a_stranger(place.port, tmp_path / "ran") for place in listening}
        assert answers <= {401, 405, None}  # unauthorized; a page of figures; no HTTP
        assert 401 in answers
        command = shlex.split(words.partition("another terminal: ")[2].partition(";")[0])
        settings = dict(word.split("=", 1) for word in command[: command.index("devexplorer")])
        fleet = [*devexplorer, *command[command.index("devexplorer") + 1 :], "--json"]
        end = time.monotonic() + PATIENCE_S
        while True:  # on a busy machine the node may need longer than the command waits for it
            shown = subprocess.run(
                fleet, env={**environ, **settings}, capture_output=True, text=True, timeout=PATIENCE_S
            )
            if shown.returncode == 0 or time.monotonic() > end:
                break
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert [one["state"] for one in json.loads(shown.stdout)["machines"]] == ["connected"]
        stranger = {**environ, **settings, "RAY_AUTH_TOKEN": "0" * 64}
        refused = subprocess.run(fleet, env=stranger, capture_output=True, text=True, timeout=PATIENCE_S)
        assert refused.returncode == 2
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert not folder.exists()
    assert not (tmp_path / "ran").exists()
    Path(environ["TMPDIR"]).rmdir()


def _job_of_a_stranger(port: int, proof: Path) -> int | None:
    """What is answered to a job without a token; None: no HTTP."""
    job = json.dumps({"entrypoint": f"touch {proof}"}).encode()
    url = f"http://127.0.0.1:{port}/api/job_agent/jobs/"
    try:
        with urlopen(Request(url, job, {"Content-Type": "application/json"}), timeout=5) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        return error.code
    except (OSError, HTTPException):
        return None
