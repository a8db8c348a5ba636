"""The window at 1000x650: every control is visible or scrollable, and the status bar with its buttons is always
visible."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from fakes.look_records import ENGINE
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLineEdit, QScrollArea, QWidget

from devexplorer.core.records import (
    DeviceInfo,
    EngineLost,
    JobProgress,
    JobStarted,
    ObjectChanged,
    ObjectSnapshot,
    Row,
    UndoState,
)
from devexplorer.gui.recording.actions import replaying_of
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.shell.main_window import TABS

SIZE = 1000, 650
CARDS = [
    DeviceInfo(
        id=f"vgpu:{at}",
        kind="virtual",
        name="NVIDIA RTX PRO 6000 Blackwell",
        memory_total_bytes=96 << 30,
        simulated=True,
    )
    for at in range(2)
]
ROW = Row(
    path="",
    name="m",
    kind="tensor",
    type="Tensor",
    depth=0,
    shape=(4, 4),
    dtype="float32",
    devices=("vgpu:0",),
    bytes=64,
)


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, *CARDS, size=SIZE)
    quiet.tell(
        ObjectChanged(
            snapshot=ObjectSnapshot(
                name="m",
                kind="tensor",
                type="Tensor",
                rows=(ROW,),
                bytes_by_device={"vgpu:0": 64},
                tensors_by_device={"vgpu:0": 1},
            )
        ),
        UndoState(title="the move of a-model-with-a-long-name to vgpu:1", kept_bytes=1 << 30),
    )
    yield quiet
    quiet.close()


def busy(quiet: QuietWindow) -> None:
    """Everything at the bottom speaks at once: a job with progress, a recording, versions, what Undo would do."""
    quiet.tell(
        JobStarted(request=1, title="moving a-model-with-a-long-name to vgpu:1", time_unix_s=1.0),
        JobProgress(request=1, done=0.5),
    )
    recorder = SimpleNamespace(started_unix_s=time.time(), bytes_written=123 << 20, path="/somewhere/run.devrec")
    tee = SimpleNamespace(recording=recorder)
    quiet.window.context.session = SimpleNamespace(listener=lambda _: tee, actions=())  # type: ignore[assignment]
    quiet.tell()


def unreachable(window: QWidget) -> list[str]:
    """Controls that are shown and are not wholly in the window, nor in something that scrolls to them."""
    lost = []
    for kind in (QAbstractButton, QLineEdit, QComboBox):
        for control in window.findChildren(kind):
            if not control.isVisible() or (not control.accessibleName() and not getattr(control, "text", str)()):
                continue
            shown, at = QRect(QPoint(0, 0), control.size()), control
            while at is not window:
                parent = at.parentWidget()
                if isinstance(parent, QScrollArea) or (
                    parent is not None and isinstance(parent.parentWidget(), QScrollArea)
                ):
                    break  # scrolls
                shown = shown.translated(at.pos())
                if parent is None or not parent.rect().contains(shown):
                    lost.append(f"{type(control).__name__} {control.accessibleName()}: {shown} in {parent}")
                    break
                at = parent
    return lost


def test_it_becomes_so_small_and_every_control_can_be_reached(quiet: QuietWindow) -> None:
    window = quiet.window
    busy(quiet)
    assert window.minimumSizeHint().width() <= SIZE[0]
    assert window.minimumSizeHint().height() <= SIZE[1]
    for page in (tab.name for tab in TABS):
        window.bottom_dock.show_page(page)
        quiet.settle()
        assert (window.width(), window.height()) == SIZE, f"{page} makes the window larger"
        assert unreachable(window) == [], page


def test_status_progress_and_record_are_always_in_the_window(quiet: QuietWindow) -> None:
    busy(quiet)
    for size in (SIZE, (1366, 700)):
        quiet.resize(*size)
        status = quiet.window.status
        for widget in (
            status.engine,
            status.job,
            status.progress,
            status.cancel,
            replaying_of(quiet.window.context).button,
        ):
            assert widget.isVisible()
            corner = widget.mapTo(quiet.window, widget.rect().bottomRight())
            assert quiet.window.rect().contains(corner)
            assert widget.width() >= widget.minimumSizeHint().width()
    quiet.resize(*SIZE)
    job = quiet.window.status.job
    assert job.text() == job.full_text or job.toolTip(), "what is cut short has a tooltip"


def test_tabs_change_nothing_else_in_the_window(quiet: QuietWindow) -> None:
    workbench, dock = quiet.window.workbench, quiet.window.bottom_dock
    for size in (SIZE, (1440, 900)):
        quiet.resize(*size)
        for layout in LAYOUTS:
            workbench.show_layout(layout.name)
            quiet.settle()
            before = dock.geometry()
            for page in (spec.name for spec in TABS if spec.layout in ("", layout.name) and spec.name != layout.name):
                dock.show_page(page)
                quiet.settle()
                assert workbench.layout_shown is layout
                assert dock.geometry() == before, page


def test_what_has_no_room_in_the_toolbar_is_in_its_menu_and_works(quiet: QuietWindow) -> None:
    toolbar = quiet.window.toolbar
    quiet.resize(1600, 900)
    assert toolbar.overflow == []
    assert not toolbar.more_button.isVisible()
    quiet.resize(*SIZE)
    names = [button.accessibleName() for button in toolbar.overflow]
    assert "dtype" in names
    assert toolbar.more_button.isVisible()
    quiet.resize(quiet.window.minimumSizeHint().width(), 650)
    assert toolbar.buttons["move"].isVisible()
    assert toolbar.buttons["benchmark"].isVisible()
    assert {"Backward", "dtype"} <= {button.accessibleName() for button in toolbar.overflow}

    quiet.window.objects.select("m")
    QTest.mouseMove(toolbar.more_button)  # a click where the pointer was when the menu opened is none to Qt
    QTest.mouseClick(toolbar.more_button, Qt.MouseButton.LeftButton)
    menu = toolbar.more_button.menu()
    lines = {action.text(): action for action in menu.actions()}
    assert {"Backward", "dtype", "Copy to"} <= set(lines)
    assert lines["dtype"].isEnabled()
    lines["dtype"].menu().aboutToShow.emit()
    lines["dtype"].menu().actions()[2].trigger()
    menu.close()
    assert getattr(quiet.sent[-1], "dtype", "") == "float16"


def test_an_open_menu_of_the_toolbar_does_not_outlive_the_engine(quiet: QuietWindow) -> None:
    """Disabled with its button it would take every key and click of the window."""
    build = quiet.window.toolbar.buttons["build"]
    quiet.tell(msgspec.structs.replace(ENGINE, recipes={"mlp": "three layers"}))
    build.showMenu()
    assert QApplication.activePopupWidget() is build.menu()
    quiet.tell(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=1.0))
    assert not build.isEnabled()
    assert QApplication.activePopupWidget() is None


def test_the_name_and_the_device_stay_in_sight_in_a_narrow_tree(quiet: QuietWindow) -> None:
    tree = quiet.window.objects.tree
    header = tree.header()
    visible = [
        header.logicalIndex(at) for at in range(header.count()) if not header.isSectionHidden(header.logicalIndex(at))
    ]
    ends = {column: header.sectionViewportPosition(column) + header.sectionSize(column) for column in visible}
    assert header.sectionSize(0) >= 120
    assert all(end <= tree.viewport().width() for end in ends.values())
