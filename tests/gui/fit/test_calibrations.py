"""A card is calibrated in the window: the calibration is saved beside the settings, Fit offers it, and it is removed
again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.calibrations import calibration
from fakes.window import Driver, open_window
from PySide6.QtWidgets import QApplication

from devexplorer.core.planner.calibrate.kind import CalibrateSpec
from devexplorer.core.planner.calibrate.store import FOLDER, CalibrationStore
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.fit.calibrate_page import CalibratePage
from devexplorer.gui.fit.page import FitPanel
from devexplorer.gui.fit.tab import calibrations_of


@pytest.fixture
def driver(qapp: QApplication, tmp_path: Path) -> Iterator[Driver]:
    CalibrationStore(tmp_path / FOLDER).save(calibration({"memory": 0.9}))
    made = open_window(qapp, tmp_path, "Tesla T4", Driver).ready()
    yield made
    made.end()


def offered(driver: Driver) -> list[str]:
    fit = driver.window.bottom_dock.page("fit")
    assert isinstance(fit, FitPanel)
    return [action.text() for action in fit.form.cards_edit.menu.actions() if "calibrated" in action.text()]


def test_from_start_to_fit_and_away_again(driver: Driver, tmp_path: Path) -> None:
    calibrations = calibrations_of(driver.window.context)
    driver.until(lambda: calibrations.saved, "the saved one is read")
    assert offered(driver) == ["Tesla T4 calibrated on 27 Nov 2026"]
    driver.window.bottom_dock.show_page("benchmark")
    panel = driver.window.bottom_dock.page("benchmark")
    assert isinstance(panel, BenchmarkPanel)
    driver.click(panel.rail.choices["calibrate"])
    page = panel.page
    assert isinstance(page, CalibratePage)
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
