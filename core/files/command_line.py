"""The words of the command line that files add. No torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import CliCommand, json_option


def _show(show: argparse.ArgumentParser) -> None:
    show.add_argument("path", metavar="FILE", help="a file of tensors, the index of a checkpoint, or a folder with one")
    json_option(show)


COMMANDS = (
    CliCommand(
        "show", "list the tensors of a checkpoint, with nothing of it run", _show, "files.show:show", elsewhere=True
    ),
)
