"""How long does another layout take to appear? From the click to the end of the turn of the event loop that
paints it, for the first time and afterwards; and the other arrangement of Explore and Learn, when the window becomes
low or high.

    python tests/benchmarks/layout_switch.py [--rounds 5] [--cards 8]

The real application with its engine and virtual GPUs, 1440 × 900, on Qt's offscreen platform; wall time and CPU time of
the main thread, medians. Pages and plots that are new are made after the paint, each in a turn of the event loop of its
own; the longest turn of the next 0.7 s is printed, too. Wanted: all of it below 100 ms. First times load modules, and
compile them where nothing keeps bytecode: run it twice, without PYTHONDONTWRITEBYTECODE; what pip installs has its
bytecode. Exit code 1 where something is above.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
WANTED_MS = 100.0
WIDTH_PX, HEIGHT_PX = 1440, 900
READINGS_S = 8.0
"""So long the window stands before it is measured: devices are known, and have readings."""


def main() -> int:
    """Print a line for each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cards", type=int, default=8)
    arguments = parser.parse_args()
    from PySide6.QtCore import QEvent, QObject
    from PySide6.QtWidgets import QApplication

    from devexplorer.core.session.session import Session
    from devexplorer.core.session.settings import SettingsFile
    from devexplorer.gui.shell.app import App
    from devexplorer.gui.shell.layouts import LAYOUTS, LOW_PX

    class Paints(QObject):
        """Sees when a window paints what has changed."""

        seen = 0

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            self.seen += event.type() == QEvent.Type.UpdateRequest
            return False

    qt = QApplication(sys.argv[:1])

    def rest(seconds: float) -> float:
        """The longest turn of the event loop, in milliseconds."""
        end, longest = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            begun = time.perf_counter()
            qt.processEvents()
            longest = max(longest, time.perf_counter() - begun)
            time.sleep(0.01)
        return 1000 * longest

    took: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        app = App(qt, SettingsFile(Path(folder)), "dark", Path(folder) / "history.sqlite3")
        app.window.resize(WIDTH_PX, HEIGHT_PX)
        app.show()
        paints = Paints()
        app.window.installEventFilter(paints)
        app.connect(Session(virtual_spec=f"{arguments.cards}x Tesla T4"))
        rest(READINGS_S)
        layouts = [*LAYOUTS[1:], LAYOUTS[0]]  # the first one is shown

        def measure(title: str, change: Callable[[], None]) -> None:
            wall, cpu = time.perf_counter(), time.thread_time()
            paints.seen = 0
            change()
            while not paints.seen:
                qt.processEvents()
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            took[title].append((1000 * wall, 1000 * cpu, rest(0.7)))

        for _ in range(arguments.rounds + 1):
            for layout in layouts:
                measure(layout.title, partial(app.window.workbench.show_layout, layout.name))
                if layout.low is not None:
                    for height in (LOW_PX - 1, HEIGHT_PX):
                        resize = partial(app.window.resize, WIDTH_PX, height)
                        measure(f"{layout.title}, {height} pixels high", resize)
        app.stop()
    slowest = 0.0
    for title, (first, *later) in took.items():
        usual = [statistics.median(times) for times in zip(*later, strict=True)]
        lines = []
        for when, (wall, cpu, longest) in (("first", first), ("then", usual)):
            slowest = max(slowest, wall, longest)
            lines.append(f"{when} {wall:.0f} ms (CPU {cpu:.0f}), turns after it at most {longest:.0f}")
        print(f"{title}: {'; '.join(lines)}")
    return slowest > WANTED_MS


if __name__ == "__main__":
    sys.exit(main())
