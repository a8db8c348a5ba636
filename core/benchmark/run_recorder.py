"""Hands every run that ends to the history, with the conditions under which it was measured. Main thread; one short
thread at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from devexplorer.core.base import Clock, handles
from devexplorer.core.benchmark.conditions import HostInfo, RunConditions, here
from devexplorer.core.records import BenchEnded, BenchResult, Conditions, EngineLost


class RunRecorder(RunConditions):
    """`keep` is called with every result and its conditions."""

    def __init__(
        self,
        keep: Callable[[BenchResult, Conditions], None],
        *,
        find_here: Callable[[], HostInfo] = here,
        clock: Clock = time.time,
    ) -> None:
        super().__init__(clock=clock)
        self.keep = keep
        self._finder = threading.Thread(target=self._find, args=(find_here,), name="here", daemon=True)

    def start(self) -> None:
        """Find out what this machine and this program are called: files are read for that, so on a thread that ends at
        once."""
        self._finder.start()

    def join(self, deadline_s: float) -> bool:
        """Wait for that thread."""
        if self._finder.ident is not None:
            self._finder.join(max(deadline_s, 0.0))
        return not self._finder.is_alive()

    @handles(EngineLost)
    def _engine_lost(self, event: EngineLost) -> None:
        self._watches.clear()

    @handles(BenchEnded)
    def _ended(self, event: BenchEnded) -> None:
        if event.result is not None:
            self.keep(event.result, self.conditions(event.result, event.time_unix_s))
        self._watches.pop(event.run, None)

    def _find(self, find_here: Callable[[], HostInfo]) -> None:
        self._here = find_here()
