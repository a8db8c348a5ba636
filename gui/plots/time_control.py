"""Span, pause, selection and export of the shared time axis in one small button with a menu. Main thread only."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QToolButton

from devexplorer.gui.plots.time_axis import SPANS_S, TimeAxis, span_text
from devexplorer.gui.widgets import Role, font

FORMATS = {
    "csv": "Readings as CSV",
    "parquet": "Readings as Parquet",
    "png": "Picture as PNG",
    "svg": "Picture as SVG",
}
"""What can be exported: the ending of the file, the text of the menu."""


class TimeControl(QToolButton):
    """One is enough: all plots follow."""

    export_requested = Signal(str)
    """A key of `FORMATS`."""

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
        self.pause = menu.addAction("Pause the plots\tSpace")
        self.pause.setCheckable(True)
        self.pause.triggered.connect(axis.set_paused)
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
            self.exports[ending].triggered.connect(lambda _checked=False, kind=ending: self.export_requested.emit(kind))
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
        self.setText("paused ▾" if axis.paused else f"{span_text(axis.span_s)} ▾")
        self.setAccessibleName("Time shown: paused" if axis.paused else f"Time shown: {span_text(axis.span_s)}")
        self.pause.setChecked(axis.paused)
        for action in (self.zoom, self.clear):
            action.setEnabled(axis.selection is not None)
        for span, action in self.spans.items():
            action.setChecked(span == axis.span_s)
