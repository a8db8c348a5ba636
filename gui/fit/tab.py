"""The tab Fit: which cards a model fits on, and how fast it is there; and the calibrations that it plans with: keeps
the one of a run that ended, removes one that is not wanted. Main thread; disks are waited for on the thread
`calibrations`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from devexplorer.core.base import DevExplorerError, sentence
from devexplorer.core.records import BenchResult, Calibration, Conditions
from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, follow_selection, lazy_page

if TYPE_CHECKING:
    from devexplorer.core.planner.calibrate.store import CalibrationStore
    from devexplorer.gui.fit.page import FitPanel


Outcome = tuple[tuple[Calibration, ...], str, bool]
"""What is saved now, what is to be said, and whether something failed."""


def calibrations_of(context: WindowContext) -> Calibrations:
    """Those of this window."""
    return context.findChild(Calibrations) or Calibrations(context)


class Calibrations(QObject):
    """`saved` are those of this machine."""

    changed = Signal(object)
    """Other cards are calibrated (tuple of `Calibration`)."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self.saved: tuple[Calibration, ...] = ()
        context.session_started.connect(self._begin)

    def _begin(self, session: Any) -> None:
        if self._context.machine.is_here and self._keep not in session.on_run:
            session.on_run.append(self._keep)
        self._ask(lambda _store: "")

    def _keep(self, result: BenchResult, conditions: Conditions) -> None:
        """Save what a finished calibration found; nothing for other benchmarks."""
        from devexplorer.core.planner.calibrate.kind import CalibrateResult

        if not isinstance(result, CalibrateResult) or result.stopped:
            return

        def save(store: CalibrationStore) -> str:
            from devexplorer.core.planner.calibrate.store import calibration_of

            return f"Saved as '{store.save(calibration_of(result, conditions)).name}'. Fit can plan with it."

        self._ask(save)

    def remove(self, name: str) -> None:
        """Forget the one of this name."""

        def remove(store: CalibrationStore) -> str:
            store.remove(name)
            return f"Removed '{name}'."

        self._ask(remove)

    def _ask(self, work: Callable[[CalibrationStore], str]) -> None:
        def done() -> Outcome:
            from devexplorer.core.planner.calibrate.store import FOLDER, CalibrationStore  # behind the window

            store = CalibrationStore(self._context.settings_folder / FOLDER)
            try:
                message, failed = work(store), False
            except DevExplorerError as error:
                message, failed = sentence(str(error)), True
            return store.load(), message, failed

        self._context.in_background("calibrations", done, self._show)

    def _show(self, outcome: Outcome) -> None:
        calibrations, message, failed = outcome
        if calibrations != self.saved:
            self.saved = calibrations
            self.changed.emit(calibrations)
        if failed:
            self._context.banner.say(message, error=True)
        elif message:
            self._context.hint(message)


def _connect(context: WindowContext, page: FitPanel) -> None:
    follow_selection(context, page)
    page.views.published.in_background = context.in_background
    calibrations = calibrations_of(context)
    page.set_calibrations(calibrations.saved)
    calibrations.changed.connect(page.set_calibrations)


TAB = TabSpec(
    "fit",
    lazy_page("devexplorer.gui.fit.page:FitPanel", _connect),
    "explore",
    Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE,
    tooltip="Which cards a model fits, the largest batch, and the time of a step",
    order=40,
)
