"""Saves the calibrations that `devexplorer bench` measures. Main thread."""

from __future__ import annotations

import argparse

from devexplorer.core.base import Unavailable
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import say
from devexplorer.core.planner.calibrate.records import CalibrateResult
from devexplorer.core.planner.calibrate.store import CalibrationStore, calibration_of
from devexplorer.core.records import BenchResult, Conditions


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
