"""Every exercise of the Learn tab is done in the whole window, by the clicks and keys that its steps name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fakes.hands import CTRL, LEFT, SHIFT, Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QInputDialog, QSpinBox, QTableView

from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.records.messages import Remove
from devexplorer.gui.panels.edit_element import EditElementDialog
from devexplorer.gui.panels.initialise import InitialiseDialog
from devexplorer.gui.panels.learn import LearnPanel
from devexplorer.gui.panels.load_file import LoadFileDialog
from devexplorer.gui.panels.new_tensor import NewTensorDialog
from devexplorer.gui.panels.save_file import SaveFileDialog
from devexplorer.gui.panels.visible_devices import VisibleDevicesDialog

MOST_CLICKS = 3
Key = Qt.Key


class Learner(Hands):
    """Somebody who does what the present step says."""

    folder = Path()

    @property
    def panel(self) -> LearnPanel:
        return self.window.below.learn

    def look_at_it(self) -> None:
        """The page is in front, and shown."""
        self.window.below.show_page("learn")
        self.until(self.panel.isVisible, "shown")

    def begin(self, exercise_id: str) -> None:
        """Empty the workspace and click the exercise in the list."""
        if self.state.objects:
            self.session.send(Remove(names=tuple(self.state.objects)))
            self.until(lambda: not self.state.objects and not self.state.jobs, "emptied")
        self.look_at_it()
        table = self.panel.table
        at = next(number for number, row in enumerate(self.panel.model.rows) if row.key == exercise_id)
        self.heartbeat.tick()
        table.clearSelection()
        self.click_row(table, at)
        assert self.panel.course is not None
        assert self.panel.course.exercise.id == exercise_id

    def done(self, steps: int) -> None:
        """Wait until so many steps are done, and the panel says so."""
        course = self.panel.course
        assert course is not None
        self.until(lambda: course.at >= steps and not self.state.jobs, f"step {steps} of {course.exercise.id}")
        assert course.at == steps, "a step was taken for another one"

    def build_model(self, recipe: str) -> None:
        self.menu(self.window.toolbar.build, recipe)
        self.until(lambda: recipe in self.state.objects and not self.state.jobs, f"built {recipe}")

    def tensor(
        self, *, device: str = "", fill: str = "", shape: str = "", values: str = "", grad: bool = False, fall_back: bool = False
    ) -> None:
        """The dialog of the toolbar's Tensor."""
        count = len(self.state.objects)
        button = next(one for one in self.window.toolbar.findChildren(type(self.window.toolbar.build)) if one.text() == "Tensor")
        self.click(button)
        dialog = self.dialog(NewTensorDialog)
        if fill:
            self.pick(dialog.fill, fill)
        if shape:
            self.write(dialog.shape, shape)
        if values:
            self.write(dialog.values, values)
        if device:
            self.write(dialog.device, device)
        if grad:
            self.tick(dialog.requires_grad)
        if fall_back:
            assert not dialog.create_button.isEnabled(), "the dialog says that there is no such device"
            self.tick(dialog.fall_back)
        self.click(dialog.create_button)
        self.until(lambda: len(self.state.objects) > count and not self.state.jobs, "created")

    def reply(self, text: str) -> None:
        """Answer the question in the panel."""
        self.look_at_it()
        self.write(self.panel.answer, text)
        QTest.keyClick(self.panel.answer, Key.Key_Return)

    def offer(self, words: str = "") -> None:
        """Click the first offer in the inspector, or the one that begins so."""
        self.take(self.window.inspector.offers, words)

    def experiment(self, title: str) -> None:
        """The tab, the experiment, its button: three clicks."""
        panel = self.window.below.experiments
        self.page("Experiments")
        self.click(panel.rail.choices[title])
        assert panel.page.run_button.isEnabled(), panel.page.run_button.toolTip()
        self.click(panel.page.run_button)
        self._went(3)

    def save(self, form: str, name: str) -> Path:
        """Ctrl+S for what is selected."""
        self.press(Key.Key_S, CTRL)
        dialog = self.dialog(SaveFileDialog)
        self.pick(dialog.form_choice, form)
        self.write(dialog.file.edit, str(self.folder / name))
        self.click(dialog.accept_button)
        return self.folder / name

    def load(self, path: Path) -> LoadFileDialog:
        """File, Load tensors, the path; returns when the engine has looked into it."""
        self.menu(self.window.toolbar.open_button, "Load tensors…")
        dialog = self.dialog(LoadFileDialog)
        self.write(dialog.file.edit, str(path))
        self.until(lambda: dialog.model.rows or "look" not in dialog.message.text(), "looked into")
        return dialog

    def click_row(self, table: QTableView, row: int) -> None:
        index = table.model().index(row, 0)
        table.scrollTo(index)
        QTest.mouseClick(table.viewport(), LEFT, pos=table.visualRect(index).center())

    def newest(self) -> str:
        return list(self.state.objects)[-1]


def this_machine(me: Learner) -> None:
    me.reply("17")
    assert me.panel.wrong.isVisible()
    me.reply("3 devices")


