"""What the history panels ask of whoever keeps the runs. Main thread: no method waits, and every reply comes back on
this thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from devexplorer.core.benchmark.history.compare import Comparison
from devexplorer.core.benchmark.history.filter import Filter
from devexplorer.core.records.benchmark import StoredRun

ShowRuns = Callable[[Sequence[StoredRun], int], None]
"""The runs, the newest first, and how many there would be without a limit."""
Say = Callable[[str, bool], None]
"""A sentence, and whether it says that something failed."""


class HistorySource(Protocol):
    """Carries out what it is asked in the order of the calls. After each change the panels are to be told with their
    `refresh`.

    `core.benchmark.history.store_thread.StoreThread` is one.
    """

    def request(self, wanted: Filter, limit: int, show: ShowRuns) -> None:
        """List at most `limit` runs."""
        ...

    def tag(self, tags: Sequence[tuple[int, tuple[str, ...]]], say: Say) -> None:
        """Give each of these runs its tags instead of those it has. `say` what went wrong; nothing otherwise."""
        ...

    def delete(self, ids: Sequence[int], say: Say) -> None:
        """Forget runs for good."""
        ...

    def export(self, kind: str, path: Path, ids: Sequence[int], *, names: bool, say: Say) -> None:
        """Write a file, `kind` is `csv`, `json` or `html`. `names`: also of the host and of other people's
        processes."""
        ...

    def import_file(self, path: Path, say: Say) -> None:
        """Take over the runs of somebody's JSON."""
        ...

    def compare(self, runs: Sequence[StoredRun], show: Callable[[Comparison], None], say: Say) -> None:
        """Compare runs with the first of them; it takes longer than a frame of the window has."""
        ...
