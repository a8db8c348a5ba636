"""The history of all benchmark runs, in SQLite under the user's data folder, and what happens when that cannot be read
or written.

One thread at a time: the command line uses it directly, the window through `core.history.store_thread`. No
torch, no Qt.

No fault overwrites a file, and each is one sentence:
- locked by another process for long, read-only, disk full, of a newer version: a new run is saved as a JSON file beside
  it, or where temporary files go, to be imported later; nothing else is changed.
- damaged, or another program's database: it is moved aside under a name that is said, and a new one is started.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import platformdirs
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, Unavailable
from devexplorer.core.codec import any_result
from devexplorer.core.history.export import write_json
from devexplorer.core.history.file import (
    DamagedError,
    FaultError,
    HistoryFile,
    NewerError,
    NotAHistoryError,
    SideRow,
    fault_text,
    is_damaged,
)
from devexplorer.core.history.filter import Filter, checked_tags, digest
from devexplorer.core.records import BenchResult, Conditions, StoredRun

FILE = "history.sqlite3"
WAIT_S = 10.0
"""How long another process may hold the file."""
PAGE = 200
ROWS = 200
"""Of a feature's table, that are read at once."""
_T = TypeVar("_T")
_EVERYTHING = Filter()


def default_path() -> Path:
    """Where the history is kept on this system."""
    return Path(platformdirs.user_data_dir("devexplorer", appauthor=False)) / FILE


