"""The machines of the window are checked together on the page Fleet: from the button to the verdict, over their own
links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hosts import SilentEngine
from fakes.look_records import VGPU
from fakes.two_machines import TwoMachines
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog

from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.records import (
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchReady,
    BenchStarted,
    DeviceInfo,
    EngineDevices,
    Event,
    JobEnded,
    StartBenchmark,
)
from devexplorer.gui.fleet.dialogs import CheckDialog
from devexplorer.gui.fleet.page import FleetPage
from devexplorer.gui.fleet.room import FleetRoom, room_of

LEFT = Qt.MouseButton.LeftButton
CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU")
CARDS = tuple(replace(VGPU, id=f"vgpu:{index}") for index in range(2))


class Desk:
    """This machine and forge, with two cards each, on the page Fleet."""

    def __init__(self, two: TwoMachines) -> None:
        self.two = two
        two.go_live()
        assert two.engine is not None
        self.here, self.far = two.engine, two.host.engine
        two.add()
        two.app.session.put(EngineDevices(devices=(CPU, *CARDS)))  # type: ignore[union-attr]
        two.host.say(EngineDevices(devices=(CPU, *CARDS)))
        context = two.window.context
        context.show_tab("fleet")
        self.room: FleetRoom = room_of(context)
        self.page: FleetPage = two.window.bottom_dock.page("fleet")
        two.until(lambda: len(self.room.fleet.measured) == 4)

    def press_check(self) -> CheckDialog:
        self.two.until(self.page.check_button.isEnabled)
        QTest.mouseClick(self.page.check_button, LEFT)
        self.two.until(lambda: [one for one in self.two.window.findChildren(QDialog) if one.isVisible()])
        return next(one for one in self.two.window.findChildren(CheckDialog) if one.isVisible())

    def check(self) -> None:
        dialog = self.press_check()
        for kind, box in dialog.kinds.items():
            box.setChecked(kind is MeasuredKind.MATMUL)
        QTest.mouseClick(dialog.accept_button, LEFT)

    def runs(self, engine: SilentEngine) -> dict[str, int]:
        """The run on each device."""
        return {sent.spec.device: sent.request for sent in engine.sent if isinstance(sent, StartBenchmark)}

    def say(self, engine: SilentEngine, *events: Event) -> None:
        if engine is self.far:
            self.two.host.say(*events)
        else:
            for event in events:
                engine.put(event)


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    two = TwoMachines(qapp, tmp_path)
    yield Desk(two)
    two.end()


def test_all_cards_of_the_window_are_measured_at_one_moment_and_the_slow_one_is_named(desk: Desk) -> None:
    desk.check()
    engines = (desk.here, desk.far)
    desk.two.until(lambda: all(len(desk.runs(engine)) == 2 for engine in engines))
    assert desk.page.cancel_button.isVisible()
    begun = [0, 0]

    def count() -> list[int]:
        begun[:] = [sum(isinstance(sent, BeginBenchmark) for sent in engine.sent) for engine in engines]
        return begun

    desk.say(desk.here, *(BenchReady(run=run) for run in desk.runs(desk.here).values()))
    beats = iter(range(5))
    desk.two.until(lambda: next(beats, None) is None)
    assert count() == [0, 0], "forge is not ready yet"
    desk.say(desk.far, *(BenchReady(run=run) for run in desk.runs(desk.far).values()))
    desk.two.until(lambda: count() == [2, 2])
    now = desk.two.host.now
    for engine in engines:
        for device, run in desk.runs(engine).items():
            rate = 40.0 if (engine, device) == (desk.far, "vgpu:1") else 50.0
            points = [
                BenchPoint(
                    run=run, device=device, time_unix_s=now, tflops=rate + 0.01 * number, seconds=0.25, simulated=True
                )
                for number in range(20)
            ]
            ended = BenchEnded(run=run, time_unix_s=now, result=None)
            over = JobEnded(request=run, ok=True, time_unix_s=now)
            desk.say(engine, BenchStarted(run=run, time_unix_s=now), *points, ended, over)
    desk.two.until(lambda: desk.room.fleet.report)
    assert desk.page.message.text().startswith("1 of 4 simulated cards is slow: forge/vgpu:1 at 80.")
    session = desk.two.app.session
    assert session is not None
    assert session.on_drained is None


def test_a_machine_that_is_not_connected_is_left_out_and_the_dialog_says_why(desk: Desk) -> None:
    desk.two.route.refuse = OSError("the network is gone")
    desk.two.route.link.cut()
    desk.two.until(lambda: desk.room.fleet.left_out)
    dialog = desk.press_check()
    assert "Measures 2 cards (simulated)" in dialog.words.text()
    assert "Left out: forge (it is not connected" in dialog.words.text()
    dialog.reject()
