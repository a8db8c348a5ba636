"""Runs every benchmark, one after the other, each in a subprocess; shows their output and the progress.

    python tests/benchmarks/all.py           # the quick set: about two minutes on two quiet cores
    python tests/benchmarks/all.py --full    # as the figures in docs/measurements.md were taken

The figures of a machine go to docs/measurements.md, with the machine and how long the full set took. It takes longer on
a busy machine: `matmul_fidelity.py` waits for idle seconds."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from devexplorer.core.devices.cpu import cpu_facts

SCRIPTS: dict[str, list[str] | None] = {
    "startup.py": ["--times", "3"],
    "matmul_fidelity.py": None,
    "allreduce_overhead.py": ["--rounds", "5", "--seconds", "0.05"],
    "fleet_start.py": ["--hosts", "2", "--orders", "3", "--seconds", "0.5"],
    "move_overhead.py": ["--rounds", "1", "--seconds", "5"],
    "placement_scale.py": ["--rounds", "1", "--seconds", "5"],
    "statistics_cost.py": ["--mib", "64", "--rounds", "3"],
    "timeline_memory.py": ["--hours", "0.2"],
    "plot_cost.py": [],
    "telemetry_cost.py": ["--rounds", "5"],
    "watch_start.py": ["--rounds", "5"],
    "window_cost.py": ["--seconds", "5"],
    "link_traffic.py": ["--seconds", "5"],
    "far_window.py": ["--moves", "5", "--seconds", "5"],
    "ssh_connect.py": ["--rounds", "2"],
    "layout_switch.py": ["--rounds", "2"],
    "recording_cost.py": ["--hours", "0.1"],
    "heartbeat.py": ["--seconds", "10"],
    "cost_model.py": [],
    "tree_scale.py": ["--rounds", "1"],
    "paths.py": [],
    "planner.py": ["--quick"],
    "doctor_cost.py": ["--rounds", "1", "--batch", "1"],
    "checkpoint_listing.py": ["--tensors", "20000"],
}
"""Script -> arguments of the quick run; None: too long for that."""


LIMIT_SECONDS = 1800.0
"""For one script, so that a hang does not block the others."""


def main() -> int:
    """Run all; returns the number of scripts that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="with all rounds, instead of the quick set")
    arguments = parser.parse_args()
    print(
        f"{time.strftime('%Y-%m-%d')}, {cpu_facts().name}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" {platform.system()}"
    )
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    runs = {
        script: [] if arguments.full else quick
        for script, quick in SCRIPTS.items()
        if arguments.full or quick is not None
    }
    failed, begun = [], time.monotonic()
    for number, (script, given) in enumerate(runs.items(), 1):
        print(f"\n[{number}/{len(runs)}, {time.monotonic() - begun:.0f} s] {script}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(script)), *(given or [])]
        started = time.monotonic()
        try:
            # output appears immediately
            code = subprocess.run(command, env=environment, timeout=LIMIT_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
            print(f"not ready after {LIMIT_SECONDS:.0f} s, ended", flush=True)
        print(f"{script}: {time.monotonic() - started:.0f} s{'' if code == 0 else f', FAILED with {code}'}", flush=True)
        if code != 0:
            failed.append(script)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes, busy = (time.monotonic() - begun) / 60, (used.ru_utime + used.ru_stime) / 60
    print(
        f"\n{len(runs) - len(failed)} of {len(runs)} in {minutes:.1f} min, {busy:.1f} min of CPU time; failed:",
        *failed or ["none"],
    )
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