class Store:
    """`add`, `runs`, `tag`, `delete`; opened at the first use, `close` at the end."""

    def __init__(self, path: Path | None = None, *, wait_s: float = WAIT_S, clock: Clock = time.time) -> None:
        self.path = path or default_path()
        self.problem: str | None = None
        """What does not work now, in one line."""
        self.unreadable = 0
        """Runs of the last list that this version could not read."""
        self._wait_s, self._clock = wait_s, clock
        self._file: HistoryFile | None = None
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file that was opened last."""
        self._notices: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def notices(self) -> tuple[str, ...]:
        """What happened since the last call, a sentence each."""
        notices, self._notices = tuple(self._notices), []
        return notices

    # --- changing ----------------------------------------------------------------------------------------------------

    def add(
        self, result: BenchResult, conditions: Conditions, tags: Iterable[str] = (), *, imported: bool = False
    ) -> StoredRun:
        """Keep a run. It is on the disk when this returns.

        Raises `BadInput` for tags that are none, and for a result with figures that are no numbers; `Unavailable` where
        that is not possible, which says where the run was saved instead.
        """
        run = StoredRun(id=0, result=result, conditions=conditions, tags=checked_tags(tuple(tags)), imported=imported)
        try:
            for record, record_type in ((result, any_result()), (conditions, Conditions)):
                msgspec.json.decode(msgspec.json.encode(record), type=record_type)
        except msgspec.MsgspecError:
            raise BadInput(
                "this run has figures that are no numbers (not a number, or infinite) and cannot be kept"
            ) from None
        try:
            return replace(run, id=self._do(lambda file: file.add(run)))
        except FaultError as error:
            raise Unavailable(f"{error}; {self._saved_elsewhere(run)}") from None

    def _saved_elsewhere(self, run: StoredRun) -> str:
        for folder in (self.path.parent, Path(tempfile.gettempdir())):
            file = folder / f"{self.path.stem}-unsaved-{self._stamp()}-{secrets.token_hex(3)}.json"
            try:
                write_json(file, [run], clock=self._clock)
            except Unavailable:
                continue
            return f"the run was saved as {file}: import that file later"
        return "the run could not be saved anywhere"

    def add_row(self, table: str, row: SideRow) -> int:
        """Keep a record of a feature; returns its number. Raises `Unavailable` where that is not possible now."""
        return self._change(lambda file: file.add_row(table, row))

    def tag(self, number: int, tags: Iterable[str]) -> StoredRun:
        """Give a run these tags instead of those it has. Raises `BadInput` and `Unavailable`."""
        stored, wanted = self.get(number), checked_tags(tuple(tags))
        self._change(lambda file: file.tag(stored, wanted))
        return replace(stored, tags=wanted)

    def delete(self, numbers: Iterable[int]) -> int:
        """Forget runs for good; returns how many there were. Raises `Unavailable`."""
        return self._change(lambda file: file.delete(numbers))

    def _change(self, work: Callable[[HistoryFile], _T]) -> _T:
        try:
            return self._do(work)
        except FaultError as error:
            raise Unavailable(f"{error}; nothing was changed") from None

    # --- reading -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: Filter = _EVERYTHING, *, limit: int = PAGE) -> list[StoredRun]:
        """The newest first. None where the file cannot be read: `problem` says why."""
        self.unreadable = 0
        return self._read(lambda file: file.runs(wanted, limit)) or []

    def rows(self, table: str, limit: int = ROWS) -> list[SideRow]:
        """Records of a feature: the newest, the oldest of them first. None where the file cannot be read: see
        `problem`."""
        return self._read(lambda file: file.rows(table, limit)) or []

    def count(self, wanted: Filter = _EVERYTHING) -> int:
        """How many such runs there are."""
        return self._read(lambda file: file.count(wanted)) or 0

    def get(self, number: int) -> StoredRun:
        """One run. Raises `BadInput` where there is none of that number, `Unavailable` where the file cannot be
        read."""
        found = self._read(lambda file: file.get(number))
        if found is None:
            raise (
                BadInput(f"there is no run #{number} in the history")
                if self.problem is None
                else Unavailable(self.problem)
            )
        return found

    def find(self, result: BenchResult, conditions: Conditions) -> int | None:
        """The number of the run that measured just this at that time; None where there is none."""
        wanted = digest(result, conditions)
        return self._read(lambda file: file.find(wanted))

    def _read(self, work: Callable[[HistoryFile], _T]) -> _T | None:
        """What `work` finds; None, with a problem, where the file cannot be read."""
        try:
            return self._do(work)
        except FaultError:
            return None

    # --- the file ----------------------------------------------------------------------------------------------------

    def _do(self, work: Callable[[HistoryFile], _T]) -> _T:
        """Do it with the open file; a damaged one is moved aside first. Raises `FaultError`; then the file is
        closed."""
        for moved in (False, True):
            try:
                file = self._opened()
                done = work(file)
            except (sqlite3.Error, OSError, NotAHistoryError, DamagedError, NewerError) as error:
                self.close()
                if moved or not is_damaged(error):
                    raise self._fault(fault_text(self.path, error)) from error
                self._move_aside(foreign=isinstance(error, NotAHistoryError))
            else:
                self.unreadable += file.unreadable
                file.unreadable = 0
                self.problem = None
                return done
        raise AssertionError("the second attempt returns or raises")

    def _fault(self, message: str) -> FaultError:
        self.problem = f"{message[:1].upper()}{message[1:]}."
        return FaultError(message)

    def _opened(self) -> HistoryFile:
        if self._file is not None and _identity(self.path) != self._identity:
            self.close()  # the file was deleted or replaced: what is written to the old one is lost
        if self._file is None:
            self._identity = _identity(self.path)
            self._file = HistoryFile(self.path, wait_s=self._wait_s)
            self._identity = _identity(self.path)
        return self._file

    def _move_aside(self, *, foreign: bool) -> None:
        """Keep the file under another name. Raises `FaultError` where that is not possible."""
        if _identity(self.path) != self._identity:
            return  # another process has done so already
        stamp, word = self._stamp(), "foreign" if foreign else "damaged"
        names = (
            f"{self.path.stem}-{word}-{stamp}{more}{self.path.suffix}"
            for more in ("", *(f"-{n}" for n in range(2, 100)))
        )
        copy = next(path for name in names if not os.path.exists(path := self.path.with_name(name)))
        try:
            os.rename(self.path, copy)
            if os.path.exists(journal := self.path.with_name(f"{self.path.name}-journal")):  # it belongs to the file
                os.rename(journal, copy.with_name(f"{copy.name}-journal"))
        except OSError as error:
            message = (
                f"the history {self.path} is damaged and cannot be moved aside ({error.strerror}); it is left as it is"
            )
            raise self._fault(message) from error
        what = "is another program's database" if foreign else "is damaged"
        self._notices.append(f"The history {self.path} {what}: it is kept as {copy.name}, and a new one was started.")

    def _stamp(self) -> str:
        return time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock()))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
