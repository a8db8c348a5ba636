"""What `devexplorer watch` takes. Data; main thread, no torch."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from devexplorer.core.cli.arguments import CliCommand, add_options, json_option, of_features


class WatchOption(NamedTuple):
    """An option of `devexplorer watch`, followed by a word: what is done with the readings besides. A feature has its
    own in the `WATCH_OPTIONS` of its `command_line.py`."""

    name: str
    metavar: str
    help: str
    run: str
    """What does it, `package.module:class` below core, made of the word and all arguments: `begin` gets the devices and
    what ends with the command, `take` what was read; `failed`: whether it has ended before. Or a function that only
    checks the word, and returns None."""


def _watch(watch: argparse.ArgumentParser) -> None:
    watch.add_argument("--interval", metavar="S", default="1", help="seconds between readings (default 1)")
    options: list[WatchOption] = of_features("WATCH_OPTIONS")
    add_options(
        watch,
        ("--count", "TICKS", "stop after so many readings"),
        *((f"--{option.name}", option.metavar, option.help) for option in options),
    )
    watch.set_defaults(besides=options)
    json_option(watch, "print one JSON object for each device and reading, a line each")


COMMANDS = (CliCommand("watch", "show live readings of every device", _watch, "watch.command:watch", elsewhere=True),)
