"""A recording in the real window: open it, slide, look at cards and plots, play, and back to this machine, which was
monitored meanwhile."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import recordings
from fakes.nvml import FakeNvml
from fakes.recordings import START_UNIX_S
from fakes.shown_plots import curve_data, marker_labels
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.recording.format import FrameKind, end_frame, entries_frame
from devexplorer.core.records import Command, DeviceSample, EngineReady, Event, Log
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.devices.card_text import card_texts
from devexplorer.gui.recording.actions import replaying_of
from devexplorer.gui.shell.app import App
from devexplorer.gui.shell.main import main

DEADLINE_S = 30.0


class SilentEngine:
    """Says that it is ready, and nothing more: this is about what is watched."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self.put = put
        self.sent: list[Command] = []

    def start(self) -> None:
        self.put(
            EngineReady(
                pid=1, python_version="3", torch_version="2.13", cuda_version=None, cuda_available=False,
                cuda_device_count=0,
                cuda_visible_devices=None, threads=2, virtual_unavailable=None, recipes={"mlp": "a small model"},
            )
        )  # fmt: skip

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def kill(self) -> None:
        return

    def close(self) -> None:
        return

    def join(self, deadline_s: float) -> bool:
        return True

    def beat(self) -> None:
        pass


class Driver:
    """The window, beaten by hand."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        self.app = App(qapp, SettingsFile(folder))
        self.window, self.state = self.app.window, self.app.state
        self.bar = replaying_of(self.window.context).bar
        self.app.show()
        self.engine: SilentEngine | None = None
        self.app.shown.go_live = self.go_live

    def go_live(self) -> None:
        def engine(put: Callable[[Event], None], *_: object) -> SilentEngine:
            self.engine = SilentEngine(put)
            return self.engine

        session = Session(make_engine=engine, nvml=Nvml(FakeNvml()))
        self.app.connect(session).stop()
        self.until(lambda: self.state.engine is not None and self.state.devices, "this machine is known")

    def open(self, path: Path) -> None:
        replaying_of(self.window.context).open(path)
        assert self.app.heartbeat is not None
        self.app.heartbeat.stop()

    def beat(self) -> None:
        assert self.app.heartbeat is not None
        QApplication.processEvents()
        self.app.heartbeat.tick()

    def until(self, happened: Callable[[], object], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < end, f"did not happen: {what}"
            self.beat()
            time.sleep(0.002)
        self.beat()

    def ready(self) -> None:
        replay = replaying_of(self.window.context).replay
        assert replay is not None
        self.until(
            lambda: replay.view.opened and not replay.view.seeking and replay.view.progress == 1,
            "the recording is wound",
        )

    def slide_to(self, at_s: float) -> None:
        """Click into the slider where that moment is."""
        slider = self.bar.slider
        room = slider.width() - 20
        at = 10 + round(at_s * 1000 / self.view.length_ms * room)
        QTest.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(at, slider.height() // 2))
        self.ready()

    @property
    def view(self):  # type: ignore[no-untyped-def]
        assert replaying_of(self.window.context).replay is not None
        return replaying_of(self.window.context).replay.view


@pytest.fixture
def driver(qapp: QApplication, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(qapp, tmp_path)
    yield driver
    driver.app.stop()


@pytest.fixture
def forge(tmp_path: Path) -> Path:
    return recordings.write(tmp_path / "forge.devx", 120)


def test_recordings_that_were_left_are_let_go(driver: Driver, forge: Path) -> None:
    driver.go_live()
    left = []
    for _ in range(3):
        driver.open(forge)
        driver.ready()
        left.append(weakref.ref(replaying_of(driver.window.context).replay))
        replay = replaying_of(driver.window.context).replay
        driver.app.shown.back()
        assert replay is not None
        assert replay.close(DEADLINE_S)
        del replay
        driver.beat()
    driver.open(forge)
    driver.ready()
    driver.app.shown.back()
    gc.collect()
    assert [one() for one in left] == [None] * 3, "each may hold hundreds of megabytes"


def test_a_recording_is_opened_slid_and_left(driver: Driver, forge: Path) -> None:
    driver.go_live()
    here = set(driver.state.devices)
    assert not driver.bar.isVisible()
    driver.open(forge)
    driver.ready()
    assert driver.bar.isVisible()
    assert driver.bar.title.full_text.startswith("Recording of forge, 2023-11-1")
    assert list(driver.window.devices.items) == ["cpu", "cuda:0", "cuda:1"]
    assert driver.window.inspector.answer is driver.state.answer
    QTest.mouseClick(driver.bar.play, Qt.MouseButton.LeftButton)
    assert not driver.view.playing
    assert "now" not in [text for _, text in driver.window.axis.ticks(600.0)], "it is of 2023"

    for at_s in (100, 25, 60):
        driver.slide_to(at_s)
        at_ms = driver.view.position_ms
        assert at_ms == pytest.approx(at_s * 1000, abs=1500)
        used = recordings.used_at("cuda:1", at_ms / 1000)
        assert driver.state.devices["cuda:1"].used_bytes == used
        assert card_texts(driver.state.devices["cuda:1"]).used in driver.window.devices.items["cuda:1"].spoken()
        times, values = curve_data(driver.window.memory.plot, "cuda:1")[:2]
        shown = times <= START_UNIX_S + at_ms / 1000
        assert driver.window.axis.now_unix_s == pytest.approx(START_UNIX_S + at_ms / 1000)
        assert values[shown][-1] == used
        assert np.all(shown), "the plot ends at this moment"

    QTest.mouseClick(driver.bar.back, Qt.MouseButton.LeftButton)
    driver.beat()
    assert not driver.bar.isVisible()
    assert set(driver.state.devices) == here
    assert driver.state.recording is None
    assert set(driver.window.devices.items) == here
    assert driver.window.axis.now_unix_s == pytest.approx(time.time(), abs=DEADLINE_S)
    assert "now" in [text for _, text in driver.window.axis.ticks(600.0)]


def test_this_machine_is_watched_while_a_recording_is_on_show(driver: Driver, forge: Path) -> None:
    driver.go_live()
    driver.open(forge)
    driver.ready()
    before = len(driver.app.shown.here.aside.devices["cpu"].history)
    driver.until(lambda: len(driver.app.shown.here.aside.devices["cpu"].history) > before, "a reading of this machine")
    assert "cuda:1" in driver.state.devices
    driver.app.shown.back()
    assert len(driver.state.devices["cpu"].history) > before


def test_markers_runs_and_log_are_those_of_the_moment(driver: Driver, forge: Path) -> None:
    driver.window.workbench.show_layout("measure")
    driver.open(forge)
    driver.ready()
    replay = replaying_of(driver.window.context).replay
    assert replay is not None
    replay.pause()
    for at_s, markers, lines in ((50, 2, 1), (5, 0, 0), (25, 2, 0)):
        replay.seek(at_s * 1000)
        driver.ready()
        assert len(marker_labels(driver.window.memory.plot)) == markers
        assert driver.window.bottom_dock.page("log").text.toPlainText().count("a card was lost") == lines
    assert curve_data(driver.window.throughput.plot, "cuda:0")[1][-1] == 2.0
    assert not driver.window.throughput.plot.is_empty


def test_it_plays_by_itself_and_faster(driver: Driver, forge: Path) -> None:
    driver.open(forge)
    driver.ready()
    QTest.mouseClick(driver.bar.speeds[60], Qt.MouseButton.LeftButton)
    driver.until(lambda: driver.view.position_ms > 10_000, "it plays")
    assert driver.bar.speeds[60].isChecked()
    assert driver.bar.slider.value() == driver.view.position_ms // 100
    driver.until(lambda: not driver.view.playing, "it came to the end")
    assert driver.view.position_ms == 120_000
    assert driver.bar.play.accessibleName() == "Play"


def test_keys_wind_it(driver: Driver, forge: Path) -> None:
    driver.open(forge)
    driver.ready()
    driver.window.activateWindow()
    driver.until(driver.window.isActiveWindow, "active")
    driver.bar.play.setFocus()
    QTest.keyClick(driver.bar.play, Qt.Key.Key_Space)
    assert not driver.view.playing
    assert not driver.window.axis.paused, "Space went to the button alone"
    driver.bar.slider.setFocus()
    QTest.keyClick(driver.bar.slider, Qt.Key.Key_End)
    driver.ready()
    assert driver.view.position_ms == 120_000
    QTest.keyClick(driver.bar.slider, Qt.Key.Key_Left)
    driver.ready()
    assert driver.view.position_ms == 119_000
    QTest.keyClick(driver.bar.slider, Qt.Key.Key_PageDown)
    driver.ready()
    assert driver.view.position_ms == 113_000
    QTest.keyClick(driver.bar.slider, Qt.Key.Key_Home)
    driver.ready()
    assert driver.view.position_ms == 0


def test_nothing_can_be_changed_and_every_action_says_why(driver: Driver, forge: Path) -> None:
    driver.go_live()
    driver.open(forge)
    driver.ready()
    assert not driver.window.actions_by_id["new_tensor"].isEnabled()
    why = "This is a recording: nothing in it can be changed."
    assert driver.window.actions_by_id["new_tensor"].toolTip() == why
    window = driver.window
    for button in (
        window.toolbar.buttons["build"],
        window.devices.add_button,
        window.bottom_dock.page("benchmark").matmul.start_button,
    ):
        assert (button.isEnabled(), button.toolTip()) == (False, why), button.text()
    assert not window.devices.offer.isVisible()
    driver.app.controller.build("mlp")
    driver.window.context.restart_requested.emit()
    driver.beat()
    assert driver.window.inspector.answer is not None
    assert driver.window.inspector.answer.title == "A recording cannot be changed"
    assert driver.engine is not None
    assert driver.engine.sent == []
    assert "recording of forge" in driver.window.status.engine.text()


def test_a_window_opened_on_a_recording_needs_nothing_of_this_machine(driver: Driver, forge: Path) -> None:
    driver.open(forge)
    driver.ready()
    assert driver.engine is None
    replaying_of(driver.window.context).record(forge.with_name("other"))
    assert "go back to live first" in driver.window.banner.words.full_text
    QTest.mouseClick(driver.bar.back, Qt.MouseButton.LeftButton)
    assert driver.engine is not None
    driver.until(lambda: driver.state.engine is not None, "this machine")


def test_what_cannot_be_opened_leaves_everything_as_it_was(driver: Driver, forge: Path) -> None:
    driver.go_live()
    here = set(driver.state.devices)
    broken = forge.with_name("broken")
    broken.write_bytes(recordings.recording(3)[0] + bytes(500))
    driver.open(broken)
    driver.until(lambda: replaying_of(driver.window.context).replay is None, "it was given up")
    assert "without a single reading" in driver.window.banner.words.full_text
    assert set(driver.state.devices) == here
    assert not driver.bar.isVisible()


def test_alarms_of_a_moment_that_was_jumped_to_are_listed(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "held"
    entries = [
        (
            at * 500,
            DeviceSample(
                device="cuda:0",
                time_unix_s=START_UNIX_S + at / 2,
                throttle_reasons=("hardware thermal slowdown",) if at >= 60 else (),
            ),
        )
        for at in range(240)
    ]
    readings = [entries_frame(FrameKind.READINGS, [entry], START_UNIX_S + entry[0] / 1000) for entry in entries]
    path.write_bytes(b"".join([*recordings.recording(0)[:-1], *readings, end_frame(120_000, 1.0)]))
    driver.open(path)
    driver.ready()
    replaying_of(driver.window.context).replay.pause()  # type: ignore[union-attr]
    page = pytest.importorskip("devexplorer.gui.alerts.tab").TAB.show(driver.window.context)
    replaying_of(driver.window.context).replay.seek(60_000)  # type: ignore[union-attr]
    driver.ready()
    began = datetime.fromtimestamp(START_UNIX_S + 30)
    (row,) = [[cell.text for cell in row.cells] for row in page.table.rows]
    assert (row[1], row[3], row[6]) == ("cuda:0", "hardware thermal slowdown", f"{began:%H:%M:%S}")
    replaying_of(driver.window.context).replay.seek(10_000)  # type: ignore[union-attr]
    driver.ready()
    assert page.nothing.isVisible()
    assert "at this moment of the recording" in page.nothing.text()


def test_another_recording_takes_its_place(driver: Driver, forge: Path) -> None:
    driver.go_live()
    here = set(driver.state.devices)
    driver.open(forge)
    driver.ready()
    other = forge.with_name("other")
    pieces = recordings.recording(30, devices=(recordings.CPU, recordings.CARDS[1]))
    other.write_bytes(b"".join(pieces[:-2]))
    driver.open(other)
    driver.ready()
    assert list(driver.state.devices) == ["cpu", "cuda:1"]
    assert driver.bar.incomplete.isVisible()
    assert "not closed properly" in driver.bar.incomplete.toolTip()
    driver.app.shown.back()
    assert set(driver.state.devices) == here


def test_what_is_recorded_here_can_be_opened_here(driver: Driver, tmp_path: Path) -> None:
    driver.go_live()
    path = tmp_path / "here.devx"
    replaying_of(driver.window.context).record(path)
    session = driver.app.session
    assert session is not None
    tee = session.listener("recording")
    assert tee.recording is not None
    driver.until(lambda: tee.recording is None or tee.recording.bytes_written > 3000, "something was recorded")
    session.put(Log(level="error", text="for the record", time_unix_s=time.time()))
    driver.beat()
    replaying_of(driver.window.context).record(path, overwrite=False)
    assert "exists already" in driver.window.banner.words.full_text
    assert tee.recording is not None, "the one that runs goes on"
    here = {name: device.info.name for name, device in driver.state.devices.items()}
    used: list[Path] = []
    driver.window.context.file_used.connect(lambda used_path, _here: used.append(used_path))
    replaying_of(driver.window.context).stop()
    assert tee.recording is None
    banner = driver.window.banner
    assert banner.words.full_text == "Recorded to here.devx."
    assert used == [path], "it is one of the recent files"
    driver.until(lambda: tee._ending[0].closed, "the file has its end")
    driver.window.axis.set_span(3600)
    QTest.mouseClick(banner.action_button, Qt.MouseButton.LeftButton)
    assert not banner.isVisible()
    driver.ready()
    assert driver.window.axis.span_s == 30, "as much as it has"
    replaying_of(driver.window.context).replay.seek(10**9)  # type: ignore[union-attr]
    driver.ready()
    assert {name: device.info.name for name, device in driver.state.devices.items()} == here
    assert all(device.sample is not None for device in driver.state.devices.values())
    assert [entry.text for entry in driver.state.log] == ["for the record"]
    driver.app.shown.back()
    assert driver.window.axis.span_s == 3600, "of this machine it is what it was"


def test_the_command_line_says_in_one_line_what_cannot_be_replayed(
    tmp_path: Path, forge: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("nothing")
    for arguments, words in (
        (["--replay", str(tmp_path / "absent")], "there is no file"),
        (["--replay", str(text)], "is no recording of DevExplorer"),
        (["--replay", str(forge), "devices"], "--replay opens the window; leave devices away, or --replay"),
    ):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(("seconds", "words"), [(7, "0:07"), (65, "1:05"), (3600 + 125, "1:02:05")])
def test_the_button_says_how_long_it_records(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, seconds: int, words: str
) -> None:
    recorder = SimpleNamespace(started_unix_s=100.0, bytes_written=3 << 20, path=Path("run.devrec"))
    tee = SimpleNamespace(recording=recorder)
    driver.window.context.session = SimpleNamespace(listener=lambda _: tee)  # type: ignore[assignment]
    monkeypatch.setattr("devexplorer.gui.recording.actions.time.time", lambda: 100.0 + seconds)
    button = replaying_of(driver.window.context).button
    driver.window.context.texts_due.emit()
    assert button.isVisible()
    assert button.text() == f"■ Stop recording  {words}  3.00 MiB"
    tee.recording = None
    driver.window.context.texts_due.emit()
    assert not button.isVisible()
    driver.window.context.session = None


def test_the_button_that_records_stops_it_in_the_same_place(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    context, window = driver.window.context, driver.window
    window.workbench.show_layout("monitor")
    button, beside = window.toolbar.buttons["record"], window.toolbar.buttons["page alerts"]
    QApplication.processEvents()
    places = button.geometry(), beside.geometry()
    assert button.text() == "Record…"
    recorder = SimpleNamespace(started_unix_s=100.0, bytes_written=None, path=Path("run.devrec"))
    tee = SimpleNamespace(recording=recorder, stop_recording=lambda: setattr(tee, "recording", None))
    context.session = SimpleNamespace(listener=lambda _: tee)  # type: ignore[assignment]
    offered: list[Path] = []
    monkeypatch.setattr(replaying_of(context), "offer", offered.append)
    context.texts_due.emit()
    QApplication.processEvents()
    window.actions_by_id["stop_recording"].setToolTip("said again")  # as each action changes by itself
    window.toolbar.adjustSize()
    QApplication.processEvents()
    assert (button.text(), button.accessibleName(), button.isEnabled()) == ("Stop", "Stop recording", True)
    assert (button.geometry(), beside.geometry()) == places
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert offered == [Path("run.devrec")]
    context.texts_due.emit()
    QApplication.processEvents()
    assert (button.text(), button.accessibleName(), button.isEnabled()) == ("Record…", "Record", True)
    assert (button.geometry(), beside.geometry()) == places
    context.session = None
