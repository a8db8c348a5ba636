"""A fleet of machines behind real sshds: one cannot be reached, one is lost in the middle of a check, and the results
of the others are kept."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fakes.sshd import HOST, Sshd, program, sshd  # noqa: F401 - a fixture
from msgspec.structs import replace

from devexplorer.core.cli.arguments import parse
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.fleet.check.fleet_check import FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan, measured_cards
from devexplorer.core.fleet.commands import choosing
from devexplorer.core.fleet.commands.command import fleet
from devexplorer.core.fleet.events import BlocksMeasured, FleetEvent, GroupEnded, GroupStarted, MeasureOrder
from devexplorer.core.fleet.hosts.host_fleet import HostFleet, Member
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.report.document import failures
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.ssh.hosts import address
from devexplorer.core.machines.window.routes import SshRoute
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY

PATIENCE_S = 90.0
SECOND, NOBODY = "devexplorer-second", "devexplorer-nobody"


@pytest.fixture
def hosts(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Sshd, Sshd]]:  # noqa: F811
    """Two machines that ssh knows, and the name of a third where nobody listens."""
    found = program()
    assert found is not None
    second = Sshd(tmp_path / "second", found)
    there = (second.folder / "ssh_config").read_text().replace(HOST, SECOND)
    nobody = f"Host {NOBODY}\nHostName 127.0.0.1\nPort 9\n"
    with (sshd.folder / "ssh_config").open("a") as file:
        file.write(there + nobody)
    runtimes = [Path(tempfile.mkdtemp(prefix="dx-")) for _ in range(2)]  # short: sockets have short paths
    for server, runtime in zip((sshd, second), runtimes, strict=True):
        server.stop()
        own = f"XDG_RUNTIME_DIR={runtime} XDG_DATA_HOME={server.home}/data"
        server.start(SetEnv=f"{server.settings['SetEnv']} {own}")
    monkeypatch.setenv("PATH", sshd.environ()["PATH"])
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield sshd, second
    for runtime in runtimes:
        for host in listing.running({"XDG_RUNTIME_DIR": str(runtime)}):
            if host.socket.startswith(str(runtime)):
                assert listing.stop(host)
        shutil.rmtree(runtime)
    second.stop()


def test_a_host_that_cannot_be_reached_hides_no_other(
    hosts: tuple[Sshd, Sshd],
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "FIRST_S", PATIENCE_S)  # a busy machine takes longer to start an engine
    file = tmp_path / "hosts"
    file.write_text(f"{HOST} name=forge python={sys.executable}\n{NOBODY} name=gone\n")
    assert fleet(parse(["fleet", "--hosts", str(file), "--virtual", "1x Tesla T4", "--json"])) == 0
    document = json.loads(capfdbinary.readouterr().out)
    forge, gone = document["machines"]
    assert (forge["state"], forge["problem"]) == ("connected", None)
    assert gone["state"] != "connected"
    assert "nothing listens for ssh there" in gone["problem"]
    assert ("forge", "vgpu:0") in {(device["machine"], device["id"]) for device in document["devices"]}

    words = ["check", "--hosts", str(file), "--kind", "matmul", "--seconds", "1", "--json"]
    assert fleet(parse(["fleet", *words])) == 2  # measured; one card without a history says nothing
    said = capfdbinary.readouterr()
    checked = json.loads(said.out)
    assert [card["rates"][0]["blocks"] > 5 for card in checked["cards"]] == [True]
    assert checked["problems"] == []
    assert [line for line in said.err.decode().splitlines() if "gone: " in line]


class Both:
    """The fleet of the two machines, and what is known of it."""

    def __init__(self, virtual: str | None = None) -> None:
        names = {"forge": HOST, "anvil": SECOND}
        self.source = HostFleet(
            [
                Member(name, SshRoute(host, sys.executable), address=partial(address, host), virtual=virtual)
                for name, host in names.items()
            ]
        )
        self.table = FleetTable()
        self.source.start()

    def until(self, happened: Callable[[], object], also: Callable[[list[FleetEvent]], None] = lambda _: None) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, (self.table.machines, self.table.problems)
            events = list(self.source.drain())
            self.table.apply(events)
            also(events)
            time.sleep(0.005)


RANKS = MeasureOrder(
    number=1, kind=MeasuredKind.ALLREDUCE, dtype="", seconds=0.5, groups=((("forge", "cpu"), ("anvil", "cpu")),)
)
"""A rank on the CPU of each machine: they meet over gloo."""


def test_ranks_of_two_machines_reduce_together(hosts: tuple[Sshd, Sshd]) -> None:
    both = Both()
    said: list[FleetEvent] = []
    try:
        both.until(lambda: both.table.settled and len(both.table.machines) == 2)
        both.source.prepare(RANKS)
        both.source.measure(RANKS)
        both.until(lambda: any(isinstance(event, GroupEnded) for event in said), said.extend)
        measured = [event for event in said if isinstance(event, GroupStarted | BlocksMeasured | GroupEnded)]
        assert measured[0].group == 0
        assert isinstance(measured[0], GroupStarted)
        assert measured[-1] == GroupEnded(number=1, group=0, verified=True)
        blocks = [event for event in measured if isinstance(event, BlocksMeasured)]
        assert all(rate > 0 for event in blocks for rate in event.rates)
        assert sum(len(event.rates) * event.block_s for event in blocks) >= 0.5
        assert not any(event.simulated for event in blocks)

        said.clear()  # and again, until it is cancelled
        both.source.measure(replace(RANKS, number=2, seconds=600.0))
        both.until(lambda: any(isinstance(event, BlocksMeasured) for event in said), said.extend)
        both.source.cancel()
        both.until(lambda: any(isinstance(event, GroupEnded) for event in said), said.extend)
        (ended,) = (event for event in said if isinstance(event, GroupEnded))
        assert "stopped" in ended.failure
    finally:
        both.source.close()


def test_virtual_gpus_of_two_machines_reduce_over_a_modelled_network(hosts: tuple[Sshd, Sshd]) -> None:
    both = Both("1x Tesla T4")
    said: list[FleetEvent] = []
    try:
        both.until(lambda: len(measured_cards(both.table.cards)) == 2 and both.table.settled)
        both.source.measure(replace(RANKS, groups=((("forge", "vgpu:0"), ("anvil", "vgpu:0")),)))
        both.until(lambda: any(isinstance(event, GroupEnded) for event in said), said.extend)
        ended = [event for event in said if isinstance(event, GroupEnded)]
        assert ended == [GroupEnded(number=1, group=0, verified=True)]
        (blocks,) = (event for event in said if isinstance(event, BlocksMeasured))
        assert blocks.simulated
        (t4,) = parse_virtual("Tesla T4")
        assert blocks.rates[0] == pytest.approx(t4.host_gb_s * LINK_EFFICIENCY, rel=0.05), (
            "PCIe is slower than the network"
        )
    finally:
        both.source.close()


def test_a_link_that_is_cut_in_a_check_is_one_line(hosts: tuple[Sshd, Sshd], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.core.fleet.check.fleet_check.AWAY_S", 1.0)
    assert address(HOST) == "127.0.0.1"
    both = Both("1x Tesla T4")
    source, table, until = both.source, both.table, both.until
    started: list[GroupStarted] = []
    try:
        until(lambda: len(measured_cards(table.cards)) == 2 and table.settled)
        check = FleetCheck(source, table.cards, CheckPlan(kinds=(MeasuredKind.MATMUL,), seconds=6.0), known=table)
        check.start()

        def beat(events: list[FleetEvent]) -> None:
            check.beat(events)
            started.extend(event for event in events if isinstance(event, GroupStarted))

        until(lambda: len(started) == 2, beat)
        hosts[1].vanish()
        until(lambda: check.report, beat)
        assert check.join(PATIENCE_S)
        assert check.report is not None
        kept = {card.machine: card.rates[0] for card in check.report.measurements}
        assert len(kept["forge"].blocks) > 20
        assert kept["forge"].failure is None
        (line,) = failures(check.report)
        assert line.startswith("anvil: vgpu:0: matmul float16: the connection broke: ")
        assert check.report.start_spread_s is not None
    finally:
        source.close()
        hosts[1].start()
