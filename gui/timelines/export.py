"""Export of what plots and charts show: asks where to, takes copies on the main thread, lets a thread of `core` write.
Main thread.

Taking 24 hours of 16 devices at once would hold the window up, so it is done device by device, between other events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import strftime
from typing import NamedTuple, cast

from PySide6.QtCore import QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QListWidget,
    QListWidgetItem,
    QWidget,
)

from devexplorer.core.session import Change, State
from devexplorer.core.telemetry.export import Extract, write_bytes, write_csv, write_parquet, write_table
from devexplorer.core.telemetry.history import DEVICE_METRICS, THROUGHPUT
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.plots.figure import PlotFigure
from devexplorer.gui.plots.time_axis import FORMATS, LONGEST_S, TimeAxis, clock_text, duration_text
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import EDGE_PX, hbox, label, push_button, vbox
from devexplorer.gui.widgets.figures import COPY, Tabled

ROW_PX = 24
THREAD = "export"
READINGS, VALUES, PICTURE = "Export of readings", "Export of values", "Picture"
Start = Callable[[str, str, Callable[[], str]], None]
"""Name of the thread, title of the answer, the work: see `core.session.machine.Background.start`."""


class ExportChoice(NamedTuple):
    """What is to be exported."""

    range_unix_s: tuple[float, float]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]


class ExportDialog(QDialog):
    """Everything is chosen already as the plots show it."""

    chosen = Signal(object)
    """A `ExportChoice`."""

    def __init__(
        self,
        kind: str,
        state: State,
        axis: TimeAxis,
        shown: Iterable[Sequence[str]],
        parent: QWidget | None,
        *,
        hidden: Collection[str] = (),
    ) -> None:
        """`shown`: ids of the quantities of each plot; `hidden`: devices of which no plot shows a curve."""
        super().__init__(parent)
        self.setWindowTitle(f"Export readings as {'CSV' if kind == 'csv' else 'Parquet'}")
        self.resize(560, 460)
        self._state = state
        self.span = QComboBox()
        self.span.setAccessibleName("Span")
        if axis.selection is not None:
            self._add_span("Selected", axis.selection)
        self._add_span("Shown", (axis.left_unix_s, min(axis.right_unix_s, axis.clock_unix_s)))
        self._add_span("The last 24 hours", (axis.clock_unix_s - LONGEST_S, axis.clock_unix_s))
        self.devices = _check_list("Devices")
        for name, device in state.devices.items():
            words = f"{name}{' simulated' if device.info.simulated else ''}"
            _add(self.devices, name, words, name not in hidden)
        self.metrics = _check_list("Quantities")
        in_plots = {metric for metrics in shown for metric in metrics}
        for metric in (THROUGHPUT, *DEVICE_METRICS):
            known = any(
                device.throughput.has(metric.id) or device.history.has(metric.id) for device in state.devices.values()
            )
            if known:
                _add(self.metrics, metric.id, metric.label, metric.id in in_plots)
        self.note = label(words="dim", wrap=True)
        self.save_button = push_button("Save as…", self._save, look="primary")
        self.save_button.setDefault(True)
        self._lay_out()
        self.span.currentIndexChanged.connect(self.refresh)
        for checks in (self.devices, self.metrics):
            checks.itemChanged.connect(self.refresh)
        self.refresh()

    @property
    def choice(self) -> ExportChoice:
        """The current choice."""
        return ExportChoice(self.span.currentData(), _checked(self.devices), _checked(self.metrics))

    def refresh(self) -> None:
        """Say what the file will have, or what is missing."""
        choice = self.choice
        early, _ = choice.range_unix_s
        bins = {
            self._state.devices[name].history.seconds_at(early)
            for name in choice.devices
            if name in self._state.devices
        }
        reason = ""
        if not choice.devices:
            reason = "Choose a device."
        elif not choice.metrics:
            reason = "Choose a quantity."
        widest = max(bins, default=0.0)
        text = f"Lowest, mean and highest of every {widest:g} seconds." if widest else "Every reading."
        if widest:
            text += " Single readings are not kept that far back."
        self.note.setText(reason or text)
        self.save_button.setEnabled(not reason)
        self.save_button.setToolTip(reason)

    def _save(self) -> None:
        choice = self.choice
        self.accept()
        self.chosen.emit(choice)

    def _add_span(self, words: str, span: tuple[float, float]) -> None:
        early, late = span
        self.span.addItem(f"{words}: {clock_text(early)} to {clock_text(late)}, {duration_text(late - early)}", span)

    def _lay_out(self) -> None:
        lists = []
        for checks, stretch in ((self.devices, 2), (self.metrics, 3)):
            head = hbox(label(checks.accessibleName(), words="dim"), None)
            for text, state in (("all", Qt.CheckState.Checked), ("none", Qt.CheckState.Unchecked)):
                button = push_button(
                    text, partial(_check_all, checks, state), look="quiet", name=f"{checks.accessibleName()}: {text}"
                )
                button.setAutoDefault(False)
                head.addWidget(button)
            lists.append((vbox(head, (checks, 1), spacing=4), stretch))
        cancel = push_button("Cancel", self.reject)
        cancel.setAutoDefault(False)
        vbox(
            self.span,
            (hbox(*lists, spacing=EDGE_PX), 1),
            self.note,
            hbox(None, cancel, self.save_button),
            margins=EDGE_PX,
            parent=self,
        )


def _check_list(name: str) -> QListWidget:
    checks = QListWidget()
    checks.setObjectName("boxed")
    checks.setAccessibleName(name)
    return checks


def _add(checks: QListWidget, key: str, words: str, checked: bool) -> None:
    item = QListWidgetItem(words)
    item.setData(Qt.ItemDataRole.UserRole, key)
    item.setSizeHint(QSize(0, ROW_PX))  # asked before the stylesheet is known, so it is said
    item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
    item.setCheckState(Qt.CheckState.Checked if checked else Qt.CheckState.Unchecked)
    checks.addItem(item)


def _check_all(checks: QListWidget, to: Qt.CheckState, _clicked: bool = False) -> None:
    for row in range(checks.count()):
        checks.item(row).setCheckState(to)


def _checked(checks: QListWidget) -> tuple[str, ...]:
    items = [checks.item(row) for row in range(checks.count())]
    return tuple(item.data(Qt.ItemDataRole.UserRole) for item in items if item.checkState() == Qt.CheckState.Checked)


class _Collecting(NamedTuple):
    """Devices whose readings are still to be copied, and those that are."""

    kind: str
    path: Path
    choice: ExportChoice
    left: list[str]
    done: list[Extract]


class PlotExport(QObject):
    """Connect `ExportingWindow.export_requested` to `ask`."""

    def __init__(
        self, context: WindowContext, axis: TimeAxis, slots: Callable[[], Sequence[PlotSlot]], start: Start
    ) -> None:
        """`slots`: all plots over time; those shown are exported."""
        super().__init__(context)
        self._context, self._axis, self._slots, self._start = context, axis, slots, start
        self._said = {context.state.recording is None: context.state.answer}
        """The latest of this machine, and of a recording: back from one, the other is no news."""
        context.follow(Change.ANSWER, self._say_where)

    @property
    def _shown(self) -> list[PlotSlot]:
        slots = self._slots()
        return [slot for slot in slots if slot.isVisible()] or [*slots]

    def _say_where(self) -> None:
        """What was written, and where: the panel of answers is not in every layout."""
        answer, live = self._context.state.answer, self._context.state.recording is None
        if answer is not None and answer is not self._said.get(live):
            self._said[live] = answer
            if answer.title in (READINGS, VALUES, PICTURE):
                self._context.hint(answer.words)

    def ask(self, kind: str, picture: QWidget | None = None) -> None:
        """Open the dialogs for a file of this kind, or copy, as `ExportingWindow.export_requested` says."""
        over_time = picture is None or isinstance(picture, TimelinePlot)
        plots = [slot.plot for slot in self._shown] if picture is None else [picture]
        if kind == COPY:
            QGuiApplication.clipboard().setImage(PlotFigure(plots).image())
        elif kind in ("png", "svg"):
            self._ask_where(kind, lambda path: self.save_picture(kind, path, plots))
        elif over_time:
            self._ask_which(kind, [plot for plot in plots if isinstance(plot, TimelinePlot)])
        elif (figures := cast("Tabled", picture).figures()) is not None:
            rows = (figures.columns, *figures.rows)
            self._ask_where(kind, lambda path: self._start(THREAD, VALUES, lambda: write_table(path, rows)))

    def _ask_which(self, kind: str, plots: Sequence[TimelinePlot]) -> None:
        named = {shown: {name for plot in plots for name in plot.legend.names(shown=shown)} for shown in (True, False)}
        shown = [plot.metrics_shown for plot in plots]
        dialog = ExportDialog(
            kind, self._context.state, self._axis, shown, self._context.window, hidden=named[False] - named[True]
        )
        dialog.chosen.connect(lambda choice: self._ask_where(kind, lambda path: self.save_readings(kind, path, choice)))
        self._context.open_dialog(dialog, about_machine=True)

    def save_picture(self, kind: str, path: Path, plots: Sequence[QWidget]) -> None:
        """Write these, one below the other."""
        figure = PlotFigure(plots)
        data = figure.png() if kind == "png" else figure.svg()
        self._start(THREAD, PICTURE, lambda: write_bytes(path, data))

    def save_readings(self, kind: str, path: Path, choice: ExportChoice) -> None:
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
