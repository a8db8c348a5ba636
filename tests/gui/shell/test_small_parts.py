"""Parts that several panels share: sentences, cut lines, the code block's button, the command palette, banners, the
first focus."""

from __future__ import annotations

import sys
import time

import pytest
from fakes.host import hosted
from fakes.look_records import CPU, VGPU, show, state_with, tensor
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.base import sentence
from devexplorer.core.records import Log, Problem
from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import Change, State
from devexplorer.gui.actions import Controller
from devexplorer.gui.actions.palette import CommandPalette, PaletteChoice
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.devices.card import DeviceCard
from devexplorer.gui.devices.panel import DevicesPanel
from devexplorer.gui.objects.panel import ObjectsPanel
from devexplorer.gui.shell.main_window import MainWindow
from devexplorer.gui.widgets import Banner, CodeView, ElidedButton, ElidedLabel
from devexplorer.gui.widgets.icons import Sign


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no driver is installed", "No driver is installed."),
        ("It is too old.", "It is too old."),
        ("", ""),
        (" x ", "X."),
    ],
)
def test_a_reason_becomes_a_sentence(text: str, wanted: str):
    assert sentence(text) == wanted


def test_a_line_without_room_is_cut_and_its_tooltip_has_all_of_it(qtbot: QtBot):
    line = hosted(qtbot, lambda _: ElidedLabel(), 120, 20)
    line.set_full_text("No NVIDIA driver is installed here, and this torch is a CPU build.")
    assert line.text().endswith("…")
    assert line.toolTip() == line.full_text == line.accessibleName()
    line.resize(600, 20)
    assert (line.text(), line.toolTip()) == (line.full_text, "")


def test_a_button_without_room_is_cut_and_its_tooltip_has_all_of_it(qtbot: QtBot):
    button = hosted(qtbot, lambda _: ElidedButton("Add two virtual GPUs & go on"), 90, 24)
    assert button.text().endswith("…")
    assert button.toolTip() == "Add two virtual GPUs & go on"
    button.resize(600, 24)
    assert (button.text(), button.toolTip()) == ("Add two virtual GPUs && go on", "")


def test_what_is_missing_is_in_one_line_below_the_cards(qtbot: QtBot):
    problems = (
        Problem("no NVIDIA driver: libnvidia-ml.so.1 not found"),
        Problem("this torch is a CPU build"),
        Problem("this torch is a CPU build"),
    )
    panel = hosted(qtbot, lambda _: DevicesPanel(state_with(CPU, VGPU, problems=problems)), 276, 500)
    assert panel.machine.isVisible()
    assert panel.machine.text() == "No NVIDIA driver: libnvidia-ml.so.1 not found."  # all of it
    assert panel.machine.toolTip() == "This torch is a CPU build."
    assert {type(item) for item in panel.items.values()} == {DeviceCard}
    panel.resize(276, 218)  # as in Learn in a small window: no card is cut in half
    assert {type(item) for item in panel.items.values()} != {DeviceCard}


def test_the_copy_button_never_covers_code(qtbot: QtBot):
    view = hosted(qtbot, lambda _: CodeView(), 300, 120)
    for code in ('y = x.to("cuda:1")', 'vgg16_bn = zoo.build("vgg16-bn", seed=0).to("cuda:1")'):
        view.set_code(code)
        assert view.viewport().y() >= view.copy_button.geometry().bottom()


def test_the_palette_says_why_not_and_when_nothing_is_found(qtbot: QtBot):
    ran: list[str] = []
    choices = [
        PaletteChoice("Undo move", "Nothing has been moved yet.", False, lambda: ran.append("undo")),
        PaletteChoice("Build mlp", "a perceptron", True, lambda: ran.append("mlp")),
    ]
    host = QWidget()
    qtbot.addWidget(host)
    palette = CommandPalette(choices, host)
    palette.show()
    assert (
        palette.list.topLevelItem(0).data(0, Qt.ItemDataRole.AccessibleTextRole)
        == "Undo move, Nothing has been moved yet."
    )
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)  # it cannot be done: nothing happens, the palette stays
    assert (ran, palette.isVisible()) == ([], True)
    qtbot.keyClicks(palette.field, "zzz")
    assert palette.nothing.isVisible()
    assert not palette.list.isVisible()
    palette.field.setText("mlp build")
    assert not palette.nothing.isVisible()
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert ran == ["mlp"]


def test_a_hint_goes_by_itself_and_an_error_stays(qtbot: QtBot):
    banner = hosted(qtbot, lambda _: Banner(), 600, 30)
    banner.say("Select an object first.", passing=True)
    assert not banner.findChild(Sign).isVisible(), "it warns of nothing"
    patience_ms = banner.passing.interval()
    banner.passing.timeout.emit()
    assert not banner.isVisible()
    banner.say("Recorded to a.devrec.", passing=True, action="Open")
    assert banner.passing.interval() > 5 * patience_ms, "nothing else offers that"
    banner.say("Select an object first.", passing=True)
    banner.say("The engine ended.", error=True)
    assert not banner.passing.isActive()
    assert banner.isVisible()


def test_a_message_without_room_is_cut_and_an_error_has_its_sign_and_colour(qtbot: QtBot) -> None:
    banner = hosted(qtbot, lambda _: Banner(), 400, 26)
    long = "The engine ended: " + "killed by the system, because memory ran out. " * 3
    banner.say(long, error=True)
    assert banner.words.text().endswith("…")
    assert banner.words.toolTip() == " ".join(long.split())
    assert banner.findChild(Sign).isVisible()
    assert banner.words.property("words") == "error"
    assert banner.close_button.geometry().right() < 400
    banner.say("Select an object first.", passing=True)
    assert banner.words.property("words") == ""


def test_before_the_engine_has_named_its_devices_nothing_is_wrong(qtbot: QtBot):
    panel = hosted(qtbot, lambda _: BenchmarkPanel(State()), 1280, 160)
    assert panel.matmul.message.isHidden()
    panel.page.start()
    assert "no device is chosen" in panel.matmul.message.full_text


class _Windows(QObject):
    """Collects widgets shown as separate windows."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[QObject] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.seen.append(watched)
        return False


def test_the_keyboard_starts_at_the_objects_and_no_other_window_flashes(qtbot: QtBot, qapp: QApplication):
    windows = _Windows()
    qapp.installEventFilter(windows)
    state = State()
    window = MainWindow(state, Controller(state, lambda _: 0, selection=tuple, say=str), Settings())
    qtbot.addWidget(window)
    window.show()
    qapp.removeEventFilter(windows)
    assert windows.seen == [window]
    assert window.focusWidget() is window.objects


def test_a_part_that_fails_does_not_keep_the_others_from_redrawing(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch):
    state = state_with(CPU)

    def refresh(_panel: ObjectsPanel) -> None:
        if state.objects:
            raise RuntimeError("a bug in the tree")

    monkeypatch.setattr(ObjectsPanel, "refresh", refresh)
    window = MainWindow(state, Controller(state, lambda _: 0, selection=tuple, say=str), Settings())
    qtbot.addWidget(window)
    failures: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: failures.append(str(error)))
    show(state, tensor("x"))
    state.log.append(Log(level="error", text="the line in the status bar", time_unix_s=time.time()))
    window.refresh(Change.OBJECTS | Change.LOG, 0.0)
    assert failures == ["a bug in the tree"]
    assert window.banner.words.full_text == "the line in the status bar"
