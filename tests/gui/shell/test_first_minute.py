"""What an empty window offers; the guided path is walked by the controls that it points at, and can be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hands import LEFT
from fakes.learner import SELDOM_S, Learner
from fakes.look_records import CPU, ENGINE, VGPU, mlp
from fakes.quiet_window import QuietWindow
from fakes.window import open_window
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QRect, QSize, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QTabBar, QWidget

from devexplorer.core.feature import features
from devexplorer.core.records import (
    DeviceInfo,
    DeviceSample,
    Event,
    JobEnded,
    JobStarted,
    Move,
    Moved,
    MoveReport,
    ObjectChanged,
    Remove,
)
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.objects.panel import GUIDED
from devexplorer.gui.shell.guide import MOVE, Guide, GuideStep

pytestmark = pytest.mark.usefixtures("warm_processes")

NET = """from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3))
"""
BROKEN = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)

    def forward(self, x):
        return self.first(x) + torch.ones(3)
"""
CARD = DeviceInfo(id="nvml:0", kind="nvml", name="NVIDIA A10", memory_total_bytes=24 << 30)


class Newcomer(Learner):
    """Does what the callout says."""

    @property
    def guide(self) -> Guide:
        return self.window.guide

    def begin_way(self, name: str) -> None:
        self.click(self.window.objects.empty.buttons[name])
        assert self.guide.callout.isVisible()

    def do(self, choose: str = "") -> None:
        """The step that is pointed at, by a click on its control; wait for the next one."""
        step, control = self.guide.step, self.guide.control
        assert step is not None
        assert control is not None, step.words
        self.check_pointing(control)
        if step.done is None:
            self.click(self.guide.callout.next_button)
        elif step.line:
            assert isinstance(control, QPushButton)
            self.menu(control, choose)
        elif isinstance(control, QTabBar):
            QTest.mouseClick(control, LEFT, pos=self.ringed(control).center())
        else:
            self.click(control)
        self.until(lambda: self.guide.step is not step, f"after “{step.words}”")

    def ringed(self, control: QWidget) -> QRect:
        """What is inside the ring, in the control."""
        ring = self.guide._ring.geometry().marginsRemoved(self.guide._ring.contentsMargins())
        return QRect(control.mapFrom(self.window, ring.topLeft()), ring.size())

    def check_pointing(self, control: QWidget) -> None:
        """The ring is round the control, and the callout in the window, beside what it points at, also in small
        windows."""
        before = self.window.size()
        for size in (QSize(1000, 650), QSize(1366, 740), before):
            self.window.resize(size)
            self.heartbeat.tick()
            self.check_place(control)

    def check_place(self, control: QWidget) -> None:
        callout, ring = self.guide.callout.geometry(), self.guide._ring.geometry()
        gap = callout.adjusted(8, 8, -8, -8)
        dx = max(ring.left() - gap.right(), gap.left() - ring.right(), 0)
        dy = max(ring.top() - gap.bottom(), gap.top() - ring.bottom(), 0)
        assert max(dx, dy) < 150, "it is near, and covers at most a button that is not wanted now"
        assert self.window.rect().contains(callout)
        assert ring.intersects(QRect(control.mapTo(self.window, QPoint()), control.size()))
        assert not callout.intersects(ring.adjusted(6, 6, -6, -6))
        step, path = self.guide.step, self.guide.path
        assert path is not None
        assert step is not None
        following = next((one for one in path.steps[path.steps.index(step) + 1 :] if one.done), None)
        wanted = None if following is None else following.control(self.window)
        items = tuple(self.window.devices.items.values())
        for widget in (*items, *([wanted] if isinstance(wanted, QPushButton) else ())):
            if widget.isVisible() and widget is not control:
                there = QRect(widget.mapTo(self.window, QPoint()), widget.size())
                assert not callout.intersects(there), (step.words, self.window.size(), widget)
        tree, row = self.window.objects.tree.viewport(), self.window.objects.current_row()
        if "drag the model" in step.words:
            assert not row.isEmpty()
            assert not callout.intersects(row.translated(tree.mapTo(self.window, QPoint()))), self.window.size()
        words = self.guide.callout.words
        assert words.height() >= words.heightForWidth(words.width()), "all of it can be read"

    def on_step(self, step: GuideStep, what: str = "") -> None:
        self.until(lambda: self.guide.step is step, what or step.words)


@pytest.fixture
def me(qapp: QApplication, tmp_path: Path) -> Iterator[Newcomer]:
    me = open_window(qapp, tmp_path / "settings", None, Newcomer, SELDOM_S)
    yield me.ready()
    me.end()


