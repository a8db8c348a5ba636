"""Calibrated cards in Fit: offered with the others, planned for with their factors."""

import pytest
from fakes.calibrations import calibration
from fakes.fit_pages import planned, texts, type_into
from fakes.fits import fit, report
from msgspec.structs import replace
from PySide6.QtCore import Qt

from devexplorer.core.devices.profiles import planned_profiles
from devexplorer.gui.fit.rows import CARD

OWN = calibration({"memory": 0.9})


def offered(panel):
    """Cards of the menu, without the line for all of them."""
    return [action.text() for action in panel.form.cards_edit.menu.actions()][1:]


@pytest.mark.usefixtures("qtbot")
def test_it_is_offered_with_the_cards_that_are_here(panel):
    assert set(offered(panel)) == set(planned_profiles())
    panel.set_calibrations((OWN,))
    assert offered(panel)[:2] == [OWN.name, "Tesla T4"], "of cards like the two T4 here"
    assert len(offered(panel)) == len(planned_profiles()) + 1
    panel.set_calibrations(())
    assert OWN.name not in offered(panel)


def test_a_plan_takes_its_factors_along(qtbot, panel, sent):
    panel.set_calibrations((OWN,))
    type_into(qtbot, panel.form.model_edit, "mlp")
    type_into(qtbot, panel.form.cards_edit, "t4 calibrated")
    qtbot.mouseClick(panel.start_button, Qt.MouseButton.LeftButton)
    [command] = sent
    assert (command.spec.gpus, command.spec.calibrations) == (("t4 calibrated",), (OWN,))


def test_a_name_that_is_gone_is_refused(qtbot, panel):
    type_into(qtbot, panel.form.model_edit, "mlp")
    type_into(qtbot, panel.form.cards_edit, "t4 calibrated")
    assert "There is no profile 't4 calibrated'" in panel.hint.full_text
    assert not panel.start_button.isEnabled()
    panel.set_calibrations((OWN,))
    assert panel.start_button.isEnabled()


@pytest.mark.usefixtures("qtbot")
def test_it_has_a_row_above_the_cards_that_are_not_here(panel, state):
    panel.set_calibrations((OWN,))
    cards = (fit("NVIDIA A10", 24 << 30), fit(OWN.name, 15 << 30))
    planned(panel, state, replace(report(), fits=cards))
    assert texts(panel, CARD) == [OWN.name, "NVIDIA A10"]
    panel.table.select_key(OWN.name)
    assert panel.table.selected_key == OWN.name
