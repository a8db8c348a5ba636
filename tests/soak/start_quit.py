"""Starts the window and ends it after a random delay, by closing it or by a signal, again and again; every exit code
must be 0 and no process may be left.

python tests/soak/start_quit.py [--times 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time

import psutil

CHILD = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: os._exit(77))  # the window does not listen yet: nothing has begun
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from devexplorer.gui.shell.app import open_window
qt = QApplication(sys.argv[:1])
if int(sys.argv[1]) >= 0:
    close = lambda: [window.close() for window in qt.topLevelWidgets() if window.windowTitle()]
    QTimer.singleShot(int(sys.argv[1]), close)
    QTimer.singleShot(int(sys.argv[1]) + 1, qt.quit)  # also when the window was not there yet
sys.exit(open_window(virtual_spec=sys.argv[2] or None))
"""
UNHEARD = 77
"""Exit code of a child that got its signal before the window listened."""
LONGEST_MS = 4000
"""Past the engine's start, which takes about 2 s."""


TOKEN = "DEVEXPLORER_SOAK"


def has(process: psutil.Process, name: str, value: str) -> bool:
    """Whether a process has this environment variable; an unreadable one belongs to another user or has ended."""
    try:
        return process.environ().get(name) == value
    except psutil.Error:
        return False


def main() -> int:
    """Run; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    token = f"{os.getpid()}-{time.time()}"  # inherited by all processes of the window
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", TOKEN: token}
    bad = 0
    for number in range(arguments.times):
        delay = rng.randrange(LONGEST_MS)
        spec = rng.choice(["", "2x Tesla T4"])
        started = time.monotonic()
        way = rng.choice(["closed", "SIGTERM", "SIGHUP"])
        command = [sys.executable, "-c", CHILD, str(delay if way == "closed" else -1), spec]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as window:
            if way != "closed":
                time.sleep(delay / 1000)
                window.send_signal(getattr(signal, way))
            _, said = window.communicate(timeout=60)
        over = time.monotonic() - started - delay / 1000
        left = [process.pid for process in psutil.process_iter() if has(process, TOKEN, token)]
        if window.returncode not in (0, UNHEARD) or left or said:
            bad += 1
            print(f"{number}: {way} after {delay} ms: exit code {window.returncode}, engines left {left}\n{said}")
        else:
            print(f"{number}: {way} after {delay} ms: {over:.1f} s for starting and ending")
    print(f"{arguments.times - bad} of {arguments.times} ended well")
    return bad


if __name__ == "__main__":
    sys.exit(main())
