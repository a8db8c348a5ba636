"""Sends a file from one machine to another, through this window piece by piece, verified. Main thread; nothing waits.

The pieces go through the window because the machines need not know each other. The file says its own SHA-256 when it is
read to its end, and the other machine keeps it only with that sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from devexplorer.core.base import bytes_text
from devexplorer.core.machines.questions import ForgetCopy, PlaceCopy, Question, ReadFile, WriteFile
from devexplorer.core.machines.records import Chunk, Result, Text

PIECE_BYTES = 1 << 18
AHEAD = 8
"""Pieces that are asked for and not written yet: at 50 ms there and back 40 MB/s instead of 5."""

Stage = Literal["saving", "sending", "sent", "failed", "cancelled"]


class Asks(Protocol):
    """`RemoteSession.ask`, or `HereFiles.ask`."""

    def __call__(
        self, question: Question, then: Callable[[Result], None], failed: Callable[[str], None] = ..., /
    ) -> None:
        """Ask; one of both is called at a later beat."""
        ...


class End(NamedTuple):
    """One of the two machines."""

    name: str
    ask: Asks
    known_as: str = ""
    """What it is called on another machine; empty: the same."""


class FileCopying:
    """`start`, then look at `stage`; `cancel` whenever."""

    stage: Stage = "sending"

    def __init__(
        self,
        path: str,
        name: str,
        source: End,
        target: End,
        arrived: Callable[[str], None],
        changed: Callable[[], None],
        place: str = "",
    ) -> None:
        """`name`: of the file, there as here. `arrived` gets its path on the other machine, once it is whole; it stays
        there until `ForgetCopy`. `changed` is called when anything to be seen is another. `place`: the path where the
        file is to be, and stay, whatever was there; empty: with the copies."""
        self.what, self.source, self.target = name, source, target
        self.done_bytes = self.size_bytes = 0
        self.problem = ""
        """Why it failed, one sentence."""
        self._name, self._arrived, self._changed = name, arrived, changed
        self._from, self._to, self._place_there = path, "", place
        self._next = 0
        """Where the next piece begins that is asked for."""
        self._pieces: dict[int, Chunk] = {}
        """Those that came and wait for their turn, by where they begin."""
        self._next_write = 0
        """Where the next piece begins that is given to the other machine, which writes them in this order."""

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.stage in ("sent", "failed", "cancelled")

    @property
    def done(self) -> float | None:
        """How much of it, 0 to 1; None: not known."""
        return self.done_bytes / self.size_bytes if self.size_bytes else None

    @property
    def words(self) -> str:
        """What it does, for people."""
        if self.stage == "saving":
            return f"{self.what}: saving on {self.source.name}"
        if self.stage == "sending":
            size = f", {bytes_text(self.done_bytes)} of {bytes_text(self.size_bytes)}" if self.size_bytes else ""
            return f"{self.what}: sending to {self.target.name}{size}"
        if self.stage == "sent":
            return f"{self.what} sent to {self.target.name} ({bytes_text(self.size_bytes)}, verified)"
        return self.problem or f"{self.what}: not sent to {self.target.name}"

    def start(self) -> None:
        """Begin."""
        self._place()

    def cancel(self) -> None:
        """Leave it; what was written is removed."""
        if not self.over:
            self._end("cancelled")

    # --- step by step

    def _place(self) -> None:
        """The file is there: ask where it goes."""
        self.stage = "sending"
        if self._place_there:
            self._placed(Text(text=self._place_there))
        else:
            self.target.ask(PlaceCopy(name=self._name), self._placed, self._failed)
        self._changed()

    def _placed(self, result: Result) -> None:
        assert isinstance(result, Text)
        self._to = result.text
        if self.over:
            self._forget()
        else:
            self._read()

    def _read(self) -> None:
        """Ask for as many pieces as may be on their way; until the first one is here its size is not known."""
        most = self.done_bytes + AHEAD * PIECE_BYTES if self.size_bytes else PIECE_BYTES
        while self._next < min(most, self.size_bytes or PIECE_BYTES):
            ask = ReadFile(path=self._from, offset=self._next, count=PIECE_BYTES)
            self.source.ask(ask, partial(self._came, self._next), self._failed)
            self._next += PIECE_BYTES

    def _came(self, offset: int, chunk: Result) -> None:
        if self.over:
            return
        assert isinstance(chunk, Chunk)
        last = offset + len(chunk.data) >= chunk.size_bytes
        if chunk.size_bytes != (self.size_bytes or chunk.size_bytes) or (not last and len(chunk.data) != PIECE_BYTES):
            self._failed(self._changed_words())
            return
        if last and not chunk.sha256:  # without it nothing would be compared, and the words say "verified"
            self._failed(f"{self.what}: {self.source.name} sent it without its check sum; it was not kept.")
            return
        self.size_bytes = chunk.size_bytes
        self._pieces[offset] = chunk
        self._write()
        self._read()

    def _changed_words(self) -> str:
        return f"{self.what} changed on {self.source.name} while it was being sent: wait until it is complete."

    def _write(self) -> None:
        """Those that come next."""
        while not self.over and (chunk := self._pieces.pop(self._next_write, None)) is not None:
            offset, self._next_write = self._next_write, self._next_write + len(chunk.data)
            piece = WriteFile(path=self._to, offset=offset, data=chunk.data, sha256=chunk.sha256, overwrite=True)
            if not offset:
                piece = replace(piece, size_bytes=self.size_bytes)
            self.target.ask(piece, partial(self._went, len(chunk.data)), self._failed)

    def _went(self, count: int, _: Result) -> None:
        if self.over:
            return
        self.done_bytes += count
        if self.done_bytes >= self.size_bytes:
            self.stage = "sent"
            self._arrived(self._to)
        else:
            self._read()
        self._changed()

    def _failed(self, problem: str) -> None:
        if not self.over:
            self.problem = problem
            self._end("failed")

    def _end(self, stage: Stage) -> None:
        self.stage = stage
        self._pieces.clear()
        self._forget()
        self._changed()

    def _forget(self) -> None:
        """Remove what is there of it, as far as anybody answers."""
        if self._to and self._place_there:  # a piece that does not fit ends the writing; the file that was there stays
            self.target.ask(WriteFile(path=self._to, offset=-1, data=b""), lambda _: None)
        elif self._to:
            self.target.ask(ForgetCopy(path=self._to), lambda _: None)
        self._to = ""
