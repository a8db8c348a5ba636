"""Keeps what `devexplorer bench` measures. Main thread."""

from __future__ import annotations

import argparse
from functools import partial

from devexplorer.core.base import Unavailable
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import say
from devexplorer.core.history.filter import checked_tags
from devexplorer.core.history.store import Store
from devexplorer.core.records import BenchResult, Conditions


class Keeping:
    """`keep` each run, `close` at the end."""

    def __init__(self, arguments: argparse.Namespace, findings: TerminalFindings) -> None:
        self._tags = findings.checked(partial(checked_tags, arguments.tag or []), ())
        self._store = Store()

    def keep(self, result: BenchResult, conditions: Conditions) -> None:
        """It is on the disk when this returns."""
        try:
            self._store.add(result, conditions, self._tags)
        except Unavailable as error:
            say(str(error))

    def close(self) -> None:
        """Print what the history has to say."""
        self._store.close()
        for notice in self._store.notices():
            say(notice)
