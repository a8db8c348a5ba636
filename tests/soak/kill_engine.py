"""Kills the engine at random moments under load: a CPU benchmark, eight virtual GPUs, a model moved back and forth.
Every other time a child forked by the engine holds its pipes. The window must survive, report it, restart the engine
and rebuild the workspace; at the end no process may be left.

    python tests/soak/kill_engine.py [--times 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QEventLoop
from PySide6.QtWidgets import QApplication

from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.records import Event, MatmulSpec
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App

FORKING = """
import os, time
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
from devexplorer.core.engine.__main__ import main
main()
"""
MODEL = "resnet18"


def main() -> int:
    """Run; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    gc.disable()
    qt = QApplication(sys.argv[:1])
    engines: list[EngineProcess] = []

    def make(put: Callable[[Event], None], spec: str | None, visible: str | None) -> EngineProcess:
        command = [sys.executable, "-c", FORKING] if len(engines) % 2 else None
        engines.append(EngineProcess(put, virtual_spec=spec, visible_devices=visible, command=command))
        return engines[-1]

    with tempfile.TemporaryDirectory() as folder:
        app = App(qt, SettingsFile(Path(folder)), data_folder=Path(folder))
        app.show()
        app.connect(Session(virtual_spec="8x Tesla T4", make_engine=make))
        failures = 0
        try:
            wait(qt, lambda: app.state.engine is not None, "the engine is ready")
            app.controller.build(MODEL)
            wait(qt, lambda: MODEL in app.state.objects and not app.state.jobs, "the model is built")
            for number in range(arguments.times):
                load(qt, app)
                spin(qt, rng.uniform(0.0, 1.5))
                failures += one_death(qt, app, engines, number)
        finally:
            app.stop()
    left = [p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    print(f"{arguments.times - failures} of {arguments.times} deaths survived, processes left: {left or 'none'}")
    return failures + len(left)


def one_death(qt: QApplication, app: App, engines: list[EngineProcess], number: int) -> int:
    """Kill the engine and check that everything is restored; returns 1 if not."""
    pid, made = engines[-1].pid, len(engines)
    assert pid is not None
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    try:
        wait(qt, lambda: app.state.engine is None, "the window says that the engine ended", 10)
        said = app.window.banner.isVisible() and "SIGKILL" in app.window.banner.words.full_text
        if app.state.engine_words == "engine stopped":
            app.window.status.start.click()
        wait(qt, lambda: len(engines) > made and app.state.engine is not None, "another engine is ready", 60)
        wait(qt, lambda: MODEL in app.state.objects, "the model is back", 60)
        wait(
            qt,
            lambda: app.state.answer is not None and app.state.answer.title == "The workspace was rebuilt",
            "and it is said",
            60,
        )
    except TimeoutError as error:
        print(f"{number}: {error}")
        return 1
    alive = [p.pid for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    back = time.monotonic() - started
    print(
        f"{number}: {len(family)} processes ended, back after {back:.1f} s, said: {said}, left alive: {alive or 'none'}"
    )
    return int(bool(alive) or not said)


def load(qt: QApplication, app: App) -> None:
    """A CPU benchmark, one on a virtual GPU, and a few moves in progress."""
    for device in ("cpu", "vgpu:3"):
        app.controller.benchmark([MatmulSpec(device=device, m=512, n=512, k=512, seconds=60)])
    for device in ("vgpu:1", "cpu", "vgpu:2"):
        app.controller.move(device, [MODEL])
    wait(qt, lambda: bool(app.state.active_runs), "a benchmark runs")


def wait(qt: QApplication, happened: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Run the event loop until a condition holds."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        spin(qt, 0.01)


def spin(qt: QApplication, seconds: float) -> None:
    """Run the window for a while."""
    end = time.monotonic() + seconds
    while True:
        qt.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 10)
        if time.monotonic() >= end:
            return
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main())
