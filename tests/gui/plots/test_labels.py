"""Labels of markers, capacity and datasheet are above the curves: measured in pixels, on the screen and in exported
pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from fakes.host import hosted
from fakes.shown_plots import guide_labels, marker_labels
from PySide6.QtCore import QPointF
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import BenchPoint, BenchPreparing, BenchStarted, DeviceInfo, DeviceSample, MatmulSpec
from devexplorer.core.session.state import Marker, State
from devexplorer.gui.plots.figure import PlotFigure
from devexplorer.gui.plots.markers import lane_rows
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.timelines.slot import MetricPlot, ThroughputPlot
from devexplorer.gui.widgets.theme import THEMES, current_theme, set_theme

NOW = 1_800_000_000.0
GIB = 1 << 30
Pixels = npt.NDArray[np.bool_]


@pytest.fixture
def state() -> State:
    """Curves at their limits, where labels stood before, and more markers than there is room for."""
    state = State()
    state.set_catalog(
        Catalog(
            tuple(
                DeviceInfo(
                    id=f"vgpu:{at}", kind="virtual", name="Tesla T4", memory_total_bytes=(16 + at) * GIB, simulated=True
                )
                for at in range(2)
            )
        )
    )
    spec = MatmulSpec(device="vgpu:0", m=64, n=64, k=64)
    state.apply(BenchPreparing(run=1, spec=spec, simulated=True, datasheet_tflops=8.1))
    state.apply(BenchStarted(run=1, time_unix_s=NOW - 119))
    for age in np.arange(118, 0, -0.5):
        at_s = NOW - float(age)
        for device in range(2):
            used = int((16 + device) * GIB * (0.9 + 0.1 * abs(np.sin(age / 3 + device))))
            state.apply(DeviceSample(device=f"vgpu:{device}", time_unix_s=at_s, memory_used_bytes=used))
        state.apply(
            BenchPoint(run=1, device="vgpu:0", time_unix_s=at_s, tflops=8.1 - (age % 3) / 4, iterations=9, seconds=0.05)
        )
    for age in (110, 100, 70, 66, 63, 40, 8, 5, 2):
        state.markers.append(Marker(NOW - age, f"a model of {age} → vgpu:1", "vgpu:1"))
    return state


def drawn(
    qtbot: QtBot, kind: type[MetricPlot] | type[ThroughputPlot], state: State, width: int, height: int
) -> TimelinePlot:
    axis = TimeAxis()
    plot = hosted(qtbot, lambda _: kind(state, axis), width, height)
    qtbot.__dict__["kept"].append(axis)
    if isinstance(plot, MetricPlot):
        for _ in ("fit GPUs", "capacity"):
            plot.scale_button.click()
    for _ in range(3):
        plot.refresh(NOW)
        QApplication.processEvents()
    return plot


def pixels(picture: Callable[[], QImage]) -> npt.NDArray[np.uint8]:
    image = picture().convertToFormat(QImage.Format.Format_RGB32)
    return np.array(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)


def changed(picture: Callable[[], QImage], change: Callable[[], None], undo: Callable[[], None]) -> Pixels:
    """Which pixels `change` changes."""
    before = pixels(picture)
    change()
    after = pixels(picture)
    undo()
    return np.any(before != after, axis=2)


def labels_and_curves(plot: TimelinePlot, picture: Callable[[], QImage]) -> tuple[Pixels, Pixels]:
    lines = plot.canvas.lines
    labels, guides = lines.labels, lines.guide_labels

    def put(some: list, others: list) -> None:  # type: ignore[type-arg]
        lines.labels, lines.guide_labels = some, others
        lines.update()

    return (
        changed(picture, lambda: put([], []), lambda: put(labels, guides)),
        changed(picture, plot._group.hide, plot._group.show),
    )


@pytest.mark.parametrize("kind", [MetricPlot, ThroughputPlot])
@pytest.mark.parametrize(("width", "height"), [(900, 232), (480, 164), (700, 420)])
def test_no_label_lies_on_a_curve(qtbot: QtBot, state: State, kind: type[MetricPlot], width: int, height: int) -> None:
    plot = drawn(qtbot, kind, state, width, height)
    assert marker_labels(plot)
    assert guide_labels(plot)
    pictures: dict[str, Callable[[], QImage]] = {
        "on the screen": lambda: plot.canvas.grab().toImage(),
        "in a picture": lambda: QImage.fromData(PlotFigure([plot]).png()),
    }
    for where, picture in pictures.items():
        labels, curves = labels_and_curves(plot, picture)
        assert labels.sum() > 300, where
        assert curves.sum() > 300, where
        assert not (labels & curves).any(), where


def test_no_two_labels_overlap_and_none_leaves_the_lane(qtbot: QtBot, state: State) -> None:
    plot = drawn(qtbot, MetricPlot, state, 900, 232)
    found = [*plot.canvas.lines.labels, *plot.canvas.lines.guide_labels]
    for at, label in enumerate(found):
        assert label.rect.bottom() <= 0, "above the curves"
        assert -plot.canvas.lane_rows * 15 <= label.rect.top()
        assert 0 <= label.rect.left() <= label.rect.right() <= plot._view.width() + 0.001
        assert not any(label.rect.intersects(other.rect) for other in found[at + 1 :])
    top = plot.canvas.mapFromScene(plot._view.mapToScene(0, 0)).y()
    assert top >= plot.canvas.lane_rows * 15, "the lane is on the canvas"


def test_the_guide_says_what_it_stands_for_since_it_is_not_at_its_line(qtbot: QtBot, state: State) -> None:
    assert guide_labels(drawn(qtbot, MetricPlot, state, 900, 232)) == [
        "capacity 17.00 GiB  vgpu:1",
        "capacity 16.00 GiB  vgpu:0",
    ]


def test_before_its_first_reading_is_drawn_a_plot_has_no_numbers(qtbot: QtBot, state: State) -> None:
    """Monitor came up with axes from 0 to 1, until the next beat."""
    axis = TimeAxis()
    plot = hosted(qtbot, lambda _: MetricPlot(state, axis), 700, 232)
    qtbot.__dict__["kept"].append(axis)
    QApplication.processEvents()
    assert plot.canvas.isVisible()
    shown = pixels(lambda: plot.canvas.grab().toImage())
    assert len(np.unique(shown.reshape(-1, 4), axis=0)) == 1, "nothing is painted"


def test_after_another_theme_labels_have_its_colours_although_no_line_has_moved(qtbot: QtBot, state: State) -> None:
    """The picture of the lines is kept: in a light window labels stood on black until a marker moved."""
    before = current_theme()
    plot = drawn(qtbot, MetricPlot, state, 900, 232)
    plot.canvas.grab()
    set_theme(next(theme for theme in THEMES.values() if theme.panel != before.panel))
    try:
        shown = plot.canvas.grab().toImage()
        ratio = shown.devicePixelRatio()
        for label in plot.canvas.lines.labels:
            corner = plot.canvas.mapFromScene(plot.canvas.lines.mapToScene(label.rect.bottomLeft() + QPointF(-1, -3)))
            colour = shown.pixelColor(round(corner.x() * ratio), round(corner.y() * ratio)).name()
            assert colour == current_theme().panel.lower(), label.text
    finally:
        set_theme(before)


def test_of_markers_at_one_pixel_the_newest_has_the_label(qtbot: QtBot, state: State) -> None:
    """They were in the order of the alphabet, and a sweep lost its label to an older move."""
    state.markers.clear()
    for text in ("vgg16-bn → vgpu:0", "mlp → vgpu:1", "sweep vgpu:0"):
        state.markers.append(Marker(NOW - 60, text, "vgpu:1"))
    plot = drawn(qtbot, MetricPlot, state, 480, 130)
    assert plot.canvas.lane_rows == 1
    assert marker_labels(plot)[-1] == "sweep vgpu:0"


def test_where_there_is_little_room_a_guide_keeps_its_number_and_a_move_its_device(qtbot: QtBot, state: State) -> None:
    """They were `data…  simulated` and `vgg16-bn → vgp…`."""
    state.markers.clear()
    state.markers.append(Marker(NOW - 60, "a model with a name → vgpu:1", "vgpu:1"))
    plot = drawn(qtbot, ThroughputPlot, state, 320, 164)
    assert plot.canvas.lane_rows == 1
    assert guide_labels(plot) == ["8.10  simulated"]
    [moved] = marker_labels(plot)
    assert moved.endswith("… → vgpu:1")


def test_a_low_plot_gives_labels_one_row_and_a_high_one_three() -> None:
    assert [lane_rows(height) for height in (90, 139, 140, 260, 900)] == [1, 1, 2, 3, 3]
