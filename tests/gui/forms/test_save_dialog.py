"""The save dialog: the name is preselected, and its extension always matches the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.host import hosted
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QLabel, QMessageBox, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.forms.save_dialog import SaveDialog

Make = Callable[..., SaveDialog]


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Make:
    def make(name: str = "readings.csv", formats: dict[str, str] | None = None) -> SaveDialog:
        window = hosted(qtbot, QWidget)
        dialog = SaveDialog(window, "Export", name, formats or {"csv": "CSV"}, str(tmp_path))
        dialog.saved.connect(lambda path: qtbot.__dict__.setdefault("saved", []).append(path))
        dialog.open()
        qtbot.waitExposed(dialog)
        dialog.activateWindow()
        qtbot.waitUntil(lambda: QApplication.focusWidget() is dialog.name_field)
        return dialog

    return make


def test_the_name_has_the_focus_and_its_stem_is_selected(make: Make) -> None:
    assert make("run-2.5 of today.csv").name_field.selectedText() == "run-2.5 of today"


def test_it_asks_where_to_save_and_not_where_to_look(make: Make) -> None:
    label = make().findChild(QLabel, "lookInLabel")
    assert isinstance(label, QLabel)
    assert label.text() == "Save in:"


def test_what_is_typed_replaces_the_stem_alone(make: Make, qtbot: QtBot, tmp_path: Path) -> None:
    dialog = make()
    QTest.keyClicks(dialog.name_field, "mine")
    assert dialog.name_field.text() == "mine.csv"
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert qtbot.__dict__["saved"] == [tmp_path / "mine.csv"]


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("plot.png", "plot.csv"),
        ("plot", "plot.csv"),
        ("plot.CSV", "plot.CSV"),
        ("run-1.5", "run-1.5.csv"),
        ("a.tar.png", "a.tar.csv"),
    ],
)
def test_the_extension_is_that_of_what_is_written(
    make: Make, qtbot: QtBot, tmp_path: Path, typed: str, written: str
) -> None:
    dialog = make()
    dialog.name_field.selectAll()
    QTest.keyClicks(dialog.name_field, typed)
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert qtbot.__dict__["saved"] == [tmp_path / written]


def test_the_corrected_name_is_the_one_that_is_asked_about(make: Make, qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "plot.csv").write_text("of somebody")
    dialog = make()
    dialog.name_field.selectAll()
    QTest.keyClicks(dialog.name_field, "plot.png")
    asked: list[str] = []

    def refuse() -> None:
        box = QApplication.activeModalWidget()
        assert isinstance(box, QMessageBox)
        asked.append(box.text())
        QTest.mouseClick(box.button(QMessageBox.StandardButton.No), Qt.MouseButton.LeftButton)

    QTimer.singleShot(0, refuse)
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert "plot.csv" in asked[0]
    assert dialog.name_field.text() == "plot.csv", "it is corrected where it can be seen"
    assert "saved" not in qtbot.__dict__


def test_the_extension_follows_the_chosen_format(make: Make, qtbot: QtBot, tmp_path: Path) -> None:
    dialog = make("session.py", {"py": "Python script", "ipynb": "Jupyter notebook"})
    QTest.keyClicks(dialog.name_field, "today")
    formats = next(
        box
        for box in dialog.findChildren(QComboBox)
        if "Jupyter notebook (*.ipynb)" in [box.itemText(at) for at in range(box.count())]
    )
    formats.setFocus()
    QTest.keyClick(formats, Qt.Key.Key_Down)
    formats.textActivated.emit(formats.currentText())
    assert dialog.name_field.text() == "today.ipynb"
    assert dialog.name_field.selectedText() == "today"
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert qtbot.__dict__["saved"] == [tmp_path / "today.ipynb"]


def test_an_extension_of_another_format_that_is_typed_chooses_that_format(
    make: Make, qtbot: QtBot, tmp_path: Path
) -> None:
    dialog = make("session.py", {"py": "Python script", "ipynb": "Jupyter notebook"})
    dialog.name_field.selectAll()
    QTest.keyClicks(dialog.name_field, "mine.ipynb")
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert dialog.suffix == "ipynb"
    assert qtbot.__dict__["saved"] == [tmp_path / "mine.ipynb"]


def test_a_name_that_no_file_system_takes_is_said(make: Make) -> None:
    dialog = make()
    dialog.name_field.setText(252 * "x")
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert QToolTip.text() == "This name is too long: at most 255 bytes."
    assert dialog.isVisible()
    QToolTip.hideText()
    dialog.name_field.setText(251 * "x")
    QTest.keyClick(dialog.name_field, Qt.Key.Key_Return)
    assert not dialog.isVisible()
