"""What does the page Fleet cost? The real window with a thousand simulated machines of eight cards, which the same
process simulates: that is counted too.

    python tests/benchmarks/fleet_window.py [--seconds 30] [--warm-up 15] [--xvfb]

1,024 machines x 8 cards with a reading a second, then 128 x 8 with two; the page fills the window (1440 x 900), half of
the machines shown are unfolded, the cards are sorted by temperature. Lateness: how much longer than asked for a beat
came after the one before. Wanted of the first: p99 at most 16 ms, at most 40 % of one core, at most 1 GiB; of the
second: at most 15 %. Exit code 1 if a target is missed, 2 if it could not be measured. Says the load of the machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES = ((1024, 1.0, 40.0, 16.0, 1024.0), (128, 0.5, 15.0, None, None))
"""Machines, seconds between readings, and what is wanted: per cent of a core, lateness (ms), memory (MiB)."""
CARDS = "8x NVIDIA H100 80GB HBM3"


def main() -> int:
    """Each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm-up", type=float, default=15)
    parser.add_argument("--xvfb", action="store_true", help="on an X server instead of Qt's offscreen platform")
    parser.add_argument("--nodes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--interval", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.nodes is not None:
        print(json.dumps(measure(arguments.nodes, arguments.interval, arguments.seconds, arguments.warm_up)))
        return 0
    if arguments.xvfb and shutil.which("xvfb-run") is None:
        print("--xvfb needs xvfb-run (Debian: apt-get install xvfb)", file=sys.stderr)
        return 2
    reached = True
    for nodes, interval_s, percent, late_ms, memory_mib in CASES:
        command = [sys.executable, __file__, "--nodes", str(nodes), "--interval", str(interval_s)]
        command += ["--seconds", str(arguments.seconds), "--warm-up", str(arguments.warm_up)]
        platform = "offscreen"
        if arguments.xvfb:
            command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
            platform = "xcb"
        environment = {**os.environ, "QT_QPA_PLATFORM": platform}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not done.stdout.strip():
            print(done.stderr.rstrip(), file=sys.stderr)
            return 2
        found = json.loads(done.stdout.strip().splitlines()[-1])
        wanted = (
            (found["percent"], percent, "% of one core"), (found["late_p99_ms"], late_ms, "ms late (p99)"),
            (found["rss_mib"], memory_mib, "MiB"),
        )  # fmt: skip
        parts = []
        for value, limit, unit in wanted:
            missed = limit is not None and value > limit
            reached &= not missed
            parts.append(f"{value:.1f} {unit}{'' if limit is None else f' (wanted: {limit:.0f})'}{' MISSED' * missed}")
        print(
            f"{nodes} x 8 cards every {interval_s:g} s on {platform}: {'; '.join(parts)}; beats late by"
            f" {found['late_p50_ms']:.1f} ms (median), {found['late_max_ms']:.1f} ms at worst; CPU time of a beat"
            f" {found['work_p50_ms']:.1f} ms (median), {found['work_p99_ms']:.1f} ms (p99), {found['work_max_ms']:.1f}"
            f" ms at worst; {found['beats_per_s']:.1f} beats and {found['readings_per_s']:,.0f} readings a second; main"
            f" thread {found['main_percent']:.1f} %; load {found['load']:.1f}"
        )
    return 0 if reached else 1


def measure(nodes: int, interval_s: float, seconds: float, warm_up: float) -> dict[str, Any]:
    """The inner process: the application, timed."""
    import numpy as np
    import psutil
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from devexplorer.core.devices.profiles import parse_virtual
    from devexplorer.core.fleet.simulated import SimulatedFleet
    from devexplorer.core.session.session import Session
    from devexplorer.core.session.settings import SettingsFile
    from devexplorer.gui.fleet.model import HEAT
    from devexplorer.gui.fleet.room import room_of
    from devexplorer.gui.shell.app import App

    gc.disable()
    qt = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        app = App(qt, SettingsFile(Path(folder)), data_folder=Path(folder))
        app.window.resize(1440, 900)
        app.show()
        heart = app.connect(Session())
        gc.freeze()
        context = app.window.context
        context.show_tab("fleet")
        page = app.window.bottom_dock.page("fleet")
        page.filter.setFocus()
        app.window.actions_by_id["enlarge"].trigger()
        room = room_of(context)
        room.open_simulation(SimulatedFleet(nodes, parse_virtual(CARDS), interval_s=interval_s, hurries=True))
        beats: list[tuple[float, float, int]] = []
        readings = [0]
        tick, apply = heart.tick, room.fleet.table.apply

        def counted(events: Any) -> None:
            readings[0] += sum(len(event.samples) for event in events if type(event).__name__ == "Readings")
            apply(events)

        def beat() -> None:
            begun, spent = time.perf_counter(), time.thread_time()
            tick()
            beats.append((begun, time.thread_time() - spent, heart.pause_ms))

        room.fleet.table.apply = counted  # type: ignore[method-assign]
        heart._timer.timeout.disconnect()
        heart._timer.timeout.connect(beat)
        before: list[tuple[float, float, float, int]] = []
        found: dict[str, Any] = {}

        def snapshot() -> tuple[float, float, float, int]:
            return time.monotonic(), time.process_time(), time.thread_time(), readings[0]

        def prepare() -> None:
            page.model.order_by(HEAT, descending=True)
            for line in range(0, 40, 2):
                page.grid.fold(line, open_it=True)

        def begin() -> None:
            beats.clear()
            before.append(snapshot())

        def end() -> None:
            wall, cpu, main_thread, taken = (now - then for now, then in zip(snapshot(), before.pop(), strict=True))
            assert page.isVisible(), "the page was not shown"
            assert len(room.fleet.table.cards) == 8 * nodes, "not every card was there"
            times = np.array([begun for begun, _, _ in beats])
            late = np.maximum(np.diff(times) * 1000 - np.array([pause for _, _, pause in beats[:-1]]), 0)
            work = 1000 * np.array([spent for _, spent, _ in beats])
            found.update(
                percent=100 * cpu / wall, main_percent=100 * main_thread / wall, readings_per_s=taken / wall,
                beats_per_s=len(beats) / wall, late_p50_ms=float(np.median(late)),
                late_p99_ms=float(np.percentile(late, 99)), late_max_ms=float(late.max()),
                work_p50_ms=float(np.median(work)), work_p99_ms=float(np.percentile(work, 99)),
                work_max_ms=float(work.max()),
                rss_mib=psutil.Process().memory_info().rss / 2**20, load=os.getloadavg()[0],
            )  # fmt: skip
            qt.exit()

        for at, action in ((warm_up * 0.6, prepare), (warm_up, begin), (warm_up + seconds, end)):
            QTimer.singleShot(round(at * 1000), action)
        qt.exec()
        app.stop()
    assert found["readings_per_s"] > 0.8 * 8 * nodes / interval_s, "the cards were not read as often as wanted"
    return found


if __name__ == "__main__":
    sys.exit(main())
