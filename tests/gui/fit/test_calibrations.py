"""A card is calibrated in the window: the calibration is saved beside the settings, Fit offers it, and it is removed
again."""

import pytest
from fakes.calibrations import calibration
from fakes.window import Driver, open_window

from devexplorer.core.planner.calibrate.kind import CalibrateSpec
from devexplorer.core.planner.calibrate.store import FOLDER, CalibrationStore
from devexplorer.gui.fit.tab import calibrations_of


@pytest.fixture
def driver(qapp, tmp_path):
    CalibrationStore(tmp_path / FOLDER).save(calibration({"memory": 0.9}))
    made = open_window(qapp, tmp_path, "Tesla T4", Driver).ready()
    yield made
    made.end()


def offered(driver):
    fit = driver.window.bottom_dock.page("fit")
    return [action.text() for action in fit.form.cards_edit.menu.actions() if "calibrated" in action.text()]


def test_from_start_to_fit_and_away_again(driver, tmp_path):
    calibrations = calibrations_of(driver.window.context)
    driver.until(lambda: calibrations.saved, "the saved one is read")
    assert offered(driver) == ["Tesla T4 calibrated on 27 Nov 2026"]
    driver.window.bottom_dock.show_page("benchmark")
    panel = driver.window.bottom_dock.page("benchmark")
    driver.click(panel.rail.choices["calibrate"])
    page = panel.page
    driver.until(lambda: page.start_button.isEnabled(), "the form is ready")
    assert page.specs() == (CalibrateSpec(device="vgpu:0"),)
    driver.click(page.start_button)
    driver.until(lambda: len(calibrations.saved) == 2, "the calibration is saved")
    new = next(each for each in calibrations.saved if each.simulated)
    assert new.values == pytest.approx(dict.fromkeys(new.values, 1.0), rel=1e-6)
    assert CalibrationStore(tmp_path / FOLDER).load() == calibrations.saved
    assert new.name in offered(driver)
    assert driver.window.banner.words.full_text == f"Saved as '{new.name}'. Fit can plan with it."
    action = next(each for each in page.saved.actions() if new.name in each.text())
    action.trigger()
    driver.until(lambda: len(calibrations.saved) == 1, "it is removed")
    assert new.name not in offered(driver)
