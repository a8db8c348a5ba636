"""How much of the program runs: in an idle second and a half of the window, for a move, and for a benchmark.

    python tests/benchmarks/paths.py [--list idle|move|benchmark]

The real window with the real engine in this process, eight fake cards and two virtual GPUs. A profile function notes
each function of the product that runs, on every thread. For the move, from the key press to the redrawn tree, and for
the benchmark, from Start to the stored run, those are counted that do not run on the same thread in an idle window;
threads that only read devices are left out. The third move is traced, and the first benchmark. What runs in other
processes (the code between window and engine, `process.py`, `__main__.py`) is not seen. Python 3.11 counts a
comprehension as a function, 3.12 does not.

Wanted: at most as many files and functions as `MOST` says. Exit code 1 if there are more."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.nvml import FakeCard  # noqa: E402
from fakes.window import Driver, open_window  # noqa: E402
from PySide6.QtCore import Qt  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

CARDS = 8
SETTLE_S, SELDOM_S, IDLE_S, AFTERWARDS_S, BEAT_S = 2.0, 5.0, 1.5, 1.0, 0.03
"""`SELDOM_S`: some of what an idle window does happens only once in a few seconds."""
READERS = ("sampler", "nvml-")
"""Threads that read devices, whatever else happens."""
PRODUCT = (f"{ROOT}/core/", f"{ROOT}/gui/")


class Most(NamedTuple):
    """The limits of one path; None: any number."""

    files: int
    functions: int | None = None


MOST = {"idle": Most(40, 120), "move": Most(50), "benchmark": Most(60)}
Place = tuple[str, str, str]
"""Thread, file, function."""


class Trace:
    """Notes the functions that run while `on`."""

    def __init__(self) -> None:
        self.on = False
        self._seen: dict[Place, None] = {}

    def hook(self, frame: FrameType, event: str, argument: Any) -> None:
        """The profile function of every thread."""
        if not self.on or event != "call":
            return
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(PRODUCT):
            thread = threading.current_thread().name
            self._seen[thread, file.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname] = None

    def of(self, work: Callable[[], object]) -> list[Place]:
        """What runs while this works, in the order of the first run."""
        self._seen = {}
        self.on = True
        work()
        self.on = False
        return list(self._seen)


def beat(driver: Driver, seconds: float) -> None:
    """The window with nothing to do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()
        driver.heartbeat.tick()
        time.sleep(BEAT_S)


def move(driver: Driver, key: Qt.Key, device: str) -> None:
    """By its key, to the redrawn tree."""
    driver.key(key, Qt.KeyboardModifier.ControlModifier)
    driver.on("mlp", device)


def benchmark(driver: Driver, panel: Any) -> None:
    """From Start until the run is stored."""
    panel.matmul.start()
    driver.until(lambda: driver.state.runs and not driver.state.active_runs, "a run")
    beat(driver, AFTERWARDS_S)


def measured() -> dict[str, list[Place]]:
    """What ran on each path; of those after idle without what runs then."""
    trace = Trace()
    threading.setprofile(trace.hook)
    application = QApplication([])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        cards = [FakeCard(uuid=f"GPU-{number}", bus_id=f"00000000:0{number}:00.0") for number in range(CARDS)]
        driver = open_window(application, Path(folder), "2x Tesla T4", Driver, cards=cards).ready()
        driver.build("mlp")
        driver.select("mlp")
        move(driver, Qt.Key.Key_1, "vgpu:0")
        move(driver, Qt.Key.Key_2, "vgpu:1")
        beat(driver, SETTLE_S)
        sys.setprofile(trace.hook)
        seldom = trace.of(lambda: beat(driver, SELDOM_S))
        idle = trace.of(lambda: beat(driver, IDLE_S))
        moved = trace.of(lambda: move(driver, Qt.Key.Key_1, "vgpu:0"))
        panel: Any = driver.window.context.show_tab("benchmark")
        panel.matmul.size_edit.setText("64")
        panel.matmul.seconds_edit.setText("0.5")
        beat(driver, AFTERWARDS_S)
        ran = trace.of(lambda: benchmark(driver, panel))
        sys.setprofile(None)
        driver.end()
    when_idle = {*seldom, *idle}

    def beyond(places: list[Place]) -> list[Place]:
        return [place for place in places if place not in when_idle and not place[0].startswith(READERS)]

    return {"idle": idle, "move": beyond(moved), "benchmark": beyond(ran)}


def report(paths: dict[str, list[Place]]) -> int:
    """Print a table; returns 1 if a limit is exceeded."""
    exceeded = False
    print(f"{'':10} {'files':>6} {'wanted':>7} {'functions':>10} {'wanted':>7}  by thread")
    for name, places in paths.items():
        most = MOST[name]
        files, functions = len({file for _, file, _ in places}), len({place[1:] for place in places})
        threads = dict.fromkeys(thread for thread, _, _ in places)
        by_thread = ", ".join(f"{one} {sum(place[0] == one for place in places)}" for one in threads)
        print(f"{name:10} {files:6} {most.files:7} {functions:10} {most.functions or '':>7}  {by_thread}")
        exceeded |= files > most.files or (most.functions is not None and functions > most.functions)
    return int(exceeded)


def print_functions(places: list[Place]) -> None:
    """Each file with its functions, in the order of their first run."""
    files: dict[str, dict[str, None]] = {}
    for _, file, function in places:
        files.setdefault(file, {})[function] = None
    for number, (file, functions) in enumerate(files.items(), start=1):
        print(f"{number:4} {file}: {', '.join(functions)}")


def main() -> int:
    """Trace, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=MOST, help="also print the files and functions of this path")
    arguments = parser.parse_args()
    paths = measured()
    if arguments.list:
        print_functions(paths[arguments.list])
    return report(paths)


if __name__ == "__main__":
    sys.exit(main())
