"""How much does it take to list a checkpoint of very many tensors, against `torch.load` of the same file?

    python tests/benchmarks/checkpoint_listing.py [--tensors 900000]

Each in a process of its own: CPU time and peak memory. `views`: all tensors lie in one storage, as tied and split
weights do; `own`: each has its own. Wanted: less of both than torch takes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

LIST = """
import sys
from devexplorer.gui.shell.main import main
sys.argv[1:] = ["show", sys.argv[1], "--json"]
sys.exit(main())
"""
LOAD = "import sys, torch; torch.load(sys.argv[1], weights_only=True)"


def measured(code: str, file: Path) -> tuple[float, float]:
    """Seconds of CPU time, and MiB of memory at most."""
    pid = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.DEVNULL).pid
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"ended with {os.waitstatus_to_exitcode(status)}: {code}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=900_000)
    count = parser.parse_args().tensors
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("views", "own"):
            base = torch.zeros(count)
            tensors = {f"layer.{at}.weight": base[at : at + 1] for at in range(count)}
            if kind == "own":
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}
            file = Path(folder) / f"{kind}.pt"
            torch.save(tensors, file)
            del tensors
            ours, theirs = measured(LIST, file), measured(LOAD, file)
            print(f"{kind}, {count:,} tensors")
            print(f"  listed: {ours[0]:.1f} s of CPU time, {ours[1]:,.0f} MiB")
            print(f"  loaded by torch: {theirs[0]:.1f} s, {theirs[1]:,.0f} MiB")
            print(f"  ratios: {ours[0] / theirs[0]:.2f} and {ours[1] / theirs[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
