"""`devexplorer calibrations`: lists the cards that were calibrated, which `fit` can plan with, or removes one; and
saves what `devexplorer bench` measures. Main thread; no torch."""

from __future__ import annotations

import argparse

from msgspec.structs import asdict

from devexplorer.core.base import MISSING, Unavailable
from devexplorer.core.base.formats import moment_text
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import say
from devexplorer.core.cli.terminal import console, print_document, table
from devexplorer.core.planner.calibrate.kind import CalibrateResult
from devexplorer.core.planner.calibrate.store import CalibrationStore, calibration_of
from devexplorer.core.records import BenchResult, Conditions
from devexplorer.core.virtual.device.cost import TITLES


def calibrations(arguments: argparse.Namespace) -> int:
    """Print them; with `--remove NAME` without that one."""
    store = CalibrationStore()
    if arguments.remove is not None:
        store.remove(arguments.remove)
    known = store.load()
    if arguments.json:
        print_document(calibrations=[asdict(item) for item in known])
        return 0
    if arguments.remove is not None:
        print(f"Removed '{arguments.remove}'.")
    if not known:
        print("No card has been calibrated. Measure one with: devexplorer bench calibrate --device cuda:0")
        return 0
    out = console()
    for item in known:
        listing = table(item.name, ">factor", ">low", ">high")
        for factor in item.factors:
            numbers = (f"{value:.3f}" for value in (factor.value, factor.low, factor.high))
            listing.add_row(TITLES.get(factor.name, factor.name), *numbers)
        out.print(listing)
        where = ", ".join(filter(None, (item.device, item.host, item.uuid)))
        simulated = ", simulated" if item.simulated else ""
        torch = item.torch_version or MISSING
        out.print(
            f"measured on {where} at {moment_text(item.measured_unix_s)} with torch {torch}{simulated}\n", markup=False
        )
    return 0


class KeepingCalibrations:
    """`keep` each run, `close` at the end."""

    def __init__(self, arguments: argparse.Namespace, findings: TerminalFindings) -> None:
        self._quiet = arguments.json

    def keep(self, result: BenchResult, conditions: Conditions) -> None:
        """A disk that does not take it is no reason to lose the run."""
        if not isinstance(result, CalibrateResult) or result.unusable is not None:
            return
        try:
            kept = CalibrationStore().save(calibration_of(result, conditions))
        except Unavailable as error:
            say(str(error))
        else:
            if not self._quiet:
                say(f"Saved as '{kept.name}', which Fit can plan with.")

    def close(self) -> None:
        """Nothing is open."""
