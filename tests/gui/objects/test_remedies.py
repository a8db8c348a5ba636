"""The button below an explained failure does the whole of it, in the whole window with the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hands import CTRL
from fakes.learner import Learner, learner_in
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication


@pytest.fixture
def me(qapp: QApplication, tmp_path: Path) -> Iterator[Learner]:
    with learner_in(qapp, tmp_path, "2x Tesla T4") as learner:
        yield learner


def test_copy_and_add_is_one_click_and_one_undo(me: Learner) -> None:
    me.tensor()
    me.tensor(device="vgpu:0")
    x, y = me.state.objects
    me.point(x, y)
    me.press(Qt.Key.Key_Plus)
    inspector = me.window.inspector
    me.until(lambda: inspector.offers.buttons, "refused")
    assert inspector.offers.buttons[0].text() == f"Copy {x} to vgpu:0 and add", "what is on a GPU stays there"
    says = {fact.label: fact.value for fact in inspector.facts.facts}["PyTorch says"]
    assert says.startswith("Expected all tensors to be on the same device, but found at least two devices, cpu and")
    me.offer()
    me.until(lambda: len(me.state.objects) == 4 and not me.state.jobs, "added")
    copy, result = list(me.state.objects)[2:]
    assert inspector.title.text() == f"{result} is on vgpu:0"
    assert inspector.code.toPlainText().splitlines() == [
        f'{copy} = {x}.to("vgpu:0", copy=True)',
        f"{result} = {copy} + {y}",
    ]
    me.press(Qt.Key.Key_Z, CTRL)
    me.until(lambda: list(me.state.objects) == [x, y], "both are gone")
    me.press(Qt.Key.Key_Z, CTRL | Qt.KeyboardModifier.ShiftModifier)
    me.until(lambda: len(me.state.objects) == 4, "both are back")


def test_move_and_run_that_fails_half_way_says_so_and_changes_nothing(me: Learner) -> None:
    me.build_model("mlp")
    me.point("mlp")
    me.press(Qt.Key.Key_1, CTRL)
    me.on("mlp", "vgpu:0")
    me.tensor(shape="2x7")
    x = me.newest()
    me.point("mlp", x)
    me.press(Qt.Key.Key_F)
    inspector = me.window.inspector
    me.until(lambda: inspector.offers.buttons, "refused")
    assert inspector.offers.buttons[0].text() == f"Move {x} to vgpu:0 and run forward"
    assert inspector.facts.facts[0].label == "PyTorch says"
    assert inspector.facts.facts[0].value.startswith("Expected all tensors to be on the same device")
    me.offer()
    me.until(lambda: "undone" in inspector.words.text(), "failed half-way")
    assert f"The step before it (moving {x} to vgpu:0) was undone: nothing has changed." in inspector.words.text()
    assert me.where(x) == {"cpu"}
