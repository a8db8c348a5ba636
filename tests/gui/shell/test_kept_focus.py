"""The keyboard stays near what had it when that is disabled or hidden by its own click."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hands import Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton

from devexplorer.core.planner.state import FitState
from devexplorer.gui.fit.page import FitPanel

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def hands(qapp: QApplication, tmp_path: Path) -> Iterator[Hands]:
    made = open_window(qapp, tmp_path / "settings", "2x Tesla T4", Hands)
    yield made.ready()
    made.end()


def test_after_plan_it_is_in_the_page_and_not_at_record(qapp: QApplication, hands: Hands) -> None:
    hands.build("mlp")
    hands.point("mlp")
    hands.page("Fit")
    fit = hands.window.findChild(FitPanel)
    assert isinstance(fit, FitPanel)
    for _ in range(2):  # without results, and with those of before
        if fit.is_folded:
            hands.click(fit.fold_button)
        fit.start_button.setFocus()
        hands.click(fit.start_button)
        hands.until(lambda: not fit.start_button.isEnabled(), "under way")
        focus = qapp.focusWidget()
        assert focus is not None
        assert fit.isAncestorOf(focus)
        hands.until(lambda: fit.start_button.isEnabled() and hands.state.part(FitState).report is not None, "planned")
    assert qapp.focusWidget() is fit.table


def test_a_click_that_brings_the_window_back_is_not_lost(qapp: QApplication, hands: Hands) -> None:
    hands.build("mlp")
    hands.point("mlp")
    hands.page("Fit")
    fit = hands.window.findChild(FitPanel)
    assert isinstance(fit, FitPanel)
    button = QPushButton("elsewhere", hands.window)
    clicks: list[str] = []
    button.clicked.connect(lambda: clicks.append("click"))
    button.show()
    fit.start_button.setFocus()
    dialog = QDialog(hands.window)
    dialog.show()
    dialog.activateWindow()
    hands.until(lambda: qapp.activeWindow() is dialog, "the dialog has the keyboard")
    fit.start_button.setEnabled(False)
    handle, left, none = hands.window.windowHandle(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    at = button.mapTo(hands.window, button.rect().center())
    QTest.mousePress(handle, left, none, at)
    hands.window.activateWindow()
    hands.until(lambda: qapp.activeWindow() is hands.window, "the window has the keyboard")
    QTest.mouseRelease(handle, left, none, at)
    hands.until(lambda: bool(clicks), "clicked")
    assert qapp.focusWidget() is button
    dialog.close()
