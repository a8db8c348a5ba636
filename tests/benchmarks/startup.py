"""How long until the window is shown and responds, against a bare pyqtgraph window? Each in a subprocess, alternating.

    python tests/benchmarks/startup.py [--times 9]

Time from the start of the interpreter to the first event that the window has handled after it was painted. Wanted: a
ratio of 1.2 at most. On a busy machine the ratio of the CPU times says more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

ANSWERED = """
def answered():
    print(time.time(), time.process_time(), "torch" in sys.modules, flush=True)
    os._exit(0)
"""
BARE = (
    """
import os, sys, time
import pyqtgraph as pg
"""
    + ANSWERED
    + """
from PySide6.QtCore import QTimer
app = pg.mkQApp()
plot = pg.PlotWidget()
plot.plot([1.0, 2.0], [1.0, 3.0])
plot.resize(1440, 900)
plot.show()
QTimer.singleShot(0, lambda: QTimer.singleShot(0, answered))
app.exec()
"""
)
OURS = (
    """
import os, sys, time
"""
    + ANSWERED
    + """
import importlib.util
from devexplorer.gui.shell import main as entry

class Watch:
    # hooks the window when the application itself imports it

    def find_spec(self, name, path=None, target=None):
        if name != "devexplorer.gui.shell.main_window":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            shown = module.MainWindow.showEvent

            def show_event(window, event):
                shown(window, event)
                from PySide6.QtCore import QTimer  # by now: not before the application imports it
                QTimer.singleShot(0, lambda: QTimer.singleShot(0, answered))

            module.MainWindow.showEvent = show_event

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Watch())
entry.main([])
"""
)


def once(script: str, home: str) -> tuple[float, float]:
    """Seconds until the window responds, and of CPU time (user and system) until then."""
    environment = {
        **os.environ,
        "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen"),
        "XDG_CONFIG_HOME": home,
        "XDG_STATE_HOME": home,
        # As installed: pip compiles packages. Without this a source tree would be compiled at each start.
        "PYTHONPYCACHEPREFIX": os.path.join(home, "pycache"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.time()
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    answered, cpu, has_torch = done.stdout.split()[-3:]
    assert has_torch == "False", "the window has imported torch"
    return float(answered) - started, float(cpu)


def main() -> dict[str, float]:
    """Medians in seconds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    arguments = parser.parse_args()
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as home:
        for script in (BARE, OURS):
            once(script, home)  # compiles what is imported, warms the page cache
        for _ in range(arguments.times):
            bare.append(once(BARE, home))
            ours.append(once(OURS, home))
    (ours_s, ours_cpu_s), (bare_s, bare_cpu_s) = (
        map(statistics.median, zip(*runs, strict=True)) for runs in (ours, bare)
    )
    result = {
        "ours_s": ours_s,
        "bare_s": bare_s,
        "ratio": ours_s / bare_s,
        "ours_cpu_s": ours_cpu_s,
        "bare_cpu_s": bare_cpu_s,
        "cpu_ratio": ours_cpu_s / bare_cpu_s,
    }
    print(
        f"window answers after {ours_s:.3f} s, bare pyqtgraph window after {bare_s:.3f} s, ratio {result['ratio']:.2f};"
        f" CPU time {ours_cpu_s:.3f} s and {bare_cpu_s:.3f} s, ratio {result['cpu_ratio']:.2f};"
        f" load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return result


if __name__ == "__main__":
    main()