def device_table(me: Learner) -> None:
    me.click(me.window.devices.items["vgpu:1"])
    me.page("Device")
    me.page("Learn")
    me.reply("15")


def visible_devices(me: Learner) -> None:
    me.palette("CUDA_VISIBLE")
    dialog = me.dialog(VisibleDevicesDialog)
    item = dialog.tree.topLevelItem(0)
    assert item is not None
    dialog.tree.setCurrentItem(item)
    QTest.keyClick(dialog.tree, Key.Key_Space)
    me.click(dialog.restart_button)
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
            me.reply("one")
            me.done(2)


def new_tensor(me: Learner) -> None:
    me.tensor(fill="ones")
    me.done(1)
    me.tensor(fill="the values", values="[[1, 2], [3, 4]]")
    me.done(2)
    me.tensor(fill="rand:", device="vgpu:0")


def move_tensor(me: Learner) -> None:
    me.tensor()
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.move_button, "vgpu:0")
    me.done(2)
    me.menu(me.window.toolbar.copy_button, "vgpu:1")


def already_there(me: Learner) -> None:
    me.tensor(device="vgpu:0")
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.move_button, "vgpu:0")


def requires_grad(me: Learner) -> None:
    me.tensor(grad=True)
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.move_button, "vgpu:0")
    me.done(2)
    me.tensor(device="vgpu:0")
    me.done(3)
    me.point(me.newest())
    me.lab("Parameters", "Unfreeze")


def numpy(me: Learner) -> None:
    me.tensor(device="vgpu:0")
    me.done(1)
    me.point(me.newest())
    me.lab("Ask", "Can it become a NumPy array?")
    me.done(2)
    me.offer()


def dtype(me: Learner) -> None:
    me.tensor(fill="randn")
    me.done(1)
    me.point(me.newest())
    me.menu(me.window.toolbar.cast_button, "float16")
    me.done(2)
    me.press(Key.Key_Z, CTRL)


def several(me: Learner) -> None:
    me.tensor()
    me.tensor()
    me.done(1)
    me.point(*me.state.objects)
    me.menu(me.window.toolbar.move_button, "vgpu:0")
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
    me.done(4)
    place = me.where(next(iter(me.state.objects)))
    me.point(*[name for name in me.state.objects if me.where(name) == place][:2])
    me.press(Key.Key_Plus)


def type_(me: Learner) -> None:
    me.tensor()
    me.done(1)
    me.point(me.newest())
    me.lab("Ask", "What is its type()?")
    me.done(2)
    me.menu(me.window.toolbar.move_button, "vgpu:0")
    me.done(3)
    me.lab("Ask", "What is its type()?")


def timing(me: Learner) -> None:
    me.experiment("Time work")


def crossover(me: Learner) -> None:
    me.window.below.experiments.crossover.largest.choose(256)
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
    me.tensor(fill="rand:", shape="2x20")
    me.done(3)
    both = ("mlp", me.newest())
    me.point(*both)
    me.press(Key.Key_F)
    me.done(4)
    me.offer()
    me.done(5)
    me.point(*both)
    me.press(Key.Key_F)


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
    me.take(edit.findChildren(type(dialog.accept_button)), "Set")


def tied(me: Learner) -> None:
    me.build_model("module-list")
    me.done(1)
    me.point("module-list:layers.0.weight", "module-list:layers.1.weight")
    me.lab("Parameters", "Tie")
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
    me.done(5)
    me.press(Key.Key_F)


def replicate(me: Learner) -> None:
    me.build_model("mlp")
    me.done(1)
    me.point("mlp")
    me.experiment("Replicate")


def scaling(me: Learner) -> None:
    panel = me.window.below.benchmark
    me.page("Benchmark")
    me.click(panel.choices["scaling"])
    me.click(panel.scaling.start_button)


ALONE = {one.id for one in EXERCISES if not one.two_devices}
DOINGS: dict[str, Callable[[Learner], None]] = {
    one.id: globals()[{"type": "type_"}.get(one.id, one.id.replace("-", "_"))] for one in EXERCISES
}


@pytest.fixture(scope="module")
def learner(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learner]:
    look, threads_before = (qapp.font(), qapp.palette(), qapp.styleSheet()), torch.get_num_threads()
    me = open_window(qapp, tmp_path_factory.mktemp("learner"), "2x Tesla T4", Learner).ready()
    me.folder = tmp_path_factory.mktemp("files")
    yield me
    me.end()
    me.window.close()
    torch.set_num_threads(threads_before)
    qapp.setFont(look[0])
    qapp.setPalette(look[1])
    qapp.setStyleSheet(look[2])


@pytest.mark.parametrize("exercise_id", [one.id for one in EXERCISES])
def test_it_is_done_as_its_steps_say(learner: Learner, exercise_id: str) -> None:
    learner.begin(exercise_id)
    learner.longest = 0
    DOINGS[exercise_id](learner)
    course = learner.panel.course
    assert course is not None
    learner.done(len(course.exercise.steps))
    assert course.finished
    assert exercise_id in learner.panel.learned
    assert learner.longest <= MOST_CLICKS
