"""Sizes follow the system's font."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QSize

from devexplorer.gui.shell.font_scale import scale_for

LARGE = QSize(3840, 2160)


@pytest.mark.parametrize("px", [9.0, 12.0, 13.0, 14.7, 15.0])
def test_the_usual_fonts_of_desktops_change_nothing(px: float) -> None:
    assert scale_for(px, LARGE) == 1.0


def test_a_large_font_enlarges_everything_with_it() -> None:
    assert scale_for(16.0, LARGE) == pytest.approx(1.25)
    assert scale_for(26.0, LARGE) == pytest.approx(2.0)
    scales = [scale_for(px, LARGE) for px in range(8, 40)]
    assert scales == sorted(scales)


def test_the_smallest_window_still_fits_on_the_screen() -> None:
    assert scale_for(26.0, QSize(1366, 768)) == pytest.approx(768 / 650)
    assert scale_for(26.0, QSize(800, 600)) == 1.0


SCRIPT = """
import os, sys
from pathlib import Path
from devexplorer.gui.shell import font_scale
assert "devexplorer.gui.widgets" not in sys.modules, "what is made before the application is made again ends with it"
font_scale.scale_for = lambda px, screen: 1.5
qt = font_scale.make_application(["devexplorer"])
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App
app = App(qt, SettingsFile(Path(sys.argv[1])))
app.show()
qt.processEvents()
print(app.window.devicePixelRatioF(), os.environ.get("QT_SCALE_FACTOR"), font_scale.make_application([]) is qt)
app.stop()
"""


@pytest.mark.parametrize(("given", "said"), [({}, "1.5 None True"), ({"QT_SCALE_FACTOR": "1.25"}, "1.25 1.25 True")])
def test_the_window_is_made_at_that_scale_and_the_users_own_counts_more(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "QT_SCALE_FACTOR"}
    environment |= {"QT_QPA_PLATFORM": "offscreen"} | given
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == said, done.stderr
