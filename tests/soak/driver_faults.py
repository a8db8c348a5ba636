"""Every NVML function in turn hangs, fails with every code, returns nonsense and loses its card; checks what is shown.
Prints a table.

    python tests/soak/driver_faults.py [--surface devices|watch|window ...] [--codes all|few]

Everything is about 7,000 runs and takes about five minutes; `window` is the real window, offscreen, fed by the window's
own sampler, with three codes for each function. `fakes.driver_faults` describes the checks. The exit code is the number
of wrong runs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes import driver_faults
from fakes.driver_faults import ERROR_CODES, ILL, LIMIT_S, WELL, Bench, Case, cases
from fakes.nvml_library import CannotBuildError, NvmlLibrary, build

from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.records import DeviceDetails, DeviceSample

LONGEST_S = 0.9
"""Time for the window's sampler to read everything of the healthy card."""
FEW = (3, 15, 999)
"""Not supported, lost, unknown."""


def main() -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--surface", nargs="+", choices=("devices", "watch", "window"), default=["devices", "watch", "window"]
    )
    parser.add_argument("--codes", choices=("all", "few"), default="all")
    arguments = parser.parse_args()
    surfaces = tuple(arguments.surface)
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = NvmlLibrary(build(Path(folder)))
        except CannotBuildError as error:
            print(f"cannot be run here: {error}")
            return 0
        if "window" in surfaces:
            driver_faults.SURFACES["window"] = Window().shown
        with library.in_pynvml():
            bench = Bench(library, timed=True)
            many = ERROR_CODES if arguments.codes == "all" else FEW
            todo = [
                case
                for surface in surfaces
                for case in cases(library, (surface,), FEW if surface == "window" else many)
            ]
            wrong = run(bench, todo)
    return wrong


def run(bench: Bench, todo: list[Case]) -> int:
    """Run each case; print a line for each wrong one, then the table."""
    runs: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    started = time.monotonic()
    for case in todo:
        outcome = bench.run_case(case)
        key = (case.surface, case.kind)
        runs[key] += 1
        seconds[key].append(outcome.seconds)
        if outcome.wrong:
            bad[key] += 1
            print(f"{case} -> {'; '.join(outcome.wrong)[:400]}", flush=True)
    print(f"{sum(runs.values())} runs in {time.monotonic() - started:.0f} s; a call may take {LIMIT_S:g} s here")
    print(f"{'surface':<9} {'fault':<9} {'runs':>6} {'wrong':>6} {'longest':>9}")
    for surface, kind in runs:
        print(
            f"{surface:<9} {kind:<9} {runs[surface, kind]:>6} {bad[surface, kind]:>6}"
            f" {max(seconds[surface, kind]):>7.2f} s"
        )
    return sum(bad.values())


class Window:
    """The real window, offscreen, without an engine. `shown` lets the window's sampler read until everything has been
    read or given up."""

    def __init__(self) -> None:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
        from PySide6.QtWidgets import QApplication

        from devexplorer.core.session.settings import SettingsFile
        from devexplorer.gui.shell.app import App

        self.qt = QApplication.instance() or QApplication([])
        gc.disable()  # as in the application: only the main thread collects
        self.folder = tempfile.TemporaryDirectory()
        self.app = App(
            self.qt,
            SettingsFile(Path(self.folder.name) / "settings.json"),
            "dark",
            Path(self.folder.name) / "runs.sqlite",
        )
        self.app.show()

    def shown(self) -> dict[str, Any]:
        """Device -> the last sample, and its texts in the window's cards."""
        from devexplorer.core.telemetry.sampler import Sampler

        events: list[Any] = []
        told: list[Any] = []
        lock = threading.Lock()
        cpu = CpuReader()
        nvml = driver_faults._nvml()

        def on_cards(*found: Any) -> None:
            with lock:
                told.append(found)

        sampler = Sampler(
            events.append, nvml, cpu, interval_s=0.01, on_cards=on_cards, patience_s=0.05, call_limit_s=LIMIT_S
        )
        sampler.start()
        state, window = self.app.state, self.app.window
        samples: dict[str, DeviceSample] = {}
        details: dict[str, DeviceDetails] = {}
        after: Counter[str] = Counter()
        """Samples of each card after its details: the second one has all values."""
        until = time.monotonic() + LONGEST_S
        try:
            while time.monotonic() < until:
                with lock:
                    cards, told[:] = list(told), []
                changes = (
                    state.set_catalog(join(cpu.info(), cards[-1][0], (), problems=cards[-1][1])) if cards else None
                )
                for event in [events.pop(0) for _ in range(len(events))]:
                    found = state.apply(event)
                    changes = found if changes is None else changes | found
                    if isinstance(event, DeviceSample):
                        samples[event.device] = event
                        after[event.device] += event.device in details
                    elif isinstance(event, DeviceDetails):
                        details[event.device] = event
                if changes is not None:
                    window.refresh(changes, time.time())
                self.qt.processEvents()
                if after[f"nvml:{WELL}"] > 1:
                    until = min(until, time.monotonic() + (0 if after[f"nvml:{ILL}"] > 1 else 2 * LIMIT_S))
                time.sleep(0.005)
            window.refresh_texts()
        finally:
            sampler.stop(2.0)
            gc.collect()
        return {
            device: self._fields(samples[device], details.get(device))
            for device in samples
            if device.startswith("nvml")
        }

    def _fields(self, sample: DeviceSample, details: DeviceDetails | None) -> dict[str, Any]:
        import msgspec

        return {
            **msgspec.structs.asdict(sample),
            "missing": _Everything(details.missing if details is not None else {}),
        }


class _Everything(dict[str, str]):
    """An empty sample means that the driver did not answer in time: the window's card says so."""

    def __contains__(self, field: object) -> bool:
        return True


if __name__ == "__main__":
    sys.exit(min(main(), 125))
