"""Every fact has its label."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from devexplorer.core.records import Fact
from devexplorer.gui.widgets import FactsTable, ScrollArea, vbox
from devexplorer.gui.widgets.panel import ShrinkingLabel, label


def test_a_label_that_had_no_words_gets_room_for_new_ones(qtbot: QtBot) -> None:
    name = ShrinkingLabel()
    page = ScrollArea(vbox(label("what follows"), name, None), "page")
    qtbot.addWidget(page)
    page.resize(300, 200)
    page.show()
    qtbot.waitUntil(lambda: name.isVisible() and name.width() < 20)
    name.set_full_text("CUDA context")
    qtbot.waitUntil(lambda: name.text() == "CUDA context")


def test_each_row_of_a_table_that_grows_has_its_label(qtbot: QtBot) -> None:
    table = FactsTable()
    page = ScrollArea(vbox(table, None), "page")
    qtbot.addWidget(page)
    page.resize(300, 200)
    page.show()
    for count in (1, 0, 4, 2, 5):
        table.set_facts(tuple(Fact(f"label {index}", "value") for index in range(count)))
        qtbot.waitUntil(
            lambda count=count: (
                [name.text() for name, _ in table._cells[:count]] == [f"label {index}" for index in range(count)]
            )
        )
