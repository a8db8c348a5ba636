"""The window in a subprocess: it imports neither torch nor NVML, and its behaviour without a display."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SHOW = """
import json, sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from devexplorer.gui.shell.app import open_window
qt = QApplication(sys.argv[:1])
FAR = tuple(f"devexplorer.core.{room}" for room in ("machines", "host", "ssh", "environments"))
def look():
    names = [window.windowTitle() for window in qt.topLevelWidgets() if window.isVisible()]
    torch = [name for name in sys.modules if name.partition(".")[0] == "torch"]
    far = [name for name in sys.modules if name.startswith(FAR)]
    print(json.dumps({"windows": names, "torch": torch, "far": far}), flush=True)
    qt.quit()
QTimer.singleShot(1500, look)
sys.exit(open_window(virtual_spec="2x Tesla T4"))
"""


def run(script: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CONFIG_HOME": str(home), **environment}
    return subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_open_window_has_no_torch_in_its_process_and_nothing_of_other_machines(tmp_path: Path) -> None:
    done = run(SHOW, tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["torch"] == []
    assert seen["far"] == [], "nothing of other machines is loaded before one is asked for"
    assert any("DevExplorer" in title for title in seen["windows"])


def test_a_configuration_folder_that_is_a_file_costs_the_layout_and_nothing_else(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    done = run(SHOW, taken)
    assert done.returncode == 0
    assert "settings could not be saved" in done.stderr
    assert "Traceback" not in done.stderr
