"""The Tab order follows the visual order, also for widgets that were created later."""

from __future__ import annotations

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLayout,
    QLayoutItem,
    QPushButton,
    QScrollArea,
    QSplitter,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot

from devexplorer.core.isolation.model_source import describe
from devexplorer.core.records import Row
from devexplorer.core.session.state import State
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.questions import TrustDialog
from devexplorer.gui.files.tensor_files import CheckpointDialog, LoadFileDialog, SaveFileDialog
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.parameters.dialogs import InitialiseDialog
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import chain, reading_order


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
    names = [name for name in stops if name.startswith(("Shown", "scale", "Time shown", "Memory used"))]
    assert names == ["Shown: Memory used", "scale: fit", "Time shown: 2 min", "Memory used over time"]


def dialogs() -> dict[str, FormDialog]:
    weight = Row(
        path="0.weight",
        name="weight",
        kind="parameter",
        type="Parameter",
        depth=2,
        shape=(2, 3),
        dtype="float32",
        devices=("cpu",),
    )
    return {
        "open": OpenModelDialog(State()),
        "trust": TrustDialog(describe("nets.py:make", "/")),
        "load": LoadFileDialog(State()),
        "checkpoint": CheckpointDialog(State(), "mlp"),
        "save": SaveFileDialog(State(), ()),
        "initialise": InitialiseDialog("mlp:0.weight", weight),
    }


ORDER = {
    "open": [
        "from",
        "Python file",
        "Choose: Python file",
        "Models in the file",
        "class or function",
        "options",
        "inputs",
        "name",
        "device",
        "dtype",
        "seed",
        "Cancel",
    ],
    "trust": ["Cancel", "Run it", "do not ask again for this folder"],
    "load": ["File", "Choose: File", "to device", "name", "What the file holds", "Cancel"],
    "checkpoint": [
        "File",
        "Choose: File",
        "take away",
        "load what fits and leave the rest",
        "Keys that do not match",
        "Cancel",
    ],
    "save": ["Save", "Choose: Save", "Format", "Cancel"],
    "initialise": ["rule", "mean", "deviation", "seed", "Cancel", "Initialise"],
}
"""What Tab reaches in each dialog as it opens; the button that cannot be pressed yet is left out."""


@pytest.mark.parametrize("name", list(ORDER))
def test_tab_goes_down_a_dialog_from_its_first_field(qtbot: QtBot, name: str) -> None:
    made = dialogs()
    for other in made.values():
        qtbot.addWidget(other)
    dialog = made[name]
    dialog.show()
    qtbot.waitExposed(dialog)
    dialog.activateWindow()
    qtbot.waitUntil(dialog.isActiveWindow)
    found = []
    for _ in ORDER[name]:
        at = dialog.focusWidget()
        assert at is not None
        found.append(at.accessibleName() or getattr(at, "text", str)())
        QTest.keyClick(at, Qt.Key.Key_Tab)
    assert found == ORDER[name]
    assert dialog.focusWidget() is not None
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_no_python_object_of_a_place_in_a_layout_stays(qtbot: QtBot) -> None:
    """Qt deletes the place with its widget, and makes something else at its address: that must not be taken for it."""

    def places() -> int:
        items = [one for one in shiboken6.getAllValidWrappers() if isinstance(one, QLayoutItem)]
        return sum(not isinstance(item, QLayout) for item in items)

    root = QWidget()
    qtbot.addWidget(root)
    names = [str(number) for number in range(6)]
    first, second, third, *rest = buttons(*names)
    row, column = QHBoxLayout(root), QVBoxLayout()
    row.addWidget(first)
    row.addLayout(column)
    for button in rest:
        row.addWidget(button)
    column.addWidget(second)
    column.addWidget(third)
    before = places()
    assert [button.text() for button in reading_order(root) if isinstance(button, QPushButton)] == names
    assert places() == before