def test_a_model_is_moved_and_measured_by_the_controls_that_are_pointed_at(me: Newcomer) -> None:
    me.window.resize(1440, 900)
    me.begin_way(GUIDED)
    me.do()  # two virtual GPUs
    assert len(me.state.usable_devices) == 3
    me.do("mlp")
    me.do("vgpu:1")
    assert me.where("mlp") == {"vgpu:1"}
    assert "A line marks the move." in me.guide.callout.words.text()
    me.do()
    me.do()  # the form
    me.do()  # start
    assert me.state.runs
    me.do()
    assert me.guide.callout.next_button.text() == "Done"
    me.click(me.guide.callout.next_button)
    assert me.guide.path is None
    assert not me.window.banner.isVisible(), "it was not left half-way"
    assert not me.guide.callout.isVisible()
    assert not me.guide._ring.isVisible()
    me.click(me.window.bottom_dock.page("benchmark").page.stop_button)
    me.until(lambda: not me.state.active_runs and not me.state.jobs, "stopped")


def moved(request: int, time_unix_s: float, size: int) -> list[Event]:
    """The events of a move to the virtual GPU that took half a second."""
    report = MoveReport(
        objects=("mlp",), source=("cpu",), destination="vgpu:0", dtype=None, parameters=4, buffers=0, gradients=0,
        tensors=0, bytes=size, seconds=0.5, wall_seconds=0.5, gb_per_s=1.0, simulated=True,
    )  # fmt: skip
    move = Move(targets=("mlp",), device="vgpu:0")
    return [
        JobStarted(request=request, title="move", time_unix_s=time_unix_s - 0.5, command=move),
        Moved(request=request, report=report, time_unix_s=time_unix_s),
        JobEnded(request=request, ok=True, time_unix_s=time_unix_s),
    ]


def test_what_a_move_did_to_the_memory_is_said_as_measured(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path, VGPU)
    words, now = quiet.window.guide.callout.words, quiet.now

    def use(first_s: float, last_s: float, used: int) -> None:
        for tenth in range(int(first_s * 10), int(last_s * 10)):
            quiet.state.apply(
                DeviceSample(device="vgpu:0", time_unix_s=now + tenth / 10, memory_used_bytes=used, simulated=True)
            )

    use(0, 2, 100 << 20)
    quiet.tell(ObjectChanged(snapshot=mlp(device="vgpu:0")))
    quiet.tell(*moved(7, now + 2.5, 500 << 20))
    quiet.window.begin(GUIDED)
    quiet.tell()
    assert words.text().startswith("A line marks the move. The first use of a GPU"), "not measured yet"
    use(2.5, 4, 1000 << 20)
    quiet.tell()
    assert "The memory of vgpu:0 rose by 900.00 MiB: the model has 500.00 MiB." in words.text()
    quiet.tell(*moved(8, now + 5, 500 << 20))
    use(4, 6, 1000 << 20)
    quiet.tell()
    assert "The memory of vgpu:0 did not rise: the model has 500.00 MiB." in words.text(), "it was cached"
    quiet.close()


def test_the_menu_has_the_line_marked_that_is_to_be_chosen(me: Newcomer) -> None:
    me.begin_way(GUIDED)
    me.do()
    menu = me.window.toolbar.buttons["build"].menu()
    menu.popup(me.window.mapToGlobal(QPoint(80, 40)))
    me.until(lambda: menu.activeAction() is not None, "marked")
    assert menu.activeAction().text().startswith("vgg16-bn")
    place = QRect(me.window.mapFromGlobal(menu.pos()), menu.size())
    assert not me.guide.callout.geometry().intersects(place)
    menu.close()


@pytest.mark.parametrize("by", ["Escape", "button"])
def test_a_path_can_be_left_in_the_middle_and_the_window_stays_as_it_is(me: Newcomer, by: str) -> None:
    me.begin_way(GUIDED)
    me.do()
    me.do("mlp")
    if by == "Escape":
        me.focus_tree()
        QTest.keyClick(me.window, Qt.Key.Key_Escape)
    else:
        me.click(me.guide.callout.leave_button)
    assert me.guide.path is None
    assert not me.guide.callout.isVisible()
    assert not me.guide._ring.isVisible()
    assert "“First steps: Move a model”" in me.window.banner.words.full_text
    me.heartbeat.tick()
    assert not me.guide.callout.isVisible()
    assert list(me.state.objects) == ["mlp"]
    assert me.where("mlp") == {"cpu"}
    assert len(me.state.usable_devices) == 3


