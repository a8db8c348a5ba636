"""What `devexplorer bench` takes for the history. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import BenchKeeper


def _fill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="TEXT", action="append", help="find the runs under this word in the history")


BENCH_KEEPERS = (BenchKeeper(_fill, "history.benching:Keeping"),)
