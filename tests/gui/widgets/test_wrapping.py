"""Fields go on in the next line where the width ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets.form_fields import GAP_PX, WrappingLayout

SIZES = ((60, 20), (40, 30), (90, 20), (50, 20))


@pytest.mark.parametrize(("width", "lines"), [(400, 1), (264, 1), (263, 2), (120, 3), (90, 4)])
def test_each_is_whole_and_none_lies_on_another(qtbot: QtBot, width: int, lines: int) -> None:
    row = QWidget()
    qtbot.addWidget(row)
    layout = WrappingLayout(row)
    fields = [QWidget() for _ in SIZES]
    for field, size in zip(fields, SIZES, strict=True):
        field.setFixedSize(*size)
        layout.addWidget(field)
    gone = QWidget()
    layout.addWidget(gone)
    gone.hide()
    row.setFixedSize(width, row.heightForWidth(width))
    row.show()
    places = [field.geometry() for field in fields]
    assert all(row.rect().contains(place) for place in places)
    assert not any(one.intersects(other) for at, one in enumerate(places) for other in places[:at])
    assert [(place.width(), place.height()) for place in places] == list(SIZES)
    assert sum(after.left() <= before.left() for before, after in pairwise(places)) == lines - 1
    assert layout.sizeHint().width() == sum(width for width, _ in SIZES) + 3 * GAP_PX
