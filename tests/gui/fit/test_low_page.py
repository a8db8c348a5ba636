"""Where the Fit page is low, as in a window of 1000x650 or 1440x900, its pictures have the room to be read."""

import itertools

import pytest
from fakes.fit_pages import panel_for, planned
from fakes.fits import points, report
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QApplication

from devexplorer.gui.fit.page import NARROW_PX
from devexplorer.gui.fit.rows import CARD, FITS
from devexplorer.gui.fit.step_roofline import HEAD
from devexplorer.gui.fit.views import BATCH, MEMORY, PUBLISHED, READING, ROOFLINE

H100 = "NVIDIA H100 80GB HBM3"
LOW = [(900, 108), (1310, 170)]
"""The page in those windows."""
SIZES = [*LOW, (686, 300), (2500, 340)]


def show(qtbot, panel, view):
    tabs = panel.views.tabs
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(view).center())
    QApplication.processEvents()


def planned_page(qtbot, state, width, height):
    panel = panel_for(qtbot, state, width, height)
    planned(panel, state, report())
    panel.table.select_key(H100)
    QApplication.processEvents()
    return panel


def inside(widget, panel):
    where = QRect(widget.mapTo(panel, QPoint(0, 0)), widget.size())
    return panel.rect().contains(where)


@pytest.mark.parametrize(("width", "height"), LOW)
def test_the_table_leaves_its_room_to_a_picture_and_gets_it_back(qtbot, state, width, height):
    panel = planned_page(qtbot, state, width, height)
    before = panel.table.width()
    show(qtbot, panel, ROOFLINE)
    assert panel.table.width() <= NARROW_PX
    assert panel.table.isVisible(), "another card can be chosen"
    assert panel.views.width() > width - NARROW_PX - 40
    assert not panel.table.isColumnHidden(CARD)
    assert not panel.table.isColumnHidden(FITS)
    show(qtbot, panel, MEMORY)
    assert panel.table.width() == before
    show(qtbot, panel, ROOFLINE)
    panel.resize(width, 400)
    QApplication.processEvents()
    assert panel.table.width() > NARROW_PX, "there is height enough"


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_roofline_is_whole_and_its_names_overlap_nothing(qtbot, state, width, height):
    panel = planned_page(qtbot, state, width, height)
    show(qtbot, panel, ROOFLINE)
    picture = panel.views.roofline
    assert inside(picture, panel)
    _check_names(picture)


def test_a_limit_without_room_is_named_in_the_head(qtbot, panel, state):
    planned(panel, state, report())
    panel.table.select_key(H100)
    picture = panel.views.roofline
    for width, height in itertools.product((220, 330, 700), (64, 90, 140, 300)):
        picture.resize(width, height)
        _check_names(picture)


def _check_names(picture):
    shown, left_out = picture.limits()
    texts = {text for _, text in shown} | set(left_out)
    assert texts == {"memory 3,350 GB/s", "float32 67 TFLOP/s", "TF32 494.5 TFLOP/s"}
    assert not any(one.intersects(other) for (one, _), (other, _) in itertools.combinations(shown, 2))
    for box, text in shown:
        if text.startswith("memory"):
            above, below = box.bottom() < picture._roof_y(box.right()), box.top() > picture._roof_y(box.left())
            assert above or below, "the line rises to the right, and does not cross it"
            assert box.left() >= picture._strip.right()
    assert HEAD.endswith("simulated")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_both_curves_over_the_batch_are_in_sight(qtbot, state, width, height):
    panel = planned_page(qtbot, state, width, height)
    spec = replace(report().spec, gpus=(H100,), curve=True)
    planned(panel, state, replace(report(spec), curve=points(1, 4, 16, 64)), request=8)
    show(qtbot, panel, BATCH)
    curves = panel.views.curves
    assert curves.currentWidget() is not curves.empty
    for curve in (curves.time, curves.memory):
        assert inside(curve, panel)
        assert curve.canvas.height() >= 36
    assert not curves.time.geometry().intersects(curves.memory.geometry())
    (capacity,) = curves.memory.canvas.lines.guide_labels
    assert capacity.text.endswith("80.00 GiB")
    assert curves.note.full_text == curves.what.toolTip(), "where the note has no room, the choice has it"


def test_published_steps_say_that_they_are_being_read(qtbot, panel):
    view = panel.views.published
    kept: list = []
    view.in_background = lambda _name, work, then: kept.append((work, then))
    show(qtbot, panel, PUBLISHED)
    assert view.compared.text() == READING
    assert (view.model.currentText(), view.card.currentText()) == ("every model", "every card")
    ((work, then),) = kept
    then(work())
    assert view.compared.text() != READING
    assert view.table.rows
