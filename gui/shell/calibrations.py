"""The calibrations of the window: keeps the one of a run that ended, and removes one that is not wanted. Main thread;
disks are waited for on the thread `calibrations`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from devexplorer.core.base import DevExplorerError, sentence
from devexplorer.core.records import BenchResult, CalibrateResult, Calibration, Conditions
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.benchmark.calibrate.store import CalibrationStore
    from devexplorer.gui.shell.main_window import MainWindow

Outcome = tuple[tuple[Calibration, ...], str, bool]
"""What is saved now, what is to be said, and whether something failed."""


class Calibrations:
    """Tells `context.calibrations_changed` what is saved."""

    def __init__(self, context: WindowContext, folder: Path, window: MainWindow) -> None:
        """`folder`: where the settings are."""
        self._context, self._folder, self._window = context, folder, window
        context.session_started.connect(self._load)  # behind the window
        context.calibration_removed.connect(self._remove)

    def _load(self, _session: object) -> None:
        self._ask(lambda _store: "")

    def keep(self, result: BenchResult, conditions: Conditions) -> None:
        """Save what a finished calibration found; nothing for other benchmarks."""
        if not isinstance(result, CalibrateResult) or result.stopped:
            return

        def save(store: CalibrationStore) -> str:
            from devexplorer.core.benchmark.calibrate.store import calibration_of

            return f"Saved as '{store.save(calibration_of(result, conditions)).name}'. Fit can plan with it."

        self._ask(save)

    def _remove(self, name: str) -> None:
        def remove(store: CalibrationStore) -> str:
            store.remove(name)
            return f"Removed '{name}'."

        self._ask(remove)

    def _ask(self, work: Callable[[CalibrationStore], str]) -> None:
        def done() -> Outcome:
            from devexplorer.core.benchmark.calibrate.store import FOLDER, CalibrationStore  # behind the window

            store = CalibrationStore(self._folder / FOLDER)
            try:
                message, failed = work(store), False
            except DevExplorerError as error:
                message, failed = sentence(str(error)), True
            return store.load(), message, failed

        self._context.in_background("calibrations", done, self._show)

    def _show(self, outcome: Outcome) -> None:
        calibrations, message, failed = outcome
        if calibrations != self._context.calibrations:
            self._context.calibrations = calibrations
            self._context.calibrations_changed.emit(calibrations)
        if failed:
            self._window.say(message, error=True)
        elif message:
            self._window.hint(message)
