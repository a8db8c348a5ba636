"""Windows come back where they were on each screen, and always inside one that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LAPTOP = ("eDP-1", 0, 0, 1366, 768)
RIGHT = ("HDMI-1", 1366, 0, 1920, 1080)
LEFT = ("HDMI-1", -1920, 0, 1920, 1080)
LARGER = ("eDP-1", 0, 0, 2560, 1440)
SMALL = ("VGA-1", 0, 0, 800, 600)

DESK = """
import json, sys
import msgspec
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from devexplorer.core.session.settings import Settings
from devexplorer.gui.shell.panel_room import WindowPlaces
app = QApplication(sys.argv)
known, moves = json.loads(sys.argv[1])
places = WindowPlaces(msgspec.convert({"places": known}, Settings).places)
window = QWidget()
places.restore(window)
window.show()
app.processEvents()
came = [window.screen().name(), *window.normalGeometry().getRect(), window.isMaximized()]
inside = any(screen.availableGeometry().contains(window.geometry()) for screen in app.screens())
for x, y, width, height, maximised in moves:
    window.showNormal()
    window.setGeometry(x, y, width, height)
    app.processEvents()
    if maximised:
        window.showMaximized()
    app.processEvents()
    places.remember(window)
print(json.dumps([came, inside, msgspec.to_builtins(places.places)]))
"""
Screen = tuple[str, int, int, int, int]


def session(
    folder: Path, screens: list[Screen], known: object, *moves: tuple[int, int, int, int, bool]
) -> list[object]:
    """A window that is moved there, on these screens; returns where it came up, whether inside, and what is kept."""
    names = ("name", "x", "y", "width", "height")
    more = {"logicalDpi": 96, "logicalBaseDpi": 96, "dpr": 1}
    file = folder / "screens.json"
    file.write_text(json.dumps({"screens": [{**dict(zip(names, one, strict=True)), **more} for one in screens]}))
    done = subprocess.run(
        [sys.executable, "-c", DESK, json.dumps([known, moves])],
        env={**os.environ, "QT_QPA_PLATFORM": f"offscreen:configfile={file}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def test_a_window_comes_back_on_its_screen_or_inside_another(tmp_path: Path) -> None:
    _, _, known = session(tmp_path, [LAPTOP, RIGHT], {}, (100, 50, 1000, 600, False), (1600, 100, 1500, 900, True))
    came, inside, _ = session(tmp_path, [LAPTOP, RIGHT], known)
    assert came == ["HDMI-1", 1600, 100, 1500, 900, True]
    assert inside
    came, *_ = session(tmp_path, [LEFT, LAPTOP], known)
    assert came == ["HDMI-1", -1686, 100, 1500, 900, True], "the screen stands on the other side now"
    came, inside, _ = session(tmp_path, [LAPTOP], known)
    assert came == ["eDP-1", 100, 50, 1000, 600, False], "where it was on this one"
    came, inside, known = session(tmp_path, [SMALL], known, (10, 10, 300, 200, False))
    assert came == ["VGA-1", 0, 0, 800, 600, True], "one that it has never been on"
    assert inside
    came, *_ = session(tmp_path, [LARGER], known)
    assert came == ["eDP-1", 10, 10, 300, 200, False], "another size is another screen"
