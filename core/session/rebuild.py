"""Rebuilds the workspace in a new engine: sends the journal's commands again and records what was restored and what was
not, with the reason. Main thread.

A new engine can have other devices than the one before (another CUDA_VISIBLE_DEVICES, a lost card), so a move can fail
this time. A failed command is reported and not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from devexplorer.core.commands.registry import title_of
from devexplorer.core.records import Command, Rebuilt, Remove
from devexplorer.core.session.journal import Entry, Journal


class Rebuild:
    """Call `begin` after each start of an engine, then `ended` for each request; `send` returns the request number."""

    def __init__(self, journal: Journal, send: Callable[[Command], int]) -> None:
        self._journal = journal
        self._send = send
        self._sent: dict[int, Entry] = {}
        self._words: dict[int, str] = {}
        self._failed: list[tuple[Entry, str]] = []
        self._culprits: list[str] = []
        self._restored: list[str] = []

    def begin(self) -> bool:
        """Send the journal's commands; False when there is nothing to do."""
        self._restored, self._failed = [], []
        for entry in self._journal.replay():
            request = self._send(entry.repeated)
            entry.command = msgspec.structs.replace(entry.command, request=request)
            self._sent[request] = entry
        return self.running

    @property
    def running(self) -> bool:
        """Whether the rebuild is still in progress."""
        return bool(self._sent)

    def owns(self, request: int) -> bool:
        """Whether the rebuild sent this request."""
        return request in self._sent

    def refused(self, request: int, words: str) -> None:
        """Keep why one of its requests failed."""
        if request in self._sent:
            self._words[request] = words

    def ended(self, request: int, *, ok: bool, created: Sequence[str]) -> None:
        """One of its requests has ended; `created` are the objects that it made or changed."""
        entry = self._sent.pop(request)
        if ok:
            self._restored += [name for name in created if name not in self._restored]
        if ok and isinstance(entry.command, Remove):
            self._restored = [name for name in self._restored if name not in entry.command.names]
        if not ok:
            self._failed.append((entry, self._words.get(request, "it failed this time")))

    def interrupted(self) -> None:
        """The engine was ended on purpose: no command is to blame, and the next engine gets all commands again."""
        self._sent.clear()
        self._words.clear()

    def died(self) -> str | None:
        """The engine died. Returns the command that it was running, which is skipped from now on; None if there was
        none."""
        culprit = next(iter(self._sent.values()), None)
        self.interrupted()
        if culprit is None:
            return None
        words = title_of(culprit.command)
        self._culprits.append(words)
        self._journal.forget([culprit])
        return words

    def result(self) -> Rebuilt:
        """What was restored and what was not; call it once nothing is running."""
        lost = [
            *self._journal.lost(),
            *(f"{title_of(entry.command)}: {words}" for entry, words in self._failed),
            *(f"{words}: it ends the engine" for words in self._culprits),
        ]
        self._journal.forget([entry for entry, _ in self._failed])
        self._journal.rebuilt()
        self._culprits.clear()
        return Rebuilt(restored=tuple(self._restored), lost=tuple(lost))
