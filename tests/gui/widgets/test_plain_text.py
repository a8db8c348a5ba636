"""Names come from files and other machines: no tooltip and no label shows them as rich text, which would load what an
`<img>` names, and wait for it."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QHelpEvent, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QApplication,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QToolTip,
    QTreeView,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets import theme as themes

GUI = Path(__file__).parents[3] / "gui"
RICH = {"plots/canvas.py", "charts/size_curve.py"}
"""Labels with tags of our own; both escape every text in them."""


def hover(widget: QWidget, at: QPoint) -> None:
    """What Qt sends when the mouse rests there."""
    QApplication.sendEvent(widget, QHelpEvent(QEvent.Type.ToolTip, at, widget.mapToGlobal(at)))


def of_a_button(tip: str) -> tuple[QWidget, QWidget, QPoint]:
    button = QPushButton("name", toolTip=tip)
    return button, button, QPoint(2, 2)


def of_a_widget_with_its_own_sheet(tip: str) -> tuple[QWidget, QWidget, QPoint]:
    field = QLineEdit("name", toolTip=tip)
    field.setStyleSheet("color: red;")
    return field, field, QPoint(2, 2)


def of_an_action(tip: str) -> tuple[QWidget, QWidget, QPoint]:
    menu = QMenu()
    menu.setToolTipsVisible(True)
    action = menu.addAction("name")
    action.setToolTip(tip)
    return menu, menu, menu.actionGeometry(action).center()


def of_a_model(tip: str) -> tuple[QWidget, QWidget, QPoint]:
    view = QTreeView()
    model = QStandardItemModel(view)
    item = QStandardItem("name")
    item.setToolTip(tip)
    model.appendRow(item)
    view.setModel(model)
    return view, view.viewport(), QPoint(30, 5)


def of_an_item(tip: str) -> tuple[QWidget, QWidget, QPoint]:
    tree = QTreeWidget()
    item = QTreeWidgetItem(["name"])
    item.setToolTip(0, tip)
    tree.addTopLevelItem(item)
    return tree, tree.viewport(), QPoint(30, 5)


@pytest.mark.parametrize("made", [of_a_button, of_a_widget_with_its_own_sheet, of_an_action, of_a_model, of_an_item])
def test_a_tooltip_shows_tags_as_they_are_and_opens_nothing(
    made: Callable[[str], tuple[QWidget, QWidget, QPoint]], qtbot: QtBot, qapp: QApplication, tmp_path: Path
) -> None:
    themes.apply(qapp, themes.LIGHT)
    fifo = tmp_path / "picture.png"
    os.mkfifo(fifo)
    opened = threading.Event()

    def wait_for_reader() -> None:
        """Who opens it to read waits no longer for somebody who writes; the test would not end."""
        os.close(os.open(fifo, os.O_WRONLY))
        opened.set()

    other_end = threading.Thread(target=wait_for_reader, name="fifo")
    other_end.start()
    try:
        tip = f"<b>bold</b> <img src='file://{fifo}'>\n<h1>A100</h1>"
        top, widget, at = made(tip)
        qtbot.addWidget(top)
        top.show()
        hover(widget, at)
        (shown,) = (one for one in QApplication.topLevelWidgets() if one.metaObject().className() == "QTipLabel")
        assert isinstance(shown, QLabel)
        assert shown.text() == tip
        shown.grab()
        assert not opened.is_set()
    finally:
        end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        other_end.join()
        os.close(end)
        QToolTip.hideText()


def labels(tree: ast.AST) -> list[ast.Call]:
    """Where a label is made: `QLabel(…)`, or the `super().__init__(…)` of a class of labels."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "QLabel":
            found.append(node)
        elif isinstance(node, ast.ClassDef) and "QLabel" in map(ast.unparse, node.bases):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            found += [call for call in calls if ast.unparse(call.func) == "super().__init__"]
    return found


def test_every_label_is_made_plain() -> None:
    made = 0
    for path in sorted(GUI.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        where = path.relative_to(GUI).as_posix()
        for call in labels(ast.parse(source)) if "QLabel" in source else ():
            formats = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert formats.get("textFormat") == "Qt.TextFormat.PlainText", f"{where}:{call.lineno}"
            made += 1
        assert ("RichText" in source) == (where in RICH), where
        assert "QMessageBox" not in source, f"{where}: its label would show rich text"
    assert made > 5
