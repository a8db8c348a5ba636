"""Serves what `devexplorer watch` reads. Main thread; the server has threads of its own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from devexplorer.core.base import BadInput
from devexplorer.core.records import Event
from devexplorer.core.watch.devices import WatchedDevices
from devexplorer.core.watch.table import WatchReading


class ServedReadings:
    """`begin`, then `take` after each reading."""

    failed = False

    def __init__(self, arguments: argparse.Namespace, text: str) -> None:
        """Raises `BadInput`."""
        self._port, self._address = parse_port(text), arguments.address

    def begin(self, _devices: WatchedDevices, ending: ExitStack) -> None:
        """Raises `BadInput` where nothing can listen."""
        # prometheus_client: only who serves waits for it
        from devexplorer.core.exporter.prometheus import serving, this_machine

        self._figures = this_machine
        self._served = serving(self._port, self._address, ending)

    def take(self, readings: Sequence[WatchReading], _events: Iterable[Event]) -> None:
        """What is answered from now on."""
        self._served.machines = [self._figures([(reading.info, reading.sample) for reading in readings])]


def parse_port(text: str) -> int:
    """A port from 0 (the system picks one) to 65535."""
    if not re.fullmatch(r"\d{1,5}", text.strip(), re.ASCII) or int(text) > 65535:
        raise BadInput(
            f"--prometheus '{text}' is not a port; write a number from 1 to 65535, for example 9400 (0: any that is"
            " free)"
        )
    return int(text)


def belongs_to_a_port(arguments: argparse.Namespace, _address: str) -> None:
    """Raises `BadInput` for an address without a port."""
    if arguments.prometheus is None:
        raise BadInput("--address says where --prometheus listens; give a port with --prometheus as well")
