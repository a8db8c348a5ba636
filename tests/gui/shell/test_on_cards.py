"""The whole window on CUDA cards, by clicks and keys, with an engine in a process: on those of this machine, or on the
stand-in for them.

FOLDER/cards h200,t4 python -m pytest tests/gui/shell/test_on_cards.py"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes import window
from fakes.hands import CTRL, LEFT, Hands
from fakes.learner import Learner
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.core.split.state import SplitState
from devexplorer.gui.actions.controller import encode
from devexplorer.gui.devices.dialogs import VisibleDevicesDialog
from devexplorer.gui.shell.app import App

CARDS = torch.cuda.device_count()
STAND_IN = "FAKE_CUDA_LEDGER" in os.environ
if not CARDS:
    pytest.skip("no CUDA card, and this is not the environment of docs/standin.md", allow_module_level=True)

Key = Qt.Key
NAMES = [f"cuda:{number}" for number in range(CARDS)]
LAST = NAMES[-1]
SECOND, SECOND_KEY = ("cuda:1", Key.Key_2) if CARDS > 1 else ("cpu", Key.Key_0)
several = pytest.mark.skipif(CARDS == 1, reason="wants two cards")


class OnCards(Learner):
    """A user of the window whose engine is a process."""

    def restarted(self, ask: object) -> None:
        """Do something that ends the engine, and wait for the next one, with everything rebuilt."""
        assert callable(ask)
        before = self.state.engine
        objects = set(self.state.objects)
        ask()
        self.until(lambda: self.state.engine not in (None, before), "another engine")
        self.until(lambda: set(self.state.objects) == objects and not self.state.jobs, "rebuilt")

    def end(self) -> None:
        self.app.stop()


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of errors that the engine's CUDA has to give."""
    monkeypatch.setenv("FAKE_CUDA_FAULTS", str(tmp_path / "orders"))
    return tmp_path / "orders"


@pytest.fixture
def me(qapp: QApplication, tmp_path: Path, orders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnCards]:
    monkeypatch.setattr(window, "DEADLINE_S", 120.0)  # engines start in earnest here
    driver = OnCards(App(qapp, SettingsFile(tmp_path)), Session(interval_s=0.5))
    driver.folder = tmp_path
    try:
        driver.ready().until(
            lambda: all(driver.state.devices[name].info.nvml_index is not None for name in NAMES), "joined"
        )
        yield driver
    finally:
        driver.end()


def drop(me: Hands, name: str, device: str) -> None:
    """Drag an object onto a device's card."""
    card, data, plain = me.window.devices.items[device], encode((name,)), Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(5, 5), Qt.DropAction.MoveAction, data, LEFT, plain)
    QApplication.sendEvent(card, enter)
    assert enter.isAccepted()
    QApplication.sendEvent(card, QDropEvent(QPointF(5, 5), Qt.DropAction.MoveAction, data, LEFT, plain))


def test_every_card_is_listed_once_and_nothing_is_used_before_it_is_needed(me: OnCards) -> None:
    assert set(me.state.usable_devices) == {"cpu", *NAMES}
    infos = [me.state.devices[name].info for name in NAMES]
    assert len({info.uuid for info in infos}) == len({info.nvml_index for info in infos}) == CARDS
    assert not any(info.simulated for info in infos)


def test_a_model_is_built_moved_run_trained_and_measured(me: OnCards) -> None:
    me.build_model("mlp")
    me.point("mlp")
    me.menu(me.window.toolbar.buttons["move"], "cuda:0")
    me.on("mlp", "cuda:0")
    me.press(SECOND_KEY, CTRL)
    me.on("mlp", SECOND)
    drop(me, "mlp", LAST)
    me.on("mlp", LAST)
    drop(me, "mlp", "cpu")
    me.on("mlp", "cpu")
    me.press(Key.Key_Z, CTRL)
    me.on("mlp", LAST)
    for key in ((Key.Key_F, Qt.KeyboardModifier.NoModifier), (Key.Key_F, Qt.KeyboardModifier.ShiftModifier)):
        answers = me.state.answer
        me.press(*key)
        me.until(lambda before=answers: me.state.answer is not before and not me.state.jobs, "run")
        assert me.state.answer is not None
        assert not me.state.answer.failed, me.state.answer.words
    me.press(Key.Key_B)
    form = me.window.bottom_dock.page("benchmark").page
    me.until(lambda: QApplication.focusWidget() is form.start_button, "the form is shown")
    QTest.keyClick(form.start_button, Key.Key_Return)
    me.until(lambda: me.state.runs and next(iter(me.state.runs.values())).points, "measured")
    me.press(Key.Key_B, Qt.KeyboardModifier.ShiftModifier)
    me.until(lambda: all(run.ended for run in me.state.runs.values()), "ended")


@several
def test_a_model_is_split_over_two_cards_and_runs_there(me: OnCards) -> None:
    me.build_model("mlp")
    for block, key in (("mlp:0", Key.Key_1), ("mlp:2", Key.Key_2)):
        me.point(block)
        me.press(key, CTRL)
    me.until(lambda: me.where("mlp") == {"cuda:0", "cuda:1"} and not me.state.jobs, "moved")
    me.point("mlp")
    me.press(Key.Key_F)
    me.until(lambda: me.state.answer is not None and me.state.answer.failed, "refused")
    me.offer("Insert hops")
    me.until(lambda: me.state.answer is not None and not me.state.answer.failed and not me.state.jobs, "runs")
    me.page("Split")
    me.click(me.window.bottom_dock.page("split").plan)
    me.until(lambda: "mlp" in me.state.part(SplitState).plans, "planned")


def test_the_memory_of_a_card_adds_up_and_a_restart_gives_it_back(me: OnCards) -> None:
    me.tensor(shape="1024x1024x64", device=LAST, fill="zeros")
    device = me.state.devices[LAST]
    me.page("Memory")
    me.until(lambda: device.allocator is not None and device.allocator.allocated_bytes >= 256 << 20, "counted")
    me.restarted(lambda: me.palette("Restart engine"))


def test_the_visible_cards_are_chosen_in_the_window(me: OnCards) -> None:
    me.tensor()
    me.palette("CUDA_VISIBLE")
    dialog = me.dialog(VisibleDevicesDialog)
    item = dialog.tree.topLevelItem(0)
    assert item is not None
    dialog.tree.setCurrentItem(item)
    QTest.keyClick(dialog.tree, Key.Key_Space)
    me.restarted(lambda: me.click(dialog.accept_button))
    cards = [name for name in me.state.usable_devices if name.startswith("cuda:")]
    assert len(cards) == CARDS - 1


@several
@pytest.mark.skipif(not STAND_IN, reason="a card cannot be told to fail")
@pytest.mark.parametrize("code", [700, 719])
def test_after_a_sticky_error_another_engine_has_everything_that_can_be_made_again(
    me: OnCards, orders: Path, code: int
) -> None:
    me.build_model("mlp")
    me.point("mlp")
    me.press(Key.Key_1, CTRL)
    me.on("mlp", "cuda:0")
    orders.write_text(f"copy={code}")

    def move() -> None:
        me.press(Key.Key_2, CTRL)
        me.until(lambda: me.state.answer is not None and me.state.answer.failed, "failed")
        orders.unlink()

    me.restarted(move)
    me.on("mlp", "cuda:0")
    me.press(Key.Key_2, CTRL)
    me.on("mlp", "cuda:1")
