"""Tab goes where the eye goes, also through what was made late."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QScrollArea, QSplitter, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.state import State
from devexplorer.gui.plots.slot import PlotSlot
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.reading_order import chain, reading_order


def buttons(*names: str) -> list[QPushButton]:
    return [QPushButton(name) for name in names]


def tab_stops(first: QWidget) -> list[str]:
    """Names along the chain of focus, once round."""
    found, at = [], first
    while True:
        if at.focusPolicy() & Qt.FocusPolicy.TabFocus:
            found.append(at.text() if isinstance(at, QPushButton) else at.accessibleName())
        at = at.nextInFocusChain()
        if at is first:
            return found


def test_layouts_splitters_and_scroll_areas_are_read_as_they_stand(qtbot: QtBot) -> None:
    last, second, first, third = buttons("last", "second", "first", "third")  # made in another order than they stand
    root = QWidget()
    qtbot.addWidget(root)
    outer = QVBoxLayout(root)
    upper = QHBoxLayout()
    upper.addWidget(first)
    upper.addWidget(QLabel("not a stop"))
    upper.addWidget(second)
    outer.addLayout(upper)
    area = QScrollArea()
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(third)
    splitter = QSplitter()
    splitter.addWidget(area)
    splitter.addWidget(last)
    outer.addWidget(splitter)
    assert list(reading_order(root)) == [first, second, third, last]


def test_what_is_made_late_comes_where_it_stands(qtbot: QtBot) -> None:
    root = QWidget()
    qtbot.addWidget(root)
    layout = QVBoxLayout(root)
    tab, status = buttons("tab", "status")
    layout.addWidget(tab)
    page = QWidget()
    layout.addWidget(page)
    layout.addWidget(status)
    inside = QHBoxLayout(page)
    start, field = buttons("start", "field")
    inside.addWidget(field)
    inside.addWidget(start)
    chain(tab, page)
    assert tab_stops(tab) == ["tab", "field", "start", "status"]


def test_the_header_of_a_plot_comes_before_its_canvas(qtbot: QtBot) -> None:
    root = QWidget()
    qtbot.addWidget(root)
    layout = QVBoxLayout(root)
    before, after = buttons("before", "after")
    slot = PlotSlot(State(), TimeAxis(), "memory_used_bytes", time_control=True)
    for widget in (before, slot, after):
        layout.addWidget(widget)
    root.show()
    stops = tab_stops(before)
    names = [name for name in stops if name.startswith(("Shown", "Scale", "Time shown", "Memory used"))]
    assert names == ["Shown: Memory used", "Scale to capacity", "Time shown: 2 min", "Memory used over time"]
