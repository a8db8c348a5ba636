"""How soon it is said that a node of a cluster was killed while its cards were measured: three Ray nodes on this
machine, one killed (SIGKILL of its processes) in the middle of a measurement, another one joins, and again.

    python tests/benchmarks/fleet_node_lost.py [--kills 5] [--ray-defaults]

Prints for each kill the seconds until the fleet first says that the node does not answer, until it says that it is
lost, and until the results of the others are complete. Ray looks at its nodes twice a second; with `--ray-defaults` as
often as it does by itself. Exits with 1 where the median until it is first said is above 5 s, or a result of another
node is missing. Minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.ray_cluster import SETTINGS, RayCluster
from turns import load

from devexplorer.core.fleet.check.fleet_check import FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.cluster.cluster_fleet import ClusterFleet
from devexplorer.core.fleet.events import FleetEvent, GroupStarted
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.table import FleetTable

WITHIN_S = 5.0
PATIENCE_S = 180.0
MEASURED_S = 6.0


@contextmanager
def cluster(*, defaults: bool) -> Iterator[RayCluster]:
    """Three nodes, in a folder of their own."""
    folder = tempfile.mkdtemp(prefix="dx-ray-")
    settings = {name: value for name, value in SETTINGS.items() if not defaults or "health" not in name}
    os.environ.update(settings | {"RAY_TMPDIR": folder, "XDG_CACHE_HOME": f"{folder}/cache"})
    made = RayCluster(3, dict(os.environ))
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Watched:
    """The fleet, and when each machine was in which state."""

    def __init__(self, address: str) -> None:
        self.source, self.table = ClusterFleet(address, "1x Tesla T4"), FleetTable()
        self.source.start()

    def until(self, happened: Callable[[], object], also: Callable[[list[FleetEvent]], None] = lambda _: None) -> float:
        """Returns when it had happened."""
        end = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > end:
                raise SystemExit(f"did not happen: {self.table.machines}, {self.source.problem}")
            events = list(self.source.drain())
            self.table.apply(events)
            also(events)
            time.sleep(0.002)
        return time.monotonic()

    def ready(self) -> list[str]:
        with_cards = {card.machine for card in self.table.cards if card.info.id == "vgpu:0"}
        return [name for name, one in self.table.machines.items() if one.state == "connected" and name in with_cards]

    def not_connected(self, names: list[str]) -> list[str]:
        return [name for name in names if self.table.machines[name].state != "connected"]


def kill(watched: Watched, ray: RayCluster) -> tuple[float, float, float, int]:
    """Seconds until said, until lost, until all is judged; and how many of the others were measured to their end."""
    watched.until(lambda: len(watched.ready()) == 3)
    names = watched.ready()
    cards = [card for card in watched.table.cards if card.machine in names]
    plan = CheckPlan(kinds=(MeasuredKind.MATMUL,), seconds=MEASURED_S)
    check, started = FleetCheck(watched.source, cards, plan, known=watched.table), list[FleetEvent]()

    def beat(events: list[FleetEvent]) -> None:
        check.beat(events)
        started.extend(event for event in events if isinstance(event, GroupStarted))

    check.start()
    watched.until(lambda: len(started) == 3, beat)
    killed_s = time.monotonic()
    ray.kill_node()
    said_s = watched.until(lambda: watched.not_connected(names), beat)
    lost_s = watched.until(lambda: any(watched.table.machines[name].state == "lost" for name in names), beat)
    judged_s = watched.until(lambda: check.report, beat)
    check.join(PATIENCE_S)
    assert check.report is not None
    whole = sum(
        not card.lost and not card.rates[0].failure and len(card.rates[0].blocks) > 8
        for card in check.report.measurements
    )
    ray.add_node()
    return said_s - killed_s, lost_s - killed_s, judged_s - killed_s, whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--ray-defaults", action="store_true")
    arguments = parser.parse_args()
    print(f"{load()}; {'Ray as it is' if arguments.ray_defaults else 'Ray looks twice a second'}")
    said: list[float] = []
    lost: list[float] = []
    kept = True
    with cluster(defaults=arguments.ray_defaults) as ray:
        watched = Watched(ray.address)
        try:
            for number in range(arguments.kills):
                first, gone, judged, whole = kill(watched, ray)
                said.append(first)
                lost.append(gone)
                kept &= whole == 2
                print(
                    f"kill {number + 1}: said after {first:.2f} s, lost after {gone:.2f} s, judged after"
                    f" {judged:.2f} s, {whole} of the 2 others measured to their end; {load()}",
                    flush=True,
                )
        finally:
            watched.source.close()
    print(
        f"said: median {statistics.median(said):.2f} s, longest {max(said):.2f} s; lost: median"
        f" {statistics.median(lost):.2f} s, longest {max(lost):.2f} s"
    )
    return 0 if kept and statistics.median(said) <= WITHIN_S else 1


if __name__ == "__main__":
    sys.exit(main())
