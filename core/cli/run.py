"""Runs a parsed command and turns errors into one line and exit code 2. Commands import torch when they run, not before."""

from __future__ import annotations

import argparse
import sys

from devexplorer.core.cli.arguments import parse
from devexplorer.core.errors import BadInput, DevExplorerError

WINDOW_COMMANDS = (None, "tour")


def main(argv: list[str]) -> int:
    """Run a command line that needs no window."""
    try:
        arguments = parse(argv)
        if arguments.command in WINDOW_COMMANDS:
            raise BadInput("the window and the tour start with 'devexplorer', which needs PySide6; name a command here, see --help")
    except DevExplorerError as error:
        return refuse(str(error))
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run one command; returns the exit code: 0, 1 for findings, 2 for what could not be run, 130 for Ctrl-C."""
    try:
        match arguments.command:
            case "devices":
                from devexplorer.core.cli.devices import devices

                return devices(arguments)
            case "watch":
                from devexplorer.core.cli.watch import watch

                return watch(arguments)
            case "bench":
                from devexplorer.core.cli.bench import bench

                return bench(arguments)
            case "place":
                from devexplorer.core.cli.place import place

                return place(arguments)
            case "env":
                from devexplorer.core.cli.env import env

                return env(arguments)
            case unknown:
                raise BadInput(f"there is no command '{unknown}'")
    except DevExplorerError as error:
        return refuse(str(error))
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def refuse(message: str) -> int:
    """Say in one line what is wrong."""
    print(f"devexplorer: {' '.join(message.split())}", file=sys.stderr)
    return 2
