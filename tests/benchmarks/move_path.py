"""The files that a move passes through, from the key press to the redrawn tree: `python tests/benchmarks/move_path.py`.

The real window with the real engine in this process; a profile hook records every product function that runs on the
main and the jobs thread between the key press and the tree. Two lists: the files in which a function receives the
command, one of its events or its report, which is the path itself; and all files with a function that does not run in
an idle window. The third move is traced, to exclude one-time initialisation. The code between the two processes
(`process.py`, `__main__.py` of the engine) is not included."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.window import Driver, open_window  # noqa: E402
from PySide6.QtCore import Qt  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

from devexplorer.core.records import MoveReport  # noqa: E402
from devexplorer.core.records.base import BaseCommand, BaseEvent  # noqa: E402
from devexplorer.core.workspace.command_result import CommandResult  # noqa: E402

THREADS = ("MainThread", "jobs")
CARRIED = (BaseCommand, BaseEvent, MoveReport, CommandResult)
Functions = dict[str, dict[str, None]]
"""File -> names of its functions, both in the order of their first run."""


class Trace:
    """Records the functions that run while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.all: Functions = {}
        self.carrying: Functions = {}

    def hook(self, frame: FrameType, event: str, argument: Any) -> None:
        """The profile function of every thread."""
        if not self.on or event != "call" or threading.current_thread().name not in THREADS:
            return
        file = os.path.realpath(frame.f_code.co_filename)
        if not file.startswith((f"{ROOT}/core/", f"{ROOT}/gui/")):
            return
        file, code = file.removeprefix(f"{ROOT}/"), frame.f_code
        self.all.setdefault(file, {})[code.co_qualname] = None
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(_carries(frame.f_locals[name]) for name in given):
            self.carrying.setdefault(file, {})[code.co_qualname] = None

    def forget(self) -> None:
        """Reset."""
        self.all, self.carrying = {}, {}


def _carries(value: object) -> bool:
    items: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(item, CARRIED) for item in items)


def _print(title: str, functions: Functions) -> None:
    print(f"{title}: {len(functions)} files")
    for number, (file, names) in enumerate(functions.items(), start=1):
        print(f"{number:4} {file}: {', '.join(names)}")


def main() -> None:
    """Print both lists."""
    trace = Trace()
    threading.setprofile(trace.hook)
    application = QApplication([])
    control = Qt.KeyboardModifier.ControlModifier
    with tempfile.TemporaryDirectory() as folder:
        driver = open_window(application, Path(folder), "2x Tesla T4", Driver).ready()
        driver.build("mlp")
        driver.select("mlp")
        for key, device in ((Qt.Key.Key_1, "vgpu:0"), (Qt.Key.Key_2, "vgpu:1")):
            driver.key(key, control)
            driver.on("mlp", device)
        sys.setprofile(trace.hook)
        trace.on = True
        for _ in range(100):
            driver.heartbeat.tick()
            QApplication.processEvents()
        idle = trace.all
        trace.forget()
        driver.key(Qt.Key.Key_1, control)
        driver.on("mlp", "vgpu:0")
        trace.on = False
        sys.setprofile(None)
        driver.end()
    moved = {
        file: {name: None for name in names if name not in idle.get(file, {})} for file, names in trace.all.items()
    }
    _print("given the command, an event or the report", trace.carrying)
    _print(
        "with a function that does not run in an idle window", {file: names for file, names in moved.items() if names}
    )


if __name__ == "__main__":
    main()
