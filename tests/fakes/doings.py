"""The clicks and keys that complete each exercise of the Learn tab, as its steps describe."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialogButtonBox, QInputDialog, QPushButton, QSpinBox

from devexplorer.core.learn.course import EXERCISES
from devexplorer.gui.devices.dialogs import VisibleDevicesDialog
from devexplorer.gui.parameters.dialogs import EditElementDialog, InitialiseDialog
from fakes.hands import CTRL, SHIFT
from fakes.learner import Learner

Key = Qt.Key
MOST_CLICKS = 3
"""To reach any control, in menus, pages or the palette."""
RESTARTS = "visible-devices"
"""Ends the engine, so it needs a separate window: no thread may outlive a test."""


def this_machine(me: Learner) -> None:
    me.reply("17")
    assert me.panel.wrong.isVisible()
    assert me.panel.answer.text() == "17", "it can be put right"
    me.reply(f"{len(me.state.usable_devices)} devices")


def device_table(me: Learner) -> None:
    last = me.state.usable_devices[-1]
    card = me.window.devices.items[last]
    me.click(card)
    me.page("Device")
    me.until(lambda: me.window.bottom_dock.page("device").device == last, "shown")
    me.page("Learn")
    me.reply(card.texts.of_total.removeprefix("of ").split()[0])


def visible_devices(me: Learner) -> None:
    me.palette("CUDA_VISIBLE")
    dialog = me.dialog(VisibleDevicesDialog)
    item = dialog.tree.topLevelItem(0)
    assert item is not None
    dialog.tree.setCurrentItem(item)
    QTest.keyClick(dialog.tree, Key.Key_Space)
    me.click(dialog.accept_button)
    me.done(1)
    me.palette("CUDA_VISIBLE")
    me.click(me.dialog(VisibleDevicesDialog).inherit_button)


def absent_device(me: Learner) -> None:
    me.tensor(device="cuda:99", fall_back=True)
    me.done(1)
    me.reply("cpu")


def threads(me: Learner) -> None:
    for number in (1, 2):
        me.palette("CPU threads")
        dialog = me.dialog(QInputDialog)
        spin = dialog.findChild(QSpinBox)
        assert spin is not None
        me.write(spin.lineEdit(), str(number))
        me.take(dialog.findChild(QDialogButtonBox).buttons(), "OK")
        if number == 1:
            me.done(1)
            assert "threads 1" in me.window.devices.items["cpu"].spoken()
            me.reply("one")
            me.done(2)


def new_tensor(me: Learner) -> None:
    me.tensor(fill="ones")
    me.done(1)
    me.tensor(fill="Custom values", values="[[1, 2], [3, 4]]")
    me.done(2)
    me.tensor(fill="rand:", device="vgpu:0")


def move_tensor(me: Learner) -> None:
    me.tensor()
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.buttons["move"], "vgpu:0")
    me.done(2)
    me.menu(me.window.toolbar.buttons["copy"], "vgpu:1")


def already_there(me: Learner) -> None:
    me.tensor(device="vgpu:0")
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.buttons["move"], "vgpu:0")


def requires_grad(me: Learner) -> None:
    me.tensor(grad=True, device="cpu")
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.buttons["move"], "vgpu:0")
    me.done(2)
    me.tensor(device="vgpu:0")
    me.done(3)
    me.point(me.newest())
    me.context("Parameters", "Unfreeze")


def numpy(me: Learner) -> None:
    me.tensor(device="vgpu:0")
    me.done(1)
    me.point(me.newest())
    me.context("Ask", "Can it become a NumPy array?")
    me.done(2)
    me.offer()


def dtype(me: Learner) -> None:
    me.tensor(fill="randn")
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.buttons["cast"], "float16")
    me.done(2)
    me.press(Key.Key_Z, CTRL)


def several(me: Learner) -> None:
    me.tensor()
    me.tensor()
    me.done(1)
    me.point(*me.state.objects)
    me.menu(me.window.toolbar.buttons["move"], "vgpu:0")
    me.done(2)
    me.press(Key.Key_Z, CTRL)


def add_across(me: Learner) -> None:
    me.tensor()
    me.done(1)
    me.tensor(device="vgpu:0")
    me.done(2)
    me.point(*me.state.objects)
    me.press(Key.Key_Plus)
    me.done(3)
    me.offer()


def type_(me: Learner) -> None:
    me.tensor(device="cpu")
    me.done(1)
    me.point(me.newest())
    me.context("Ask", "What is its type()?")
    me.done(2)
    me.menu(me.window.toolbar.buttons["move"], "vgpu:0")
    me.done(3)
    me.context("Ask", "What is its type()?")


def timing(me: Learner) -> None:
    me.experiment("Timing")


def crossover(me: Learner) -> None:
    me.window.bottom_dock.page("experiments").crossover.largest.choose(256)
    me.experiment("Crossover")


def move_model(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    me.press(Key.Key_1, CTRL)
    me.done(2)
    me.press(Key.Key_0, CTRL)


def wrong_device(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    me.press(Key.Key_1, CTRL)
    me.done(2)
    me.tensor(fill="rand:", shape="2x20", device="cpu")
    me.done(3)
    both = ("mlp", me.newest())
    me.point(*both)
    me.press(Key.Key_F)
    me.done(4)
    me.offer()


def blocks(me: Learner) -> None:
    me.build_model("nested")
    me.done(1)
    me.build_model("list-pitfall")
    me.done(2)
    me.point("list-pitfall")
    me.press(Key.Key_1, CTRL)


def module_list(me: Learner) -> None:
    me.build_model("module-list")
    me.done(1)
    me.point("module-list:layers")
    me.press(Key.Key_F)
    me.done(2)
    me.point("module-list")
    me.press(Key.Key_F)


def names(me: Learner) -> None:
    me.build_model("nested")
    me.done(1)
    me.point("nested:0.block 2.0.weight")
    me.press(Key.Key_V)


def lazy(me: Learner) -> None:
    me.build_model("lazy-mlp")
    me.done(1)
    me.point("lazy-mlp")
    me.press(Key.Key_1, CTRL)
    me.done(2)
    me.press(Key.Key_F)


def custom_layers(me: Learner) -> None:
    me.build_model("custom-layers")
    me.done(1)
    me.point("custom-layers")
    me.press(Key.Key_F)


def vgg(me: Learner) -> None:
    me.build_model("vgg16-bn")
    me.done(1)
    me.point("vgg16-bn")
    me.press(Key.Key_1, CTRL)


def read_parameters(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp:2.weight")
    me.press(Key.Key_V)


def initialise(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp:0.weight")
    for steps, rule in ((2, "Xavier"), (3, "piecewise")):
        me.press(Key.Key_I)
        dialog = me.dialog(InitialiseDialog)
        me.pick(dialog.rule, rule)
        me.click(dialog.accept_button)
        me.done(steps)
    me.press(Key.Key_E)
    edit = me.dialog(EditElementDialog)
    me.write(edit.value, "42")
    me.take(edit.findChildren(QPushButton), "Set")


def tied(me: Learner) -> None:
    me.build_model("module-list")
    me.done(1)
    me.point("module-list:layers.0.weight", "module-list:layers.1.weight")
    me.context("Parameters", "Tie")
    me.done(2)
    me.point("module-list")
    me.press(Key.Key_F, SHIFT)
    me.done(3)
    me.press(Key.Key_1, CTRL)


def data_in_forward(me: Learner) -> None:
    me.build_model("data-pitfall")
    me.done(1)
    me.point("data-pitfall")
    me.press(Key.Key_F, SHIFT)


def doctor(me: Learner) -> None:
    me.build_model("noise-pitfall")
    me.done(1)
    me.point("noise-pitfall")
    me.press(Key.Key_1, CTRL)
    me.done(2)
    me.press(Key.Key_F)
    me.done(3)
    me.press(Key.Key_C)
    me.done(4)
    me.page("Doctor")
    found = me.state.diagnoses["noise-pitfall"].problems[0]
    me.page("Learn")
    me.reply(f"line {found.line}")


def save_load(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    path = me.save("safetensors", "mlp.safetensors")
    me.done(2)
    dialog = me.load(path)
    me.pick(dialog.device, "vgpu:0")
    me.click_row(dialog.table, 1)
    me.click(dialog.accept_button)


def whole_model(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    path = me.save(".pt: a whole", "whole.pt")
    me.done(2)
    dialog = me.load(path)
    assert not dialog.accept_button.isEnabled()
    me.click(dialog.cancel_button)


def split_by_hand(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp:0")
    me.press(Key.Key_1, CTRL)
    me.done(2)
    me.point("mlp:2")
    me.press(Key.Key_2, CTRL)
    me.done(3)
    me.point("mlp")
    me.press(Key.Key_F)
    me.done(4)
    me.offer("Insert hops")


def replicate(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    me.experiment("Replicate")


def scaling(me: Learner) -> None:
    panel = me.window.bottom_dock.page("benchmark")
    me.page("Benchmark")
    me.click(panel.rail.choices["scaling"])
    me.click(panel.pages["scaling"].start_button)


DOINGS: dict[str, Callable[[Learner], None]] = {
    one.id: globals()[{"type": "type_"}.get(one.id, one.id.replace("-", "_"))] for one in EXERCISES
}


def do(me: Learner, exercise_id: str) -> None:
    """Do the exercise and check that it is marked as done, in the list too."""
    me.begin(exercise_id)
    me.longest = 0
    DOINGS[exercise_id](me)
    course = me.panel.course
    me.done(len(course.exercise.steps))
    assert course.finished
    assert exercise_id in me.window.context.settings.learned
    assert next(row for row in me.panel.table.rows if row.key == exercise_id).cells[0].text == "✓"
    assert me.longest <= MOST_CLICKS
