"""The progress of long work is shown at the object and on the card that it concerns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.look_records import VGPU, mlp, show, tensor
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import (
    BenchPreparing,
    BenchStarted,
    Cancel,
    Check,
    Command,
    JobEnded,
    JobProgress,
    JobStarted,
    Move,
    StartBenchmark,
)
from devexplorer.gui.devices.card import DeviceItem
from devexplorer.gui.objects.item_model import BADGES_ROLE, TreeColumn
from devexplorer.gui.widgets import current_theme

MOVE = Move(targets=("mlp:0",), device="vgpu:0")


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path / "settings", VGPU)
    show(quiet.state, mlp(), tensor("x"))
    quiet.tell()
    yield quiet
    quiet.close()


def begin(quiet: QuietWindow, command: Command, request: int = 7) -> None:
    quiet.tell(JobStarted(request=request, title="moving mlp to vgpu:0", time_unix_s=1.0, command=command))


def badges(quiet: QuietWindow, name: str) -> list[str]:
    return [badge.words for badge in quiet.window.objects.model.index_of(name).data(BADGES_ROLE)]


def card(quiet: QuietWindow) -> DeviceItem:
    return quiet.window.devices.items["vgpu:0"]


def line_px(quiet: QuietWindow) -> int:
    """How long the painted line in the row of mlp is."""
    tree = quiet.window.objects.tree
    where = tree.visualRect(quiet.window.objects.model.index_of("mlp")).adjusted(4, 0, -8, 0)
    image = tree.viewport().grab().toImage()
    colour = QColor(current_theme().soft)
    return sum(image.pixelColor(x, where.bottom()) == colour for x in range(where.left(), where.right() + 1))


def test_a_move_is_seen_at_its_object_and_on_the_card(quiet: QuietWindow) -> None:
    assert line_px(quiet) == 0
    begin(quiet, MOVE)
    assert badges(quiet, "mlp") == ["moving"], "how far it is has not been told yet"
    quiet.tell(JobProgress(request=7, done=0.5))
    assert badges(quiet, "mlp") == ["moving 50 %"]
    assert badges(quiet, "x") == []
    index = quiet.window.objects.model.index_of("mlp")
    width = quiet.window.objects.tree.visualRect(index).width() - 12
    assert abs(line_px(quiet) - width / 2) <= 1
    assert "moving 50 %" in index.data(Qt.ItemDataRole.AccessibleTextRole)
    assert "moving mlp to vgpu:0" in index.data(Qt.ItemDataRole.ToolTipRole)
    assert card(quiet).progress is not None
    assert "Busy: moving mlp to vgpu:0." in card(quiet).spoken()
    assert quiet.window.devices.items["cpu"].progress is None

    QTest.mouseClick(quiet.window.status.cancel, Qt.MouseButton.LeftButton)
    assert quiet.sent[-1] == Cancel(job=7)
    quiet.tell(JobEnded(request=7, ok=False, time_unix_s=2.0))
    assert badges(quiet, "mlp") == []
    assert line_px(quiet) == 0
    assert card(quiet).progress is None
    assert "Busy" not in card(quiet).spoken()


def test_the_part_that_is_worked_on_is_marked_at_the_innermost_row_that_can_be_seen(quiet: QuietWindow) -> None:
    tree, model = quiet.window.objects.tree, quiet.window.objects.model
    tree.collapseAll()
    begin(quiet, Move(targets=("mlp", "x"), device="vgpu:0"))
    quiet.tell(JobProgress(request=7, done=0.25, part="mlp:hidden.weight"))
    assert badges(quiet, "mlp") == ["moving 25 %"]
    assert badges(quiet, "mlp:hidden") == [], "the model is closed: its own row says all"
    tree.expand(model.index_of("mlp"))
    quiet.tell()
    assert badges(quiet, "mlp:hidden") == ["moving"], "folded: the row of the module stands for what is in it"
    assert "moving" in model.index_of("mlp:hidden").data(Qt.ItemDataRole.AccessibleTextRole)
    tree.expand(model.index_of("mlp:hidden"))
    quiet.tell(JobProgress(request=7, done=0.5, part="mlp:hidden.weight"))
    rows = ("mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias", "x")
    assert [badges(quiet, row) for row in rows] == [["moving 50 %"], [], ["moving"], [], ["moving 50 %"]]

    quiet.tell(JobProgress(request=7, done=0.75, part="x"))
    assert [badges(quiet, row) for row in rows] == [["moving 75 %"], [], [], [], ["moving 75 %"]]
    quiet.tell(JobEnded(request=7, ok=True, time_unix_s=2.0))
    assert [badges(quiet, row) for row in rows] == [[], [], [], [], []]


def test_progress_that_reads_the_same_paints_nothing_and_other_only_its_cell(quiet: QuietWindow) -> None:
    begin(quiet, Check(target="mlp", device="vgpu:0"))
    changed: list[tuple[int, int]] = []
    model = quiet.window.objects.model
    model.dataChanged.connect(lambda first, last, *_: changed.append((first.column(), last.column())))
    for done in (0.201, 0.202, 0.203):
        quiet.tell(JobProgress(request=7, done=done))
    assert changed == [(TreeColumn.NAME, TreeColumn.NAME)]
    assert badges(quiet, "mlp") == ["checking 20 %"]


def test_a_benchmark_of_a_model_is_seen_at_the_model_and_on_its_device(quiet: QuietWindow) -> None:
    spec = ModelSpec(target="mlp", device="vgpu:0", seconds=5.0)
    begin(quiet, StartBenchmark(spec=spec))
    quiet.tell(
        BenchPreparing(request=7, run=7, spec=spec, simulated=True), BenchStarted(request=7, run=7, time_unix_s=1.0)
    )
    assert badges(quiet, "mlp")[0].startswith("measuring")
    progress = card(quiet).progress
    assert progress is not None
    assert progress.verb == "measuring"


def test_the_table_of_monitor_shows_it_too(quiet: QuietWindow) -> None:
    quiet.window.workbench.show_layout("monitor")
    quiet.settle()
    begin(quiet, MOVE)
    quiet.tell(JobProgress(request=7, done=0.25))
    row = next(row for row in quiet.window.workbench.cards.table.rows if row.key == "vgpu:0")
    assert row.cells[-1].text == "moving 25 %"


def test_work_that_has_just_begun_is_not_shown(quiet: QuietWindow) -> None:
    quiet.window.status._clock = lambda: 1.1
    begin(quiet, MOVE)
    assert badges(quiet, "mlp") == []
    quiet.window.status._clock = lambda: 1.4
    quiet.window.refresh_texts()
    assert badges(quiet, "mlp") == ["moving"]
