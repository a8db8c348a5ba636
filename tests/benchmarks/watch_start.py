"""The cost of one reading of the cards: `watch --count 1` against `nvitop -1`, and the memory of an exporter.

    python tests/benchmarks/watch_start.py [--peers DIR] [--rounds N]

On the fake driver library, two cards, each program in a separate process, alternating, with the same interpreter. DIR
is where nvitop is installed (`pip install --target DIR nvitop`); without it only this project's figures are printed.
Bytecode is cached, as it is once a program has been installed; the first run of each, which writes it, is not counted.
Times are medians of wall and CPU time, and noisy on a busy machine: use the ratio."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.nvml_library import CannotBuildError, build

TIME_LIMIT = 1.0
"""Of nvitop's time."""
EXPORTER_MIB = 60
SCRAPES = 20


class Cost(NamedTuple):
    """Of one run."""

    wall_s: float
    processor_s: float
    peak_mib: float


def main() -> int:
    """Measure, print, return the number of limits missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where nvitop is installed")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = build(Path(folder) / "nvml")
        except CannotBuildError as error:
            print(f"cannot be measured here: {error}")
            return 0
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_CARDS": "2",
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "pyc"),
        }
        return one_look(environment, arguments.peers, arguments.rounds) + exporter(environment)


def one_look(environment: dict[str, str], peers: Path | None, rounds: int) -> int:
    """Both programs, alternating."""
    ours = [sys.executable, "-m", "devexplorer.core.cli", "watch", "--count", "1"]
    contenders = {"watch --count 1": (ours, environment)}
    if peers is not None:
        contenders["nvitop -1"] = ([sys.executable, "-m", "nvitop", "-1"], {**environment, "PYTHONPATH": str(peers)})
    costs: dict[str, list[Cost]] = {}
    for turn in range(rounds + 1):
        for name, (command, variables) in contenders.items():
            found = cost(command, variables)
            if turn:
                costs.setdefault(name, []).append(found)
    medians = {
        name: Cost(*(statistics.median(column) for column in zip(*runs, strict=True))) for name, runs in costs.items()
    }
    print(f"one look at two cards, median of {rounds} runs in turns:")
    for name, one in medians.items():
        print(
            f"  {name:<18} {one.wall_s * 1e3:7.0f} ms wall {one.processor_s * 1e3:7.0f} ms processor"
            f" {one.peak_mib:7.1f} MiB at most"
        )
    if peers is None:
        print("  not compared with nvitop: say with --peers where it is installed")
        return 0
    ours_, theirs = medians["watch --count 1"], medians["nvitop -1"]
    return verdict("wall time against nvitop", ours_.wall_s / theirs.wall_s, TIME_LIMIT) + verdict(
        "processor time against nvitop", ours_.processor_s / theirs.processor_s, TIME_LIMIT
    )


def cost(command: list[str], environment: dict[str, str]) -> Cost:
    """Of one run to its end."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {said.decode(errors='replace')[-2000:]}")
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def exporter(environment: dict[str, str]) -> int:
    """Resident memory of `watch --prometheus` after some scrapes."""
    command = [
        sys.executable,
        "-m",
        "devexplorer.core.cli",
        "watch",
        "--interval",
        "0.1",
        "--json",
        "--prometheus",
        "0",
    ]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            for _ in range(SCRAPES):
                time.sleep(0.1)
                opener.open(url, timeout=10).read()
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        finally:
            process.send_signal(signal.SIGTERM)
    resident = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
    print(f"an exporter after {SCRAPES} scrapes: {resident:.1f} MiB resident")
    return verdict("MiB of an exporter", resident, EXPORTER_MIB)


def verdict(what: str, value: float, limit: float) -> int:
    """Print a figure with its limit; 1 if it is missed."""
    good = value <= limit
    print(f"  {'ok  ' if good else 'MISS'} {what}: {value:.3g}, wanted <= {limit:.3g}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
