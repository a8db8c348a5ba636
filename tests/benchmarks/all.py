"""Every benchmark, one after the other, each in a process of its own; prints what they print. One command, about four minutes:

    python tests/benchmarks/all.py [--quick]

The figures of a machine go to docs/measurements.md, with the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from devexplorer.core.devices.cpu import cpu_facts

SCRIPTS = {
    "startup.py": ["--times", "3"],
    "matmul_fidelity.py": ["--quick"],
    "move_overhead.py": ["--rounds", "3", "--seconds", "20"],
    "placement_scale.py": ["--rounds", "3"],
    "statistics_cost.py": ["--mib", "256", "--rounds", "3"],
    "timeline_memory.py": ["--hours", "1"],
    "plot_cost.py": [],
    "telemetry_cost.py": ["--rounds", "5"],
    "watch_start.py": ["--rounds", "5"],
    "window_cost.py": ["--seconds", "8"],
    "recording_cost.py": ["--hours", "0.1"],
    "heartbeat.py": ["--seconds", "10"],
    "cost_model.py": [],
    "tree_scale.py": ["--rounds", "3"],
    "planner.py": ["--quick"],
    "doctor_cost.py": ["--rounds", "3", "--batch", "2"],
}
"""Script -> arguments of the quick run."""


def main() -> int:
    """Run all; returns the number of scripts that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs, to see that all of them still work")
    arguments = parser.parse_args()
    info = cpu_facts().info()
    print(f"{time.strftime('%Y-%m-%d')}, {info.name}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}")
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    failed = 0
    for script, quick in SCRIPTS.items():
        print(f"\n{script}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(script)), *(quick if arguments.quick else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(done.stdout.rstrip())
        if done.returncode != 0:
            failed += 1
            print(done.stderr.rstrip())
    return failed


if __name__ == "__main__":
    sys.exit(main())
