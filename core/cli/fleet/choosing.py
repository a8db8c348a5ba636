"""Which machines a command about a fleet means. Main thread."""

from __future__ import annotations

import argparse
from functools import partial

from devexplorer.core.base import BadInput
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.fleet.defects import parse_defect
from devexplorer.core.fleet.simulated_fleet import MOST_NODES, SimulatedFleet
from devexplorer.core.fleet.source import FleetSource


def chosen(arguments: argparse.Namespace, interval_s: float, findings: Findings) -> FleetSource:
    """The source that the options name, not started. Raises `BadInput` with everything that is wrong."""
    defects = [findings.checked(partial(parse_defect, text)) for text in arguments.defect]
    nodes = findings.count(arguments.nodes, "--nodes")
    seed = findings.parsed(arguments.seed, _seed, 0)
    if nodes is not None and nodes > MOST_NODES:
        findings.add(f"--nodes {nodes} is more than {MOST_NODES}, the most that is simulated")
    if arguments.nodes is None:
        if defects:
            findings.add("--defect is for simulated fleets; give --nodes and --virtual as well")
        findings.add('name the machines: --nodes N --virtual "8x NVIDIA H100 80GB HBM3"')
    elif arguments.virtual is None:
        findings.add('--nodes needs the cards of a node; give --virtual "8x NVIDIA H100 80GB HBM3", for example')
    profiles = [] if arguments.virtual is None else findings.checked(partial(parse_virtual, arguments.virtual), [])
    findings.demand_none()
    assert nodes is not None
    known = [defect for defect in defects if defect is not None]
    return SimulatedFleet(nodes, profiles, known, interval_s=interval_s, seed=seed)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadInput(f"--seed '{text}' is not a whole number from 0")
    return int(text)
