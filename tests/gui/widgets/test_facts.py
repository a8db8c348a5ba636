"""Every fact has its label."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QTextLayout
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import Fact
from devexplorer.gui.widgets import FactsTable, Role, ScrollArea, font, vbox
from devexplorer.gui.widgets.panel import ShrinkingLabel, TextBlock, label


def is_complete(table: FactsTable) -> bool:
    """Whether every row is shown."""
    return table._filled == len(table.facts)


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
                [name.full_text for name, _ in table._cells[:count]] == [f"label {index}" for index in range(count)]
            )
        )


def test_many_facts_come_on_show_one_after_the_other(qtbot: QtBot) -> None:
    """37 at once, as a plan for every card has them, were 70 ms in which the window did nothing else."""
    table = FactsTable()
    page = ScrollArea(vbox(table, None), "page")
    qtbot.addWidget(page)
    page.resize(300, 200)
    page.show()
    for name in ("first", "second"):
        before = len(table._cells)
        facts = tuple(Fact(f"card {index}", f"{name} {index}") for index in range(37))
        table.set_facts(facts)
        assert len(table._cells) - before <= 1
        assert table.facts == facts
        qtbot.waitUntil(lambda: is_complete(table))
        assert [value.text() for _, value in table._cells] == [fact.value for fact in facts]
        assert all(value.isVisible() for _, value in table._cells)
    table.set_facts(facts[:2])
    assert [value.isVisible() for _, value in table._cells[:4]] == [True, True, False, False]


@pytest.mark.parametrize("width", [230, 280, 340, 700])
def test_no_name_is_cut_short_and_no_number_goes_on_in_the_next_line(qtbot: QtBot, width: int) -> None:
    """In the inspector of a small window `11,689,512` was in two lines, and `GeForce RTX 3070 Laptop…` was cut."""
    table = FactsTable()
    page = ScrollArea(vbox(table, None), "page")
    qtbot.addWidget(page)
    page.resize(width, 400)
    page.show()
    table.set_facts(
        (
            Fact("parameters", "11,689,512 elements"),
            Fact("GeForce RTX 3070 Laptop GPU", "fits, 811.10 MiB"),
            Fact("encoder.layers.0.self_attn.in_proj_weight", "float32"),
        )
    )
    qtbot.waitUntil(lambda: is_complete(table))
    QApplication.processEvents()
    for name, value in table._cells:
        assert "…" not in name.text()
        assert name.heightForWidth(name.width()) <= name.height(), name.full_text
        assert value.width() + name.width() < page.viewport().width()
        lines = _lines(value)
        assert " ".join(line.strip() for line in lines) == value.text(), "lines end between words"
    if width == 700:
        assert {name.height() for name, _ in table._cells} == {table._cells[0][0].fontMetrics().height()}


def _lines(value: object) -> list[str]:
    """The text of a value, line by line."""
    assert isinstance(value, TextBlock)
    layout: QTextLayout = value.document().firstBlock().layout()
    lines = (layout.lineAt(at) for at in range(layout.lineCount()))
    return [value.text()[line.textStart() : line.textStart() + line.textLength()] for line in lines]


def test_a_value_with_lines_of_its_own_keeps_their_columns(qtbot: QtBot) -> None:
    table = FactsTable()
    qtbot.addWidget(table)
    table.show()
    table.set_facts((Fact("shape", "2×3"), Fact("values", "tensor([[1., 2.],\n        [3., 4.]])")))
    qtbot.waitUntil(lambda: is_complete(table))
    fonts = [
        value.font().family() for _, value in table._cells
    ]  # whether a system's font has one width, it need not know
    assert fonts == [font(Role.TEXT).family(), font(Role.CODE).family()]
    assert fonts[0] != fonts[1]
