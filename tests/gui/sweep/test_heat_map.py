"""The colour scale of the heat map, and the arrangement of shapes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from devexplorer.gui.charts.shades import ramp
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.sweep.heat_map import HeatMap, figure_colour
from devexplorer.gui.sweep.page import arrange, ceiling
from devexplorer.gui.widgets.theme import CPU, DARK, LIGHT, Theme, set_theme


def lightness(red: float, green: float, blue: float) -> float:
    """L* of CIE 1976."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return 116 * light ** (1 / 3) - 16


@pytest.mark.parametrize("theme", [DARK, LIGHT])
@pytest.mark.parametrize("device", range(CPU, 7))
def test_the_scale_changes_lightness_evenly_all_the_way(theme: Theme, device: int) -> None:
    set_theme(theme)
    steps = [lightness(colour.redF(), colour.greenF(), colour.blueF()) for colour in ramp(device)]
    changes = [(b - a) if theme.is_dark else (a - b) for a, b in itertools.pairwise(steps)]
    assert min(changes) > 0
    assert max(changes) < 3 * sum(changes) / len(changes)
    assert sum(changes) > 25  # far enough apart to be read in grey


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_figures_are_readable_on_every_shade(theme: Theme) -> None:
    set_theme(theme)
    for fill in (shade for device in range(CPU, 7) for shade in ramp(device)):
        ink, ground = (((lightness(*c.getRgbF()[:3]) + 16) / 116) ** 3 + 0.05 for c in (figure_colour(fill), fill))
        assert max(ink, ground) / min(ink, ground) > 4.1, fill.name()


def test_a_map_of_few_shapes_takes_half_of_the_height_of_a_large_window(qtbot: QtBot) -> None:
    """At 2560x1440 it took a quarter."""
    heat_map = HeatMap()
    qtbot.addWidget(heat_map)
    heat_map.set_grid((256, 1024, 4096), (256, 1024, 4096), "N", "M")
    heat_map.resize(1900, 560)
    last = heat_map.box((2, 2))
    assert heat_map.height() / 2 <= last.bottom() <= heat_map.height()
    heat_map.resize(300, 160)
    assert heat_map.rect().contains(heat_map.box((2, 2)).toRect())


def test_two_sides_that_vary_make_a_grid() -> None:
    found = arrange([(m, n, 64) for m in (64, 128) for n in (32, 64, 96)])
    assert (found.kind, found.x_name, found.y_name, found.fixed) == ("grid", "N", "M", "K 64")
    assert (found.xs, found.ys) == ((32, 64, 96), (64, 128))
    assert found.place((128, 96, 64)) == (96, 128)


@pytest.mark.parametrize(
    ("shapes", "name", "fixed"),
    [
        ([(8, 8, 8), (16, 16, 16)], "M = N = K", ""),
        ([(8, 8, 64), (16, 16, 64)], "M = N", "K 64"),
        ([(64, 64, 8), (64, 64, 16)], "K", "M 64, N 64"),
    ],
)
def test_sides_that_grow_together_make_a_line(shapes: list[tuple[int, int, int]], name: str, fixed: str) -> None:
    found = arrange(shapes)
    assert (found.kind, found.x_name, found.fixed) == ("line", name, fixed)
    assert [found.place(shape)[0] for shape in shapes] == list(found.xs)


@pytest.mark.parametrize("shapes", [[], [(8, 8, 8)], [(8, 16, 32), (16, 8, 64), (9, 9, 9)]])
def test_anything_else_is_in_chronological_order(shapes: list[tuple[int, int, int]]) -> None:
    assert arrange(shapes).kind == "order"
    assert arrange([(8, 8, 8), (16, 16, 16)], searched=True).kind == "order"


@given(st.lists(st.tuples(*[st.integers(1, 6)] * 3), min_size=1, max_size=30, unique=True))
def test_every_shape_has_its_place(shapes: list[tuple[int, int, int]]) -> None:
    found = arrange(shapes)
    if found.kind == "grid":
        places = [found.place(shape) for shape in shapes]
        assert len(set(places)) == len(shapes)
        assert all(x in found.xs and y in found.ys for x, y in places)
    if found.kind == "line":
        assert sorted(found.place(shape)[0] for shape in shapes) == list(found.xs)


@given(st.lists(st.floats(0, 100)))
def test_the_best_so_far_never_falls(values: list[float]) -> None:
    assert ceiling(values) == [max(values[: at + 1]) for at in range(len(values))]


def test_a_long_curve_keeps_its_dips_and_peaks(qtbot: QtBot) -> None:
    points = tuple((float(x), 0.0 if x == 7777 else 9.0 if x == 3333 else 5.0, 0.0, 0.0) for x in range(10_000))
    curve = SizeCurve("Throughput over the size")
    qtbot.addWidget(curve)
    curve.set_curves([Series("cuda:0", 0, points)])
    [drawn] = curve.curves
    _, rates = drawn.getData()
    assert {5.0, 9.0, 0.0} == set(rates)
