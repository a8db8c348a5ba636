"""Span, selection and export of the shared time axis in one small button with a menu; and a note at every plot
while it is paused. Main thread only."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from devexplorer.gui.plots.time_axis import SPANS_S, TimeAxis, duration_text, span_text
from devexplorer.gui.widgets import Role, ask_export, font

FORMATS = {
    "csv": "Readings as CSV",
    "parquet": "Readings as Parquet",
    "png": "Picture as PNG",
    "svg": "Picture as SVG",
}
"""What can be exported: the ending of the file, the text of the menu."""


TOLD_S = 3.0
"""How long a plot says how much time it shows, after that has changed."""
EDGE_PX, ABOVE_PX = 28, 28
"""Where it says so: from the right edge of the canvas, and above the times."""


class TimeNote(QToolButton):
    """In a corner of each plot: how old it is where nothing comes, that it is paused, with a click as the way back; how
    much time it shows, when that has changed."""

    def __init__(self, axis: TimeAxis, canvas: QWidget) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self._axis, self._width_s, self._changed_unix_s = axis, axis.width_s, -math.inf
        self.setFont(font(Role.LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.clicked.connect(lambda: axis.set_paused(False))
        axis.changed.connect(self.follow)
        self.hide()

    def follow(self) -> None:
        """Say what is the case now; call it again later, so that what has been said goes away."""
        axis = self._axis
        width = span_text(axis.width_s) if axis.width_s in SPANS_S else duration_text(axis.width_s)
        if abs(axis.width_s - self._width_s) > 1e-6 * axis.width_s:
            self._width_s, self._changed_unix_s = axis.width_s, axis.clock_unix_s
        is_new = 0 <= axis.clock_unix_s - self._changed_unix_s < TOLD_S
        words = [word for word, holds in ((axis.age, axis.age), ("paused", axis.paused), (width, is_new)) if holds]
        self.setText(" · ".join(words))
        self.setAccessibleName(f"Paused, {width} shown: go on" if axis.paused else f"{width} shown")
        self.setToolTip(f"Paused, {width} shown: a click, or Space, follows the present again" if axis.paused else "")
        self.setEnabled(axis.paused)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, not axis.paused)
        self.adjustSize()
        room = self._canvas.size() - self.size()
        self.move(room.width() - EDGE_PX, room.height() - ABOVE_PX)
        self.setVisible(bool(words))


class TimeControl(QToolButton):
    """One is enough: all plots follow."""

    def __init__(self, axis: TimeAxis) -> None:
        super().__init__(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._axis = axis
        self.setProperty("look", "quiet")
        self.setFont(font(Role.LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        menu = QMenu(self)
        self.spans = {}
        for span in SPANS_S:
            self.spans[span] = menu.addAction(f"Show {span_text(span)}")
            self.spans[span].setCheckable(True)
            self.spans[span].triggered.connect(lambda _checked=False, seconds=span: axis.set_span(seconds))
        menu.addSeparator()
        self.zoom = menu.addAction("Zoom to the selection")
        self.zoom.triggered.connect(axis.show_selection)
        self.clear = menu.addAction("Clear the selection\tEsc")
        self.clear.triggered.connect(lambda: axis.select(None))
        menu.addSeparator()
        self.exports = {}
        export = menu.addMenu("Export")
        for ending, text in FORMATS.items():
            self.exports[ending] = export.addAction(f"{text}…")
            self.exports[ending].triggered.connect(lambda _checked=False, kind=ending: ask_export(self, kind, None))
        self.setMenu(menu)
        self.setToolTip(
            "How much time the plots show. Wheel (with Ctrl where plots scroll): more or less. While paused: it zooms,"
            " drag pans.\n"
            "Drag with Shift: select a span and see lowest, mean and highest."
        )
        axis.changed.connect(self._show)
        axis.selection_changed.connect(self._show)
        self._show()

    def _show(self) -> None:
        axis = self._axis
        self.setText(f"{span_text(axis.span_s)} ▾")
        self.setAccessibleName(f"Time shown: {span_text(axis.span_s)}{', paused' if axis.paused else ''}")
        for action in (self.zoom, self.clear):
            action.setEnabled(axis.selection is not None)
        for span, action in self.spans.items():
            action.setChecked(span == axis.span_s)
