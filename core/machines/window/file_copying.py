"""Sends a file from one machine to another, through this window piece by piece, verified; objects, and what has to be
written first, as such a file. Main thread; nothing waits.

The pieces go through the window because the machines need not know each other. The file says its own SHA-256 when it is
read to its end, and the other machine keeps it only with that sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import bytes_text, objects_text, sentence
from devexplorer.core.files.records import Load
from devexplorer.core.machines.host.files import FileWork
from devexplorer.core.machines.records import (
    Chunk,
    ForgetCopy,
    PlaceCopy,
    Question,
    ReadFile,
    Result,
    SaveCopy,
    Text,
    WriteFile,
)
from devexplorer.core.records import Command, SentFrom

if TYPE_CHECKING:
    from pathlib import Path

    from devexplorer.core.session.session import Session


class HereFiles:
    """Asks this machine what a far one is asked through its link: pieces of files, and copies of objects. What can wait
    for a disk is done on a thread of its own (`host-files`), and answered at a later beat.

    `ask` as a `RemoteSession` does, `beat` often, `close` at the end."""

    def __init__(self, session: Session | None, folder: Path | None = None) -> None:
        """`session`: None where nothing of this machine is to be saved. `folder`: where files of copies are; None: in
        the user's cache."""
        self._work = FileWork(session, folder)
        self._due: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def set_session(self, session: Session | None) -> None:
        """Objects of this one are saved from now on."""
        self._work.session = session

    def ask(
        self, question: Question, then: Callable[[Result], None], failed: Callable[[str], None] = lambda problem: None
    ) -> None:
        """At a later beat `then` gets the result, or `failed` one sentence."""

        def reply(result: Result | None, problem: str) -> None:  # any thread
            if result is None:
                self._due.put(lambda: failed(sentence(problem)))
            else:
                self._due.put(lambda: then(result))

        self._work.ask(question, reply)

    def beat(self) -> None:
        """Give the answers that are there."""
        while True:
            try:
                due = self._due.get_nowait()
            except Empty:
                return
            due()

    def close(self, deadline_s: float = 1.0) -> bool:
        """Remove what was copied; False when a disk did not answer in time."""
        self._work.close()
        self._work.remove_copies()
        return self._work.join(deadline_s)


PIECE_BYTES = 1 << 18
AHEAD = 8
"""Pieces that are asked for and not written yet: at 50 ms there and back 40 MB/s instead of 5."""

NAME = "copy.safetensors"
"""Of a file of objects."""
Written = Callable[[str], None]
"""Called when the file is whole; with one sentence when it was not written."""
Stage = Literal["saving", "sending", "sent", "failed", "cancelled"]


class End(NamedTuple):
    """One of the two machines."""

    name: str
    ask: Callable[..., None]
    """`RemoteSession.ask`, or `HereFiles.ask`."""
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
        self._is_copy = False
        """Whether what is sent is a copy that was made for that."""
        self._next = 0
        """Where the next piece begins that is asked for."""

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
        """Ask for as many pieces as may be on their way, which come in this order;
        until the first one is here its size is not known."""
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
        piece = WriteFile(path=self._to, offset=offset, data=chunk.data, sha256=chunk.sha256, overwrite=True)
        if not offset:
            piece = replace(piece, size_bytes=self.size_bytes)
        self.target.ask(piece, partial(self._went, len(chunk.data)), self._failed)
        if not self.over:
            self._read()

    def _changed_words(self) -> str:
        return f"{self.what} changed on {self.source.name} while it was being sent: wait until it is complete."

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
        self._forget()
        self._changed()

    def _forget(self) -> None:
        """Remove what is there of it, as far as anybody answers."""
        if self._to and self._place_there:  # a piece that does not fit ends the writing; the file that was there stays
            self.target.ask(WriteFile(path=self._to, offset=-1, data=b""), lambda _: None)
        elif self._to:
            self.target.ask(ForgetCopy(path=self._to), lambda _: None)
        self._to = ""
        self._forget_copy()

    # --- what is written among the copies of its machine first, and removed there at the end

    def _write_copy(self, question: Question) -> None:
        self.stage, self._is_copy = "saving", True
        self.source.ask(question, self._named, self._failed)
        self._changed()

    def _named(self, result: Result) -> None:
        assert isinstance(result, Text)
        self._from = result.text
        if self.over:
            self._forget()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Its path is known."""
        self._place()

    def _forget_copy(self) -> None:
        if self._is_copy and self._from:
            self.source.ask(ForgetCopy(path=self._from), lambda _: None)
            self._from = ""


class Bringing(FileCopying):
    """A file that one machine writes for another: `start`, then look at `stage`; `cancel` whenever."""

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
        self._write_copy(PlaceCopy(name=self.what))

    def _go_on(self) -> None:
        self._have_written(self._from, self._written)

    def _written(self, problem: str) -> None:
        if self.over:
            return
        if problem:
            self._failed(problem)
        else:
            self._place()

    def _forget_copy(self) -> None:
        if not self._keep:
            super()._forget_copy()


class Copying(FileCopying):
    """Tensors, or the state dicts of models, saved as safetensors and loaded on the other machine: `start`, then look
    at `stage`; `cancel` whenever."""

    def __init__(
        self,
        names: tuple[str, ...],
        source: End,
        target: End,
        send: Callable[[Command], object],
        changed: Callable[[], None],
        *,
        device: str = "cpu",
    ) -> None:
        """`send` gives the other machine the command that loads them, to `device` there. `changed` is called when
        anything to be seen is another."""
        super().__init__("", NAME, source, target, self._load, changed)
        self.names, self.what = names, objects_text(names)
        self._send, self._device = send, device

    def start(self) -> None:
        """Have the objects saved."""
        self._write_copy(SaveCopy(targets=self.names))

    def cancel(self) -> None:
        """Leave it; what was saved and written is removed."""
        if self.stage == "saving":
            self.source.ask(ForgetCopy(), lambda _: None)
        super().cancel()

    def _load(self, path: str) -> None:
        file = f"{self.names[0] if len(self.names) == 1 else 'objects'}.safetensors"
        origin = SentFrom(machine=self.source.known_as or self.source.name, path=file, objects=True)
        self._send(Load(path=path, device=self._device, sent_from=origin))
        self._forget_copy()

    def _changed_words(self) -> str:
        return f"{self.source.name} sent something else than the file that it saved."
