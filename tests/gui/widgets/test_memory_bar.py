from __future__ import annotations

from fakes.look_records import CUDA, GIB, allocator, sample, state_with
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from devexplorer.core.telemetry.memory_breakdown import MemoryParts
from devexplorer.gui.widgets.memory_bar import MemoryBar, Segment, segments, widths
from devexplorer.gui.widgets.theme import DARK


def device_parts() -> MemoryParts:
    state = state_with(CUDA)
    sample(state, "cuda:0", 12 * GIB)
    allocator(state, "cuda:0", workspace=4 * GIB, allocated=6 * GIB, reserved=8 * GIB, context=1 * GIB)
    return state.devices["cuda:0"].parts


def test_the_parts_are_in_the_order_of_what_can_be_done_about_them():
    assert segments(device_parts()) == (
        Segment("workspace", 4 * GIB),
        Segment("other_allocated", 2 * GIB),
        Segment("cached", 2 * GIB),
        Segment("context", 1 * GIB),
        Segment("other_processes", 3 * GIB),
        Segment("free", 12 * GIB),
    )


def test_where_only_the_sum_is_known_it_is_one_part():
    assert segments(MemoryParts(None, None, None, None, 5, 7)) == (Segment("used", 5), Segment("free", 7))
    assert segments(MemoryParts(None, None, None, None, None, None)) == ()


def test_a_context_that_is_not_known_is_not_passed_off_as_other_processes():
    found = segments(MemoryParts(1, 2, 3, None, 4, 5, 6))
    assert [one.key for one in found] == ["workspace", "other_allocated", "cached", "unsplit", "driver", "free"]
    assert found[3].part == "context and other processes"


def test_widths_follow_the_bytes_and_small_parts_stay_visible():
    found = (Segment("workspace", 1), Segment("other_processes", 500), Segment("free", 499))
    assert widths(found, 1000, 100) == [1.0, 50.0, 49.0]


def test_readings_that_add_up_to_more_than_the_capacity_stay_inside_the_bar():
    found = (Segment("workspace", 900), Segment("other_processes", 600))
    assert sum(widths(found, 1000, 100)) <= 100


def test_the_bar_is_painted_in_the_devices_colour_and_neutral_greys(qtbot: QtBot):
    bar = MemoryBar(0)
    qtbot.addWidget(bar)
    bar.resize(240, 10)
    bar.set_reading(device_parts(), 24 * GIB)
    image = bar.grab().toImage()
    at = {gib: image.pixelColor(gib * 10, 5) for gib in (2, 5, 8, 10, 20)}
    assert at[2] == QColor(DARK.devices[0])
    assert at[5] not in (at[2], QColor(DARK.bar_free))
    assert at[8] == QColor(DARK.bar_context)
    assert at[10] == QColor(DARK.bar_other)
    assert at[20] == QColor(DARK.bar_free)
    hatched = {image.pixelColor(x, 5).rgb() for x in range(62, 78)}
    assert len(hatched) == 2, "the hatch, and the pale colour below it"
    assert not hatched & {QColor(DARK.bar_free).rgb(), at[2].rgb()}, "cached memory looks like nothing else"


def test_hovering_names_the_part_with_bytes_and_definition(qtbot: QtBot):
    bar = MemoryBar(0)
    qtbot.addWidget(bar)
    bar.resize(240, 10)
    assert bar.tip_at(QPointF(10, 0)) == "How much memory is in use is not known here."
    bar.set_reading(device_parts(), 24 * GIB)
    first, definition, *rest = bar.tip_at(QPointF(70, 0)).split("\n")
    assert first == "cached: 2.00 GiB"
    assert "caching allocator" in definition
    assert "workspace: 4.00 GiB" in rest
    assert "total: 24.00 GiB" in rest


def test_what_is_painted_is_also_said(qtbot: QtBot):
    bar = MemoryBar(0)
    qtbot.addWidget(bar)
    bar.set_reading(device_parts(), 24 * GIB)
    assert bar.spoken().startswith("workspace 4.00 GiB, other allocations 2.00 GiB")
