"""The window in a subprocess: it imports neither torch nor NVML, and its behaviour without a display."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SHOW = """
import json, sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from devexplorer.gui.shell.app import open_window
qt = QApplication(sys.argv[:1])
FAR = tuple(f"devexplorer.core.{room}" for room in ("machines.host", "machines.ssh", "machines.records",
    "machines.window.machines", "environments.environment"))
def look():
    shown = [window for window in qt.topLevelWidgets() if window.isVisible()]
    if not any(getattr(window, "state", None) and window.state.devices for window in shown):
        return  # the session is not there yet
    names = [window.windowTitle() for window in shown]
    torch = [name for name in sys.modules if name.partition(".")[0] == "torch"]
    far = [name for name in sys.modules if name.startswith(FAR)]
    print(json.dumps({"windows": names, "torch": torch, "far": far}), flush=True)
    timer.stop()
    qt.quit()
timer = QTimer(timeout=look)
timer.start(20)
sys.exit(open_window(virtual_spec="2x Tesla T4"))
"""


ANSWER = """
import json, linecache, os, sys
from devexplorer.gui.shell import main
main.main(["--version"])  # before PySide is imported, as in the application
from devexplorer.gui.shell import launch
from devexplorer.gui.shell import font_scale
from PySide6.QtCore import QTimer
make, known = font_scale.make_application, set(sys.modules)
def look():
    new = {name: sys.modules[name] for name in sys.modules if name.startswith("devexplorer") and name not in known}
    read = [name for name, module in new.items() if getattr(module, "__file__", None) in linecache.cache]
    print(json.dumps({"modules": sorted(sys.modules), "read": read}), flush=True)
    os._exit(0)
def make_application(arguments):
    application = make(arguments)
    QTimer.singleShot(0, lambda: QTimer.singleShot(0, look))
    return application
font_scale.make_application = make_application
launch.launch([])
"""
"""What is loaded when the window has been painted and answers for the first time."""
LATER = re.compile(
    r"torch|typing_extensions|psutil|pynvml|sqlite3|platformdirs|importlib\.metadata|PySide6\.QtNetwork|PySide6\.QtDBus"
    r"|devexplorer\.core\.(engine|commands\.(?!registry)|workspace"
    r"|benchmark|models|virtual|isolation|session\.session)"
    r"|devexplorer\.core\.(doctor|planner|memory|experiments|fleet|split|learn|recording|history|environments|files)\.(?!findings|kinds|(feature|records|serving_records|state|command_line)$)"
    r"|devexplorer\.core\.machines\.(?!(feature|command_line|window|window\.link|window\.words)$)"
    r"|devexplorer\.gui\.\w+\.\w*(page|dialog)|devexplorer\.gui\.charts|devexplorer\.gui\.shell\.(tour|guide)"
)
"""What nothing needs before: the session, pages and dialogs, what runs in other processes."""

CLOSED_EARLY = """
import sys, time
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from devexplorer.gui.shell import app
from devexplorer.gui.widgets import PAINT_MS
qt = QApplication(sys.argv[:1])
def close():
    for window in qt.topLevelWidgets():
        window.close()
def begin():
    QTimer.singleShot(PAINT_MS // 2, close)
    QTimer.singleShot(0, lambda: time.sleep(PAINT_MS / 500))  # now both timers are due in one round
QTimer.singleShot(0, begin)
code = app.open_window()
print("devexplorer.core.session.session" in sys.modules)
sys.exit(code)
"""


SIGNALLED = """
import os, signal, sys
signal.signal(getattr(signal, sys.argv[2]), signal.SIG_DFL)  # nohup leaves SIGHUP ignored
from pathlib import Path
from devexplorer.core.session.session import Session
from devexplorer.gui.shell import app
owner, name = {"making": (app.App, "__init__"), "showing": (app.App, "show"),
               "session": (Session, "__init__"), "starting": (Session, "start")}[sys.argv[1]]
plain = getattr(owner, name)
def signalled(self, *positional, **named):
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    return plain(self, *positional, **named)
setattr(owner, name, signalled)
code = app.open_window(tour=False)
print("ended", code)
"""
"""A signal at a point of the start that a window lives through for a few milliseconds."""


NO_THREADS = """
import sys, threading
from devexplorer.gui.shell import app, launch
class NoThread(threading.Thread):
    def start(self):
        raise RuntimeError("can't start new thread")
show = app.App.show
def shown(self):
    show(self)
    threading.Thread = NoThread
app.App.show = shown
sys.exit(launch.launch([]))
"""


def run(script: str, home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CONFIG_HOME": str(home), **environment}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)


def test_an_open_window_has_no_torch_in_its_process_and_nothing_of_other_machines(tmp_path: Path) -> None:
    done = run(SHOW, tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["torch"] == []
    assert seen["far"] == [], "nothing of other machines is loaded before one is asked for"
    assert any("DevExplorer" in title for title in seen["windows"])


def test_a_window_that_is_closed_as_it_starts_leaves_no_engine(tmp_path: Path) -> None:
    done = run(CLOSED_EARLY, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_start_without_threads_ends_in_one_line_not_in_a_window_that_hears_nothing(tmp_path: Path) -> None:
    result = run(NO_THREADS, tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    [said] = [line for line in result.stderr.splitlines() if line.startswith("devexplorer: ")]
    assert "start no further thread" in said
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("point", ["making", "showing", "session", "starting"])
def test_a_signal_during_the_start_ends_the_window_and_everything_it_started(
    tmp_path: Path, point: str, name: str
) -> None:
    (tmp_path / "temporary").mkdir()
    done = run(SIGNALLED, tmp_path, point, name, TMPDIR=str(tmp_path / "temporary"), SIGNALLED_TEST=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended 0\n", "")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not [process.pid for process in psutil.process_iter() if started_by(process, tmp_path)]


def started_by(process: psutil.Process, home: Path) -> bool:
    try:
        return process.environ().get("SIGNALLED_TEST") == str(home)
    except psutil.Error:  # of another user, or ended
        return False


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a window has loaded when it answers: modules, and those whose source was read."""
    done = run(ANSWER, tmp_path_factory.mktemp("home"))
    assert done.returncode == 0, done.stderr
    result: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_window_answers_before_its_pages_dialogs_and_session_are_loaded(loaded: dict[str, list[str]]) -> None:
    assert "devexplorer.gui.shell.main_window" in loaded["modules"]
    assert [module for module in loaded["modules"] if LATER.match(module)] == []


def test_the_source_of_the_application_is_not_read_at_the_start(loaded: dict[str, list[str]]) -> None:
    assert loaded["read"] == [], "the import of PySide looks for `from __feature__ import` in it"


def test_a_configuration_folder_that_is_a_file_costs_the_layout_and_nothing_else(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    done = run(SHOW, taken)
    assert done.returncode == 0
    assert "settings could not be saved" in done.stderr
    assert "Traceback" not in done.stderr
