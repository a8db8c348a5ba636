"""Export of what the plots show: asks where to, takes copies on the main thread, lets a thread of `core` write. Main
thread.

Taking 24 hours of 16 devices at once would hold the window up, so it is done device by device, between other events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import strftime
from typing import NamedTuple

from PySide6.QtCore import QObject, QTimer

from devexplorer.core.session import Change
from devexplorer.core.telemetry.export import Extract, write_bytes, write_csv, write_parquet
from devexplorer.core.telemetry.history import THROUGHPUT
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.plots.figure import Figure
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.time_control import FORMATS
from devexplorer.gui.timelines.export_dialog import Choice, ExportDialog
from devexplorer.gui.timelines.slot import PlotSlot

THREAD = "export"
READINGS, PICTURE = "Export of readings", "Picture of the plots"

Start = Callable[[str, str, Callable[[], str]], None]
"""Name of the thread, title of the answer, the work: see `core.session.background.Background.start`."""


class _Collecting(NamedTuple):
    """Devices whose readings are still to be copied, and those that are."""

    kind: str
    path: Path
    choice: Choice
    left: list[str]
    done: list[Extract]


class PlotExport(QObject):
    """Connect `PlotSlot.export_requested` to `ask`."""

    def __init__(
        self, context: WindowContext, axis: TimeAxis, slots: Callable[[], Sequence[PlotSlot]], start: Start
    ) -> None:
        """`slots`: all plots over time; those on show are exported."""
        super().__init__(context)
        self._context, self._axis, self._slots, self._start = context, axis, slots, start
        self._said = {context.state.recording is None: context.state.answer}
        """The latest of this machine, and of a recording: back from one, the other is no news."""
        context.state_changed.connect(self._say_where)

    @property
    def _shown(self) -> list[PlotSlot]:
        slots = self._slots()
        return [slot for slot in slots if slot.isVisible()] or [*slots]

    def _say_where(self, changes: Change) -> None:
        """What was written, and where: the panel of answers is not in every layout."""
        answer, live = self._context.state.answer, self._context.state.recording is None
        if changes & Change.ANSWER and answer is not None and answer is not self._said.get(live):
            self._said[live] = answer
            if answer.title in (READINGS, PICTURE):
                self._context.hint(answer.words)

    def ask(self, kind: str) -> None:
        """Open the dialogs for a file of this kind, a key of `time_control.FORMATS`."""
        if kind in ("png", "svg"):
            self._ask_where(kind, lambda path: self.save_picture(kind, path))
            return
        plots = [slot.plot for slot in self._shown]
        named = {shown: {name for plot in plots for name in plot.legend.names(shown=shown)} for shown in (True, False)}
        shown = [plot.metrics_shown for plot in plots]
        dialog = ExportDialog(
            kind, self._context.state, self._axis, shown, self._context.window, hidden=named[False] - named[True]
        )
        dialog.chosen.connect(lambda choice: self._ask_where(kind, lambda path: self.save_readings(kind, path, choice)))
        self._context.open_dialog(dialog, about_machine=True)

    def save_picture(self, kind: str, path: Path) -> None:
        """Write all shown plots, one below the other."""
        figure = Figure([slot.plot for slot in self._shown])
        data = figure.png() if kind == "png" else figure.svg()
        self._start(THREAD, PICTURE, lambda: write_bytes(path, data))

    def save_readings(self, kind: str, path: Path, choice: Choice) -> None:
        """Write the chosen readings."""
        self._collect(_Collecting(kind, path, choice, list(choice.devices), []))

    def _collect(self, job: _Collecting) -> None:
        """Copy the next device's readings; when all are there, write."""
        if not job.left:
            write = write_csv if job.kind == "csv" else write_parquet
            self._start(THREAD, READINGS, lambda: write(job.path, job.done))
            return
        device = self._context.state.devices.get(job.left.pop(0))
        if device is not None:
            info, (early, late) = device.info, job.choice.range_unix_s
            metrics = tuple(metric for metric in job.choice.metrics if device.history.has(metric))
            if metrics:
                job.done.append(Extract(info.id, info.simulated, metrics, device.history.table(metrics, early, late)))
            if THROUGHPUT.id in job.choice.metrics and device.throughput.has(THROUGHPUT.id):
                table = device.throughput.table((THROUGHPUT.id,), early, late)
                job.done.append(Extract(info.id, info.simulated, (THROUGHPUT.id,), table))
        QTimer.singleShot(0, self, lambda: self._collect(job))

    def _ask_where(self, kind: str, then: Callable[[Path], None]) -> None:
        name = f"devexplorer-{strftime('%Y%m%d-%H%M%S')}.{kind}"
        self._context.save_file("Export", name, {kind: FORMATS[kind]}, then, by_window=True)
