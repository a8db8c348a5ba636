"""The roofline: positions of points and roof, their texts, and labels that never overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import state_with
from fakes.stored_runs import H200, HERE_CPU, T4, bandwidth, fifty, matmul, model_run, scaling, spread, stored, sweep
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.bandwidth.kind import BandwidthResult
from devexplorer.core.benchmark.spec import PRODUCTS
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import BenchEnded, BenchPoint, BenchPreparing, BenchStarted, Spread, StoredRun
from devexplorer.core.roofline.figures import (
    DrawnRoofline,
    inner_copies,
    intensity,
    key_of,
    points_of,
    roofline,
    targets,
)
from devexplorer.core.scaling.kind import ScalingResult
from devexplorer.core.session.state import State
from devexplorer.core.sweep.kind import SweepCell, SweepResult
from devexplorer.gui.charts.roofline_canvas import between
from devexplorer.gui.plots.curves import decades
from devexplorer.gui.roofline.page import RooflinePanel
from devexplorer.gui.roofline.picture import GLYPHS, RooflinePicture, labels, lines, mark, ranges
from devexplorer.gui.widgets import theme as themes
from devexplorer.gui.widgets.theme import DARK, LIGHT

LEFT = Qt.MouseButton.LeftButton


def here() -> State:
    return state_with(HERE_CPU, H200, T4)


def panel_with(
    qtbot: QtBot, *runs: StoredRun, device: str = "cuda:0", width: int = 1264, height: int = 280
) -> RooflinePanel:
    panel = hosted(qtbot, lambda _: RooflinePanel(here()), width, height)
    panel.show_runs(runs, len(runs))
    texts = [panel.chooser.itemText(index) for index in range(panel.chooser.count())]
    panel.chooser.setCurrentIndex(next(index for index, text in enumerate(texts) if text.startswith(device)))
    panel.chooser.activated.emit(panel.chooser.currentIndex())
    QApplication.processEvents()
    return panel


def rows(panel: RooflinePanel) -> dict[object, list[str]]:
    return {row.key: [cell.text for cell in row.cells[1:]] for row in panel.table.rows}


def drawn_of(*runs: StoredRun) -> DrawnRoofline:
    [target] = [found for found in targets([H200], runs) if found.info is not None]
    points = [point for run in runs for point in points_of(run.result, "cuda:0", run.id, run.conditions.started_unix_s)]
    return roofline(target, points, [row for run in runs for row in inner_copies(run.result, "cuda:0")])


def at(panel: RooflinePanel, what: str) -> QPointF:
    picture = panel.picture
    places = zip(picture.points_px, panel.drawn.points, strict=True)
    return next(QPointF(*place) for place, point in places if what in point.what)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_intensity_counts_each_operand_once() -> None:
    assert intensity(1024, 1024, 1024, "float32") == pytest.approx(2 * 1024**3 / (3 * 1024**2 * 4))
    assert intensity(1, 4096, 4096, "bfloat16") == pytest.approx(1, rel=0.01), (
        "a vector times a matrix lives on bandwidth"
    )
    assert intensity(256, 256, 256, "int8") == pytest.approx(2 * 256**3 / (256**2 * (1 + 1 + 4))), (
        "int8 products come out as int32"
    )


def test_every_kind_of_run_gives_the_points_it_can() -> None:
    assert [point.tflops for point in points_of(matmul(798.0), "cuda:0")] == [798.0]
    shapes = [point.shape for point in points_of(sweep(sides=(512, 1024)), "cuda:0")]
    assert shapes == ["512×512×512", "1024×1024×1024"], "a shape that did not fit is no point"
    [job] = points_of(scaling(T4), "vgpu:1")
    assert job.tflops == pytest.approx(2 * 1000**3 * 1000 / 0.3 / 1e12)
    assert list(points_of(scaling(T4), "vgpu:7")) == []
    assert list(points_of(model_run(), "cuda:0")) == [], "the bytes that a model moves are unknown"
    assert list(points_of(bandwidth(), "cuda:0")) == []


def test_the_roof_is_the_best_of_each_dtype_and_twice_the_largest_copies() -> None:
    drawn = drawn_of(
        stored(matmul(798.0), 1),
        stored(matmul(640.0), 2),
        stored(matmul(51.0, dtype="float32"), 3),
        stored(bandwidth(), 4),
    )
    best = {ceiling.dtype: ceiling.best.tflops for ceiling in drawn.ceilings if ceiling.best is not None}
    assert best == {"float32": 51.0, "bfloat16": 798.0}
    copied = 2100.0 / (1 + (1 << 20) / (1 << 28))
    assert drawn.memory.gb_per_s == pytest.approx(2 * copied), (
        "each byte of a copy within the device is read and written"
    )
    assert drawn.memory.datasheet == 4800.0
    words = next(ceiling.words for ceiling in drawn.ceilings if ceiling.dtype == "bfloat16")
    assert words == "81 % of datasheet, 94 % of the best published"


def test_small_wrong_and_two_way_copies_say_nothing_about_memory() -> None:
    small = bandwidth(sizes=(1 << 12, 1 << 20))
    assert drawn_of(stored(small, 1)).memory.gb_per_s is None
    assert "64 MiB or more" in drawn_of(stored(small, 1)).memory.reason
    whole = bandwidth()
    assert isinstance(whole, BandwidthResult)
    for change in ({"verified": False}, {"both_ways": True}):
        rows_changed = tuple(msgspec.structs.replace(row, **change) for row in whole.rows)
        assert not list(inner_copies(msgspec.structs.replace(whole, rows=rows_changed), "cuda:0"))


def test_wrong_values_are_no_part_of_the_roof() -> None:
    drawn = drawn_of(stored(matmul(5000.0, verified=False), 1), stored(matmul(700.0), 2))
    assert max(ceiling.best.tflops for ceiling in drawn.ceilings if ceiling.best is not None) == 700.0
    assert [point.is_wrong for point in drawn.points] == [True, False]


def test_one_wrong_shape_of_a_sweep_says_nothing_about_the_others() -> None:
    cells = (
        SweepCell(512, 512, 512, Spread(9.0, 8.9, 9.1), 10, verified=True),
        SweepCell(64, 64, 64, reason="wrong", verified=False),
    )
    found = sweep()
    assert isinstance(found, SweepResult)
    points = list(points_of(msgspec.structs.replace(found, cells=cells, verified=False), "cuda:0"))
    assert [(point.tflops, point.is_wrong) for point in points] == [(9.0, False)]


def test_jobs_with_wrong_values_are_no_part_of_the_roof_either() -> None:
    found = scaling()
    assert isinstance(found, ScalingResult)
    (wall, *_) = found.walls
    assert [point.is_wrong for point in points_of(msgspec.structs.replace(found, verified=False), wall.device)] == [
        True
    ]


def test_the_roof_above_a_point_is_the_lower_of_slope_and_ceiling() -> None:
    drawn = drawn_of(stored(matmul(798.0), 1), stored(bandwidth(), 2), stored(matmul(3.0, (1, 8192, 8192)), 3))
    low = next(point for point in drawn.points if point.tflops == 3.0)
    assert drawn.roof(low) == pytest.approx(low.intensity * (drawn.memory.gb_per_s or 0) / 1e3)
    assert drawn.roof(drawn.points[0]) == 798.0
    assert drawn_of(stored(matmul(798.0), 1)).roof(low) is None, "without a slope nobody knows"


def test_devices_of_the_history_can_be_chosen_too() -> None:
    theirs = stored(matmul(), 1, imported=True, uuid="GPU-ffffffff-0000-0000-0000-000000000000", host="far-away")
    found = targets([HERE_CPU, H200], [theirs, stored(matmul(), 2), stored(model_run(T4), 3, T4)])
    assert [target.text for target in found] == [
        "cpu   Example CPU",
        "cuda:0   NVIDIA H200",
        "NVIDIA H200   on far-away",
    ]
    assert found[1].key == key_of(H200)


# --- geometry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.5, 800.0), (3.0, 60.0), (1e-5, 1e4)])
def test_the_grid_of_a_logarithmic_axis_stays_on_it(low: float, high: float) -> None:
    assert all(low <= value <= high * (1 + 1e-9) for value in (*decades(low, high), *between(low, high)))
    assert {10.0, 1.0} & set(decades(low, high))


def test_the_picture_is_a_table_too(qtbot: QtBot) -> None:
    picture = hosted(qtbot, lambda _: RooflinePicture(), 600, 300)
    assert picture.figures() is None
    drawn = drawn_of(*fifty())
    picture.set_roofline(drawn, 0)
    shown = picture.figures()
    assert shown is not None
    points = [row for row in shown.rows if row[0] not in ("ceiling", "datasheet")]
    assert len(points) == len(drawn.points)
    best = max(drawn.points, key=lambda point: point.tflops)
    assert f"{best.tflops:.4g}" in {row[3] for row in points}
    assert {row[1] for row in shown.rows if row[0] == "ceiling"} == {
        ceiling.dtype for ceiling in drawn.ceilings if ceiling.best is not None
    }


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize(("width", "height"), [(320, 150), (736, 230), (2000, 340), (500, 900)])
def test_labels_never_overlap_and_nothing_leaves_the_picture(qtbot: QtBot, count: int, width: int, height: int) -> None:
    runs = fifty() if count == 50 else [stored(matmul(), 1)]
    picture = RooflinePicture()
    qtbot.addWidget(picture)
    picture.resize(width, height)
    picture.show()
    picture.set_roofline(drawn_of(*runs), 0)
    QApplication.processEvents()
    boxes = [box for _, box in picture.labels]
    assert boxes
    assert not any(
        a.adjusted(0, 0.01, 0, -0.01).intersects(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :]
    )
    whole, area = QRectF(picture.rect()), QRectF(picture.area())
    assert all(whole.contains(box) for box in boxes)
    assert all(box.left() > area.right() for box in boxes)
    assert all(area.adjusted(-0.5, -0.5, 0.5, 0.5).contains(*place) for place in picture.points_px)
    ticks = [picture.px(value, 0.0).x() for value, _ in picture.bottom.ticks]
    assert all(b - a >= 60 for a, b in pairwise(ticks)), "texts of the axis have room"


def test_ceilings_begin_where_the_slope_reaches_them() -> None:
    drawn = drawn_of(stored(matmul(798.0), 1), stored(bandwidth(), 2))
    [ceiling] = [line for line in lines(drawn) if not line.is_datasheet and line.start[1] == line.end[1]]
    [slope] = [line for line in lines(drawn) if not line.is_datasheet and line.start[1] != line.end[1]]
    assert slope.end == pytest.approx(ceiling.start)
    assert ceiling.end[0] == ranges(drawn)[0][1]


def test_datasheet_rates_that_are_the_same_share_a_label() -> None:
    texts = [label.text for label in labels(drawn_of(stored(matmul(798.0), 1)))]
    assert "datasheet 989  float16, bfloat16" in texts
    assert "▲  bfloat16  798" in texts
    assert len(texts) == len(set(texts)) == 5


def test_each_dtype_has_a_mark_of_its_own() -> None:
    paths = [mark(dtype) for dtype in GLYPHS]
    assert all(a != b for place, a in enumerate(paths) for b in paths[place + 1 :])
    assert set(GLYPHS) <= set(PRODUCTS)
    areas = [path.boundingRect().width() * path.boundingRect().height() for path in paths]
    assert max(areas) < 2 * min(areas), "none stands out"


# --- the panel --------------------------------------------------------------------------------------------------------


def test_without_a_measurement_the_datasheet_is_drawn(qtbot: QtBot) -> None:
    panel = panel_with(qtbot)
    assert panel.picture.isVisible()
    assert panel.summary.full_text == "Only the datasheet is known: nothing is measured yet."
    assert rows(panel)["bfloat16"][:3] == ["—", "—", "—"]
    assert panel.note.text().startswith("No copy of 64 MiB or more within cuda:0")


def test_without_anything_there_is_one_sentence_and_an_offer(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, device="cpu")
    assert panel.empty.isVisible()
    assert panel.empty.sentence.text().startswith("Nothing of cpu is measured yet")
    with qtbot.waitSignal(panel.benchmark_requested):
        qtbot.mouseClick(panel.empty.button, LEFT)


def test_a_card_is_held_against_its_datasheet_and_what_others_published(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 1), stored(bandwidth(), 2), stored(model_run(), 3))
    assert panel.summary.full_text == "bfloat16 798 TFLOP/s: 81 % of datasheet, 94 % of the best published."
    assert rows(panel)["bfloat16"] == ["798 T", "81", "94", "8192×8192×8192"]
    assert rows(panel)["memory"][:2] == ["4,184", "87"]
    assert "each byte read and written" in panel.note.text()
    assert "1 model run left out" in panel.note.text()


def test_a_sustained_run_is_held_against_sustained_figures(qtbot: QtBot) -> None:
    run = matmul(798.0)
    sustained = msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, mode="sustained"))
    panel = panel_with(qtbot, stored(sustained, 1))
    assert panel.summary.full_text.endswith("of the best published sustained.")


def test_simulated_is_said_where_the_figures_stand(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(52.0, dtype="float16", info=T4), 1, T4), device="vgpu:0")
    assert panel.summary.full_text.startswith("float16 52.0 TFLOP/s, simulated:")
    assert "simulated" in panel.chooser.currentText()
    assert any(cell.text == "□  float16" for row in panel.table.rows for cell in row.cells), "hollow marks"
    qtbot.mouseMove(panel.picture.viewport(), at(panel, "matmul").toPoint())
    assert "52.0 TFLOP/s, simulated" in panel.picture.box.text()


def test_the_pointer_brings_up_what_a_mark_is(qtbot: QtBot) -> None:
    panel = panel_with(
        qtbot, stored(matmul(798.0), 45), stored(matmul(51.0, 2048, "float32"), 44), stored(bandwidth(), 2)
    )
    qtbot.mouseMove(panel.picture.viewport(), at(panel, "bfloat16").toPoint())
    lines = panel.picture.box.text().splitlines()
    assert lines[0] == "matmul 8192×8192×8192 bfloat16 burst"
    assert lines[1] == "798 TFLOP/s"
    assert "100 % of the measured roof there" in lines
    assert "81 % of datasheet, 94 % of the best published" in lines
    assert lines[-1].endswith("run #45")
    assert panel.picture.rect().contains(panel.picture.box.geometry())
    qtbot.mouseMove(panel.picture.viewport(), panel.picture.rect().topLeft())
    assert not panel.picture.box.isVisible()


def test_a_click_chooses_the_run(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 45), stored(matmul(51.0, 2048, "float32"), 44))
    with qtbot.waitSignal(panel.run_chosen) as chosen:
        qtbot.mouseClick(panel.picture.viewport(), LEFT, pos=at(panel, "float32").toPoint())
    assert chosen.args == [44]


def test_marks_can_be_reached_with_the_keyboard(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, *(stored(matmul(200.0 * number, 512 * number), number) for number in (1, 2, 3)))
    qtbot.keyClick(panel.picture, Qt.Key.Key_Left)
    assert panel.picture.at is not None
    assert panel.picture.at.run == 3, "the fastest first"
    qtbot.keyClick(panel.picture, Qt.Key.Key_Left)
    assert panel.picture.at.run == 2
    with qtbot.waitSignal(panel.run_chosen) as chosen:
        qtbot.keyClick(panel.picture, Qt.Key.Key_Return)
    assert chosen.args == [2]
    qtbot.keyClick(panel.picture, Qt.Key.Key_Escape)
    assert panel.picture.at is None


def test_another_device_can_be_chosen(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 1), stored(matmul(52.0, dtype="float16", info=T4), 2, T4))
    panel.chooser.setFocus()
    qtbot.keyClick(panel.chooser, Qt.Key.Key_Down)
    assert panel.target is not None
    assert panel.target.id == "vgpu:0"
    assert [point.run for point in panel.drawn.points] == [2]
    panel.show_runs([stored(matmul(798.0), 3)], 1)
    assert panel.target.id == "vgpu:0", "it stays with what was chosen"


def test_devices_that_come_later_can_be_chosen(qtbot: QtBot) -> None:
    state = state_with(HERE_CPU)
    panel = hosted(qtbot, lambda _: RooflinePanel(state), 1264, 280)
    panel.show_runs([stored(matmul(798.0), 1)], 1)
    assert [panel.chooser.itemText(place) for place in range(panel.chooser.count())] == [
        "cpu   Example CPU",
        "NVIDIA H200   not here",
    ]
    state.set_catalog(Catalog((HERE_CPU, H200)))
    panel.refresh()
    assert [panel.chooser.itemText(place) for place in range(panel.chooser.count())] == [
        "cpu   Example CPU",
        "cuda:0   NVIDIA H200",
    ]
    assert panel.target is not None
    assert panel.target.id == "cuda:0"
    assert [point.run for point in panel.drawn.points] == [1]


def test_runs_of_this_session_are_there_before_they_are_kept_and_once_after(qtbot: QtBot) -> None:
    panel = panel_with(qtbot)
    result = matmul(798.0)
    state = panel._state
    state.apply(BenchPreparing(run=1, spec=result.spec, simulated=False))
    state.apply(BenchStarted(run=1, time_unix_s=1.0))
    state.apply(BenchEnded(run=1, result=result, time_unix_s=3.0))
    panel.refresh()
    assert [point.run for point in panel.drawn.points] == [None]
    qtbot.mouseMove(panel.picture.viewport(), at(panel, "bfloat16").toPoint())
    assert panel.picture.box.text().endswith("in this session")
    panel.show_runs([stored(result, 7)], 1)
    assert [point.run for point in panel.drawn.points] == [7]


def test_shapes_of_a_sweep_appear_while_it_runs(qtbot: QtBot) -> None:
    panel = panel_with(qtbot)
    spec = sweep().spec
    panel._state.apply(BenchPreparing(run=1, spec=spec, simulated=False))
    panel._state.apply(BenchStarted(run=1, time_unix_s=1.0))
    for number, side in enumerate((256, 512), 1):
        cell = SweepCell(side, side, side, spread(40.0 * number), 10)
        panel._state.apply(BenchPoint(run=1, device="cuda:0", time_unix_s=2.0, tflops=40.0, part=cell))
        panel.refresh()
        assert len(panel.drawn.points) == number


def test_nothing_is_painted_again_for_a_benchmark_that_has_nothing_new(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = panel_with(qtbot, *fifty())
    drawn: list[DrawnRoofline] = []
    monkeypatch.setattr(panel.picture, "set_roofline", lambda found, _colour: drawn.append(found))
    panel._state.apply(BenchPreparing(run=1, spec=matmul().spec, simulated=False))
    panel._state.apply(BenchStarted(run=1, time_unix_s=1.0))
    for _ in range(30):
        panel._state.apply(BenchPoint(run=1, device="cuda:0", time_unix_s=2.0, tflops=40.0))
        panel.refresh()
    assert not drawn


def test_a_hidden_panel_asks_for_nothing_until_it_is_shown(qtbot: QtBot) -> None:
    class Source:
        asked: list[tuple[str | None, str]] = []  # noqa: RUF012

        def request(
            self, kind: str | None, text: str, _limit: int, show: Callable[[Sequence[StoredRun], int], None]
        ) -> None:
            self.asked.append((kind, text))
            show([stored(matmul(798.0), 1)], 1)

    panel = hosted(qtbot, lambda _: RooflinePanel(here()), 1264, 280)
    panel.hide()
    source = Source()
    panel.set_source(source)  # type: ignore[arg-type]
    panel.reload()
    assert source.asked == []
    panel.show()
    assert source.asked == [(None, "")]
    assert len(panel.drawn.points) == 1
    panel.hide()
    panel.show()
    assert len(source.asked) == 1, "nothing has changed meanwhile"


def test_marks_have_the_colour_of_the_device_in_either_theme(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 1))
    looks = []
    for theme in (DARK, LIGHT):
        themes.apply(QApplication.instance(), theme)
        QApplication.processEvents()
        image = panel.picture.grab().toImage()
        looks.append(image)
        [box] = [box for label, box in panel.picture.labels if label.dtype == "bfloat16"]
        assert image.pixelColor(round(box.left()) + 5, round(box.center().y())).name().upper() == theme.devices[0]
    assert looks[0] != looks[1]
