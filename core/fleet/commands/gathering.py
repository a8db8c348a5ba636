"""Waits for the machines of a fleet to say what they have. Main thread."""

from __future__ import annotations

import time

from devexplorer.core.base import Unavailable
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.fleet.source import FleetSource
from devexplorer.core.fleet.table import FleetTable

DRAIN_S = 0.05
FIRST_S = 30.0
"""Machines that have not answered by then are taken as they are."""
REACH_S = 8.0
"""Those that could not be reached once by then are not waited for."""
CLOSE_S = 5.0


def gather(source: FleetSource, cards: FleetTable, stopping: Stopping) -> bool:
    """Wait until every machine has said something or given up; False when that was interrupted."""
    began_s = time.monotonic()
    while not stopping.wait(DRAIN_S):
        cards.apply(source.drain())
        if problem := getattr(source, "problem", ""):
            raise Unavailable(problem)
        waited_s = time.monotonic() - began_s
        without = cards.unreached if waited_s > REACH_S else ()
        if waited_s > FIRST_S or (cards.machines and cards.settled_without(without)):
            return True
    return False
