"""Brings a file from the machine that writes it to its place on another one: written there among the copies, then sent,
verified and renamed as any file. Main thread; nothing waits."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.base import bytes_text
from devexplorer.core.machines.questions import ForgetCopy, PlaceCopy
from devexplorer.core.machines.records import Result, Text
from devexplorer.core.machines.window.file_copying import End, FileCopying, Stage

Written = Callable[[str], None]
"""Called when the file is whole; with one sentence when it was not written."""


class Bringing(FileCopying):
    """`start`, then look at `stage`; `cancel` whenever."""

    stage: Stage = "saving"

    def __init__(
        self,
        place: str,
        name: str,
        source: End,
        target: End,
        write: Callable[[str, Written], None],
        changed: Callable[[], None],
        *,
        keep: bool = False,
    ) -> None:
        """`place`: where the file is to be, whatever was there. `write` has `source` write it to the path that it gets;
        `keep`: that copy stays. `changed` as in `FileCopying`."""
        super().__init__("", name, source, target, lambda _: self._forget_copy(), changed, place)
        self._have_written, self._keep = write, keep

    @property
    def words(self) -> str:
        """What it does, for people."""
        if self.stage == "sent":
            return f"{self.what} was saved on {self.target.name} ({bytes_text(self.size_bytes)}, verified)"
        return super().words

    def start(self) -> None:
        """Have it written."""
        self.source.ask(PlaceCopy(name=self.what), self._may_write, self._failed)
        self._changed()

    def _may_write(self, result: Result) -> None:
        assert isinstance(result, Text)
        self._from = result.text
        if self.over:
            self._forget_copy()
        else:
            self._have_written(self._from, self._written)

    def _written(self, problem: str) -> None:
        if self.over:
            return
        if problem:
            self._failed(problem)
        else:
            self._place()

    def _forget(self) -> None:
        super()._forget()
        self._forget_copy()

    def _forget_copy(self) -> None:
        if self._from and not self._keep:
            self.source.ask(ForgetCopy(path=self._from), lambda _: None)
        self._from = ""
