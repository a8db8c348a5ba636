"""Time and memory of one card over the batch, as two curves. They are asked for with a button, because each batch is a
run of the step without data. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QStackedWidget, QWidget

from devexplorer.core.base import bytes_text
from devexplorer.core.records import BatchPoint, Fit, FitReport
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.plots.curves import MEMORY_UNITS, Unit
from devexplorer.gui.widgets import EDGE_PX, ElidedLabel, EmptyState, Role, hbox
from devexplorer.gui.widgets.form_fields import Choice

TIME_UNITS = (Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6))
RATE_UNITS = (Unit("samples/s", 1.0),)
BESIDE_FROM_PX = 560
"""From this width on the curves are side by side."""
LOW_PX, LEAST_CURVE_PX = 120, 56
"""In a lower place the choice is beside the curves, and the note in its tooltip."""
ASK = "Work out the curve"
WAITING = "A plan is under way."
SENTENCE = (
    "The step is traced at up to ten batches, from 1 to more than {gpu} holds: its time and its memory over the batch."
)
SERVED = "The curve is about a step of training or inference; this plan is about generating text."
NO_CURVE = "{gpu} has no curve: the model could not be divided over these cards."


class BatchCurves(QStackedWidget):
    """`curve_requested`: work it out for the card on show."""

    curve_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.empty = EmptyState("", ASK)
        self.empty.chosen.connect(self.curve_requested)
        self.what = Choice("What is shown over the batch", [("time", "time of a step", ""), ("rate", "samples/s", "")])
        self.what.currentIndexChanged.connect(self._draw)
        self.time = SizeCurve("Time of a step over the batch, simulated", TIME_UNITS)
        self.rate = SizeCurve("Samples per second over the batch, simulated", RATE_UNITS)
        self.memory = SizeCurve("Memory over the batch, simulated", MEMORY_UNITS)
        self.note = ElidedLabel(Role.LABEL, "dim")
        self._both = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._both.setSpacing(4)
        for curve in (self.time, self.rate, self.memory):
            curve.setMinimumHeight(LEAST_CURVE_PX)
            self._both.addWidget(curve, 1)
        self._shown = QWidget()
        self._parts = QBoxLayout(QBoxLayout.Direction.TopToBottom, self._shown)
        self._parts.setSpacing(2)
        self._parts.setContentsMargins(EDGE_PX, 2, EDGE_PX, 0)
        self._parts.addLayout(hbox(self.what, (self.note, 1)))
        self._parts.addLayout(self._both, 1)
        self.addWidget(self.empty)
        self.addWidget(self._shown)
        self._gpu = ""
        self._points: tuple[BatchPoint, ...] = ()

    def show_fit(self, fit: Fit, asked: FitReport | None) -> None:
        """Of this card; `asked`: the report with its curve, None before the question was asked."""
        text = SERVED if fit.serving is not None else SENTENCE if asked is None else NO_CURVE
        self.empty.sentence.setText(text.format(gpu=fit.gpu))
        self.empty.button.setVisible(asked is None and fit.serving is None)
        points = asked.curve if asked is not None else ()
        self.setCurrentWidget(self._shown if points else self.empty)
        if (fit.gpu, points) != (self._gpu, self._points):
            self._gpu, self._points = fit.gpu, points
            self._draw()

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self.empty.button.setEnabled(ready)
        self.empty.button.setToolTip("" if ready else WAITING)

    def _draw(self) -> None:
        timed = [point for point in self._points if point.step_seconds is not None]
        rates = self.what.value == "rate"
        self.time.setVisible(not rates)
        self.rate.setVisible(rates)
        for curve in (self.time, self.rate, self.memory):
            curve.set_axis("batch", "{:,.0f}".format)
        self.time.set_curves([_series("time", [_time(point) for point in timed])])
        self.rate.set_curves([_series("rate", [_rate(point) for point in timed])])
        memory = [(float(point.batch), *[float(point.total_bytes)] * 3) for point in self._points]
        capacity = self._points[0].capacity_bytes if self._points else 0
        guide = (float(capacity), f"capacity {bytes_text(capacity)}") if capacity else None
        self.memory.set_curves([_series("memory", memory)], guide)  # type: ignore[arg-type]  # four numbers each
        beyond = [point for point in self._points if not point.fits]
        what = f"; a batch of {beyond[-1].batch:,} does not fit" if beyond else ""
        self.note.set_full_text(f"{self._gpu}, simulated: the bars are the ranges expected of a real card{what}.")
        self.what.setToolTip(self.note.full_text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        low = event.size().height() < LOW_PX
        self.note.setVisible(not low)
        self._parts.setDirection(QBoxLayout.Direction.LeftToRight if low else QBoxLayout.Direction.TopToBottom)
        beside = low or event.size().width() >= BESIDE_FROM_PX
        self._both.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)


def _series(name: str, points: list[tuple[float, float, float, float]]) -> Series:
    return Series(name, "soft", tuple(points), simulated=True)


def _time(point: BatchPoint) -> tuple[float, float, float, float]:
    middle, low, high = point.step_seconds, point.step_seconds_low, point.step_seconds_high
    assert middle is not None
    assert low is not None
    assert high is not None
    return float(point.batch), middle, low, high


def _rate(point: BatchPoint) -> tuple[float, float, float, float]:
    batch, middle, low, high = _time(point)
    return batch, batch / middle, batch / high, batch / low
