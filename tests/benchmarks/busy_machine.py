"""Does the engine make progress next to other programs, and is the window smooth? Eight processes in a separate session
keep every core busy; three engines alternate: one that never yields, one that always does (as it used to), and the
current one. Linux with autogroup.

    python tests/benchmarks/busy_machine.py [--load 8] [--rounds 3] [--seconds 8]

Of each: seconds until the engine is ready, seconds of a forward of `mlp` (median of 5), TFLOP/s of a product on the
CPU, and how late the heartbeat is meanwhile. Wanted: at most 1.5 times the seconds of the engine that never yields,
heartbeat no later than with the one that always does."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.records import Event, MatmulSpec
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App
from devexplorer.gui.shell.heartbeat import BEAT_MS

VARIANTS = ("never", "always", "now")
BUSY = "import os\nwhile os.getppid() == {parent}: sum(range(10000))"
ALWAYS = "import os; os.nice(10); open('/proc/self/autogroup', 'w').write('10'); "
MAIN = "import devexplorer.core.engine.__main__ as engine; engine.main()"


class Fixed(EngineProcess):
    """An engine that the window cannot ask to yield."""

    def set_group_nice(self, nice: int) -> bool:
        """Not this one."""
        return False


def one(variant: str, seconds: float) -> dict[str, float]:
    """Open the window with this engine and measure."""
    command = [sys.executable, "-P", "-c", (ALWAYS if variant == "always" else "") + MAIN]

    def engine(put: Callable[[Event], None], spec: str | None, visible: str | None) -> EngineProcess:
        kind = EngineProcess if variant == "now" else Fixed
        return kind(put, virtual_spec=spec, visible_devices=visible, command=command)

    gc.disable()
    qt = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        app = App(qt, SettingsFile(Path(folder)), data_folder=Path(folder))
        app.show()
        began = time.perf_counter()
        heart = app.connect(Session(virtual_spec="2x Tesla T4", make_engine=engine))
        beats: list[float] = []
        heart.beaten.connect(lambda: beats.append(time.perf_counter()))

        def wait(happened: Callable[[], object]) -> float:
            while not happened() and time.perf_counter() - began < 300:
                qt.processEvents()
                time.sleep(0.002)
            return time.perf_counter()

        start_s = wait(lambda: app.state.engine is not None) - began
        app.controller.build("mlp")
        wait(lambda: "mlp" in app.state.objects and not app.state.jobs)
        app.window.objects.select("mlp")
        forwards = []
        for _ in range(5):
            done, asked = app.state.done_count, time.perf_counter()
            app.controller.forward()
            forwards.append(wait(lambda done=done: app.state.done_count > done) - asked)
        app.controller.benchmark([MatmulSpec(device="cpu", m=512, n=512, k=512, seconds=seconds)])
        wait(lambda: any(run.points for run in app.state.runs.values()))
        beats.clear()
        QTimer.singleShot(int(seconds * 1000), qt.exit)
        qt.exec()
        run = next(iter(app.state.runs.values()))
        wait(lambda: run.ended)
        app.stop()
    late = np.maximum(np.diff(beats) * 1000 - BEAT_MS, 0)
    tflops = run.result.tflops.median if run.result is not None and run.result.tflops is not None else float("nan")
    return {
        "start_s": start_s, "forward_s": statistics.median(forwards), "tflops": tflops,
        "late_p50_ms": float(np.percentile(late, 50)), "late_p99_ms": float(np.percentile(late, 99)),
    }  # fmt: skip


def main() -> dict[str, dict[str, float]]:
    """Medians of each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(one(arguments.one, arguments.seconds)))
        return {}
    groups = Path("/proc/sys/kernel/sched_autogroup_enabled")
    print(
        f"load {arguments.load} in another session, autogroup"
        f" {groups.read_text().strip() if groups.exists() else 'absent'}",
        flush=True,
    )
    busy = (
        "import os, subprocess, sys, time\n[subprocess.Popen([sys.executable, '-c',"
        f" {BUSY!r}.format(parent=os.getpid())])"
    )
    busy += f" for _ in range({arguments.load})]\nsys.stdin.read()"
    load = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True, stdin=subprocess.PIPE)
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    try:
        for _ in range(arguments.rounds):
            for variant in VARIANTS:
                command = [sys.executable, __file__, "--one", variant, "--seconds", str(arguments.seconds)]
                done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
                found[variant].append(json.loads(done.stdout.splitlines()[-1]))
                print(
                    f"  {variant}: " + ", ".join(f"{name} {value:.3g}" for name, value in found[variant][-1].items()),
                    flush=True,
                )
    finally:
        load.kill()
        load.wait()
    medians = {
        name: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        for name, rounds in found.items()
        if rounds
    }
    for name, values in medians.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in values.items()))
    never, now = medians["never"], medians["now"]
    print(
        "now against never: "
        + ", ".join(f"{key} {now[key] / never[key]:.2f} times" for key in ("start_s", "forward_s", "tflops"))
    )
    return medians


if __name__ == "__main__":
    main()
