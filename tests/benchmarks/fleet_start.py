"""How close together the machines of a fleet begin to measure: hosts of this machine, each in a process of its own with
an engine of its own, reached over sockets.

    python tests/benchmarks/fleet_start.py [--hosts 4] [--cards 2] [--orders 10] [--seconds 1] [--kind matmul]

Each order measures all cards at once. Prints the spread of the starts of each order, as the engines say it by the
clock of this machine; all clocks are the same, so what is measured is when each engine hears of it and begins. Exits
with 1 where the median is above 50 ms."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from turns import load

from devexplorer.core.fleet.check.fleet_check import OrderResults
from devexplorer.core.fleet.events import BlocksMeasured, GroupEnded, GroupStarted, MeasureOrder
from devexplorer.core.fleet.hosts.host_fleet import HostFleet, Member
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.host.finding import reach, serve_command

WITHIN_S = 0.05
PATIENCE_S = 120.0


class SocketRoute:
    """To the host whose socket is in a folder."""

    def __init__(self, runtime: Path) -> None:
        self.environ = os.environ | {"XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(runtime / "data")}

    def open(self) -> SocketChannel:
        """A new channel; starts the host where there is none."""
        return SocketChannel(self.environ)

    def cancel(self) -> None:
        """It never waits for long."""


class SocketChannel:
    """One connection."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.socket = reach(environ, serve_command)

    def read(self, size: int, /) -> bytes:
        return self.socket.recv(size)

    def write(self, data: bytes | memoryview, /) -> int:
        return self.socket.send(data)

    def close(self) -> None:
        self.socket.close()


def measure(fleet: HostFleet, table: FleetTable, order: MeasureOrder) -> tuple[float | None, list[str]]:
    """The spread of the starts of one order, and what failed."""
    results = OrderResults(order)
    fleet.measure(order)
    over: list[GroupEnded] = []

    def take() -> None:
        for event in fleet.drain():
            if isinstance(event, GroupStarted | BlocksMeasured | GroupEnded):
                results.put(event)
                over.extend([event] if isinstance(event, GroupEnded) else [])
            else:
                table.apply([event])

    until(lambda: len(over) == len(order.groups), take)
    results.wait()
    return results.start_spread_s, [ended.failure for ended in over if ended.failure]


def until(happened: Callable[[], object], step: Callable[[], object]) -> None:
    """Beat as a window does, 30 times a second."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > end:
            sys.exit("it did not happen")
        step()
        time.sleep(1 / 30)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--cards", type=int, default=2)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--kind", default="matmul")
    options = parser.parse_args()
    runtimes = [Path(tempfile.mkdtemp(prefix="dx-")) for _ in range(options.hosts)]
    spec = f"{options.cards}x Tesla T4"
    fleet = HostFleet(
        [Member(f"host{index}", SocketRoute(runtime), virtual=spec) for index, runtime in enumerate(runtimes)]
    )
    table = FleetTable()
    fleet.start()
    try:
        cards = [(f"host{host}", f"vgpu:{card}") for host in range(options.hosts) for card in range(options.cards)]
        until(lambda: all(table.row(*card) is not None for card in cards), lambda: table.apply(fleet.drain()))
        print(f"{options.hosts} hosts with {spec} each on {os.cpu_count()} cores, {load()}")
        spreads: list[float] = []
        for number in range(1, options.orders + 1):
            order = MeasureOrder(
                number=number,
                kind=MeasuredKind(options.kind),
                dtype="float16",
                seconds=options.seconds,
                groups=tuple((card,) for card in cards),
            )
            spread_s, failed = measure(fleet, table, order)
            if spread_s is None or failed:
                print(f"order {number}: {failed}")
                return 1
            spreads.append(spread_s)
        print(f"spread of the starts of {len(cards)} cards in ms:", *(f"{1e3 * spread:.1f}" for spread in spreads))
        print(f"median {1e3 * statistics.median(spreads):.1f} ms, worst {1e3 * max(spreads):.1f} ms")
        return int(statistics.median(spreads) > WITHIN_S)
    finally:
        fleet.close()
        for runtime in runtimes:
            for host in listing.running({"XDG_RUNTIME_DIR": str(runtime)}):
                if host.socket.startswith(str(runtime)):
                    listing.stop(host)
            shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