def test_what_is_taken_away_is_asked_for_again_and_another_layout_is_pointed_back_from(me: Newcomer) -> None:
    _add, build, _select, move, look, *_ = MOVE.steps
    me.begin_way(GUIDED)
    me.do()
    me.do("mlp")
    me.on_step(move)
    me.session.send(Remove(names=("mlp",)))
    me.on_step(build, "the model is gone, so it is built again")
    me.do("lenet")
    me.do("vgpu:1")
    me.on_step(look)
    QTest.mouseClick(me.window.rail.buttons["monitor"], LEFT)
    me.until(lambda: me.guide.control is me.window.rail.buttons["explore"], "the way back")
    assert me.guide.callout.words.text() == "Go back to “Explore”."
    me.click(me.window.rail.buttons["explore"])
    me.until(lambda: me.guide.control is me.window.memory, "the plot")


def test_who_goes_ahead_is_not_called_back_and_enter_goes_on(me: Newcomer) -> None:
    *_, look, form, start, throughput, _end = MOVE.steps
    me.begin_way(GUIDED)
    me.do()
    me.do("mlp")
    me.do("vgpu:1")
    assert me.guide.step is look
    me.click(me.window.toolbar.buttons["benchmark"])
    me.on_step(start, f"“{form.words}” was done without being asked for")
    me.do()
    me.on_step(throughput)
    me.until(me.guide.callout.next_button.hasFocus, "the keyboard is there")
    QTest.keyClick(me.guide.callout.next_button, Qt.Key.Key_Return)
    assert me.guide.callout.next_button.text() == "Done"
    me.click(me.window.bottom_dock.page("benchmark").page.stop_button)
    me.until(lambda: not me.state.active_runs and not me.state.jobs, "stopped")


def test_what_is_here_already_is_skipped_and_the_palette_has_the_path(me: Newcomer) -> None:
    me.click(me.window.devices.offer_button)
    me.until(lambda: len(me.state.usable_devices) == 3, "two GPUs")
    me.build_model("mlp")
    me.palette("First steps: Move")
    assert me.guide.step is MOVE.steps[3]


def test_escape_first_brings_back_the_panels_that_gave_way(me: Newcomer) -> None:
    me.begin_way(GUIDED)
    me.window.workbench.room.enlarge(me.window.memory)
    me.heartbeat.tick()
    me.window.activateWindow()
    QTest.keyClick(me.window, Qt.Key.Key_Escape)
    assert me.window.workbench.room.enlarged is None
    assert me.guide.path is not None
    me.heartbeat.tick()
    QTest.keyClick(me.window, Qt.Key.Key_Escape)
    assert me.guide.path is None


@pytest.mark.parametrize(("size", "theme"), [((1000, 650), "dark"), ((1440, 900), "light")])
def test_no_word_of_the_empty_window_is_cut_off(
    qapp: QApplication, tmp_path: Path, size: tuple[int, int], theme: str
) -> None:
    quiet = QuietWindow(qapp, tmp_path, CARD, size=size)
    if theme == "light":
        quiet.window.change_theme()
    quiet.settle()
    empty = quiet.window.objects.empty
    assert empty.isVisible()
    below = 0
    for part in (empty.sentence, *(button for name, button in empty.buttons.items() if name != GUIDED)):
        assert part.width() >= part.minimumSizeHint().width()
        assert part.height() >= part.minimumSizeHint().height()
        assert not part.geometry().intersects(empty.buttons[GUIDED].geometry())
        top = part.mapTo(empty, QPoint()).y()
        assert top >= below, "nothing lies on something else"
        below = top + part.height()
    assert below <= empty.height()
    assert CPU.id in quiet.state.devices
    quiet.close()


def test_the_ways_in_lead_to_the_samples_the_dialog_and_monitor(me: Newcomer) -> None:
    buttons = me.window.objects.empty.buttons
    menu = me.window.toolbar.buttons["build"].menu()
    QTimer.singleShot(0, menu.close)
    opened = []
    menu.aboutToShow.connect(lambda: opened.append("samples"))
    me.click(buttons["build"])
    assert opened == ["samples"]
    if "files" in features():
        me.click(buttons["open"])
        QTest.keyClick(me.dialog(FormDialog), Qt.Key.Key_Escape)
    me.click(buttons["watch"])
    assert me.window.workbench.layout_shown.name == "monitor"


def test_a_recording_ends_the_path(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path, CARD)
    QTest.mouseClick(quiet.window.objects.empty.buttons[GUIDED], LEFT)
    assert quiet.window.guide.path is not None
    quiet.state.recording = "run.devrec"
    quiet.tell()
    assert quiet.window.guide.path is None
    assert not any(button.isVisible() for button in quiet.window.objects.empty.buttons.values())
    quiet.close()


def test_where_nothing_can_move_no_move_is_shown(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path)
    guided = quiet.window.objects.empty.buttons[GUIDED]
    assert guided.isVisible()
    quiet.tell(replace(ENGINE, virtual_unavailable="virtual GPUs need torch 2.10 or newer"))
    assert not guided.isVisible()
    quiet.close()
