"""The history of all benchmark runs, in SQLite under the user's data folder, and what happens when that cannot be read
or written.

One thread at a time: the command line uses it directly, the window through `core.history.store_thread`. No
torch, no Qt.

No fault loses a run while the process lives, and none overwrites a file:
- locked by another process, read-only, disk full: runs wait in memory, are listed with numbers below 0, and are written
  at the next occasion (`flush`, or any other change).
- damaged, or another program's database: it is moved aside under a name that is said, and a new one is started.
- from a newer version: its runs are listed and never changed; new runs go to a file of this version beside it.
Each is one sentence in `notices`, and in `problem` for as long as it lasts.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import platformdirs
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, Unavailable, count_text
from devexplorer.core.benchmark.kinds import result_type
from devexplorer.core.history.export import write_json
from devexplorer.core.history.file import (
    SCHEMA,
    DamagedError,
    Fault,
    FaultError,
    HistoryFile,
    NewerError,
    NotAHistoryError,
    fault_message,
    fault_of,
)
from devexplorer.core.history.filter import Filter, checked_tags, digest, matches
from devexplorer.core.history.side_tables import SideRow
from devexplorer.core.records import BenchResult, Conditions, StoredRun

FILE = "history.sqlite3"
WAIT_S = 2.0
"""How long another process may hold the file."""
NEWER_OFFSET = 1 << 50
"""Added to the numbers of runs in a file of a newer version."""
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
        """The file that new runs go to."""
        self.problem: str | None = None
        """What does not work now, in one line."""
        self.unreadable = 0
        """Runs of the last list that this version could not read."""
        self._wait_s, self._clock = wait_s, clock
        self._file: HistoryFile | None = None
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file that was opened last."""
        self._newer: HistoryFile | None = None
        self.waiting: list[StoredRun] = []
        """Runs that are in memory only."""
        self._written: dict[int, int] = {}
        """Number in memory -> number in the file."""
        self._last = 0
        self._notices: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Try once more to write what waits, and let go of the files. What still waits goes to a JSON file that can be
        imported later."""
        if self.flush():
            self._rescue()
        self._drop()
        if self._newer is not None:
            self._newer.close()
            self._newer = None

    def notices(self) -> tuple[str, ...]:
        """What happened since the last call, a sentence each."""
        notices, self._notices = tuple(self._notices), []
        return notices

    # --- changing ----------------------------------------------------------------------------------------------------

    def add(
        self, result: BenchResult, conditions: Conditions, tags: Iterable[str] = (), *, imported: bool = False
    ) -> StoredRun:
        """Keep a run. It is on the disk when this returns; where that is not possible it waits in memory with a number
        below 0.

        Raises `BadInput` for tags that are none, and for a result with figures that are no numbers.
        """
        self._last -= 1
        run = StoredRun(
            id=self._last, result=result, conditions=conditions, tags=checked_tags(tuple(tags)), imported=imported
        )
        try:
            for record, record_type in ((result, result_type()), (conditions, Conditions)):
                msgspec.json.decode(msgspec.json.encode(record), type=record_type)
        except msgspec.MsgspecError:
            raise BadInput(
                "this run has figures that are no numbers (not a number, or infinite) and cannot be kept"
            ) from None
        self.waiting.append(run)
        self.flush()
        return replace(run, id=self._written.get(run.id, run.id))

    def add_row(self, table: str, row: SideRow) -> int:
        """Keep a record of a feature; returns its number. Raises `Unavailable` where that is not possible now."""
        return self._change(lambda file: file.add_row(table, row))

    def flush(self) -> int:
        """Try to write what waits; returns how many runs wait still."""
        try:
            while self.waiting:
                run = self.waiting[0]
                self._written[run.id] = self._do(lambda file, run=run: file.add(run))  # type: ignore[misc]
                self.waiting.pop(0)
                if not self.waiting:
                    self.problem = None
        except FaultError as error:
            self._say_waiting(error)
        return len(self.waiting)

    def _rescue(self) -> None:
        """Write what waits beside the history, or where temporary files go."""
        name = f"{self.path.stem}-unsaved-{self._stamp()}-{os.getpid()}.json"
        what = count_text(len(self.waiting), "run")
        for folder in (self.path.parent, Path(tempfile.gettempdir())):
            try:
                write_json(folder / name, self.waiting, clock=self._clock)
            except Unavailable:
                continue
            self.waiting = []
            self._notices.append(
                f"{what} could not be written to the history: saved in {folder / name}, import that file later."
            )
            return
        self._notices.append(f"{what} could not be written anywhere: lost.")

    def tag(self, number: int, tags: Iterable[str]) -> StoredRun:
        """Give a run these tags instead of those it has. Raises `BadInput` and `Unavailable`."""
        stored, wanted = self.get(number), checked_tags(tuple(tags))
        tagged = replace(stored, tags=wanted)
        if stored.id < 0:
            self.waiting = [tagged if run.id == stored.id else run for run in self.waiting]
        else:
            self._refuse_newer([stored.id])
            self._change(lambda file: file.tag(stored, wanted))
        return tagged

    def delete(self, numbers: Iterable[int]) -> int:
        """Forget runs for good; returns how many there were. Raises `BadInput` and `Unavailable`."""
        ids = {self._written.get(number, number) for number in numbers}
        self._refuse_newer(ids)
        stored = [number for number in ids if number > 0]
        deleted = self._change(lambda file: file.delete(stored)) if stored else 0
        before = len(self.waiting)
        self.waiting = [run for run in self.waiting if run.id not in ids]
        return deleted + before - len(self.waiting)

    def _change(self, work: Callable[[HistoryFile], _T]) -> _T:
        try:
            return self._do(work)
        except FaultError as error:
            raise Unavailable(f"{error.message}; nothing was changed") from None

    def _refuse_newer(self, ids: Iterable[int]) -> None:
        if any(number >= NEWER_OFFSET for number in ids):
            raise BadInput(
                "a run in the history of a newer DevExplorer is not changed by this version; change it there"
            )

    # --- reading -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: Filter = _EVERYTHING, *, limit: int = PAGE) -> list[StoredRun]:
        """The newest first. Where the file cannot be read: what is in memory, and `problem` says why."""
        result = [run for run in self.waiting if matches(run, wanted)]
        self.unreadable = 0
        for file, first_id in self._sources():
            result += [
                _numbered(run, first_id) for run in self._read(file, lambda file: file.runs(wanted, limit)) or ()
            ]
        result.sort(key=lambda run: (-run.conditions.started_unix_s, -abs(run.id)))
        return result[:limit]

    def rows(self, table: str, limit: int = ROWS) -> list[SideRow]:
        """Records of a feature: the newest, the oldest of them first. None where the file cannot be read: see
        `problem`."""
        return self._read(None, lambda file: file.rows(table, limit)) or []

    def count(self, wanted: Filter = _EVERYTHING) -> int:
        """How many such runs there are."""
        stored = sum(self._read(file, lambda file: file.count(wanted)) or 0 for file, _ in self._sources())
        return stored + sum(matches(run, wanted) for run in self.waiting)

    def get(self, number: int) -> StoredRun:
        """One run. Raises `BadInput` where there is none of that number, `Unavailable` where the file cannot be
        read."""
        number = self._written.get(number, number)
        found = next((run for run in self.waiting if run.id == number), None)
        for file, first_id in self._sources() if found is None else ():
            if (number >= NEWER_OFFSET) == (first_id > 0):
                found = self._read(file, lambda file, at=number - first_id: file.get(at))  # type: ignore[misc]
                found = None if found is None else _numbered(found, first_id)
        if found is None:
            if self.problem is not None and number > 0:
                raise Unavailable(self.problem)
            raise BadInput(f"there is no run #{number} in the history")
        return found

    def find(self, result: BenchResult, conditions: Conditions) -> int | None:
        """The number of the run that measured just this at that time; None where there is none."""
        wanted = digest(result, conditions)
        for run in self.waiting:
            if digest(run.result, run.conditions) == wanted:
                return run.id
        for file, first_id in self._sources():
            if (number := self._read(file, lambda file: file.find(wanted))) is not None:
                return number + first_id
        return None

    def _sources(self) -> list[tuple[HistoryFile | None, int]]:
        """Files and what their numbers begin after; None: the file that new runs go to, which has to be opened to know
        the other."""
        opened = self._read(None, lambda file: True) is not None
        return [*([(None, 0)] if opened else []), *([(self._newer, NEWER_OFFSET)] if self._newer is not None else [])]

    def _read(self, file: HistoryFile | None, work: Callable[[HistoryFile], _T]) -> _T | None:
        """What `work` finds; None, with a problem, where the file cannot be read."""
        try:
            if file is None:
                return self._do(work)
            answer = work(file)
            self.unreadable += file.unreadable
        except FaultError as error:
            if self.waiting:
                self._say_waiting(error)
            else:
                self._say(f"{error.message}; runs that it holds are not listed")
        except sqlite3.Error:
            self._say(f"this version cannot read the runs in {file.path if file is not None else self.path}")
        else:
            return answer
        return None

    # --- the file ----------------------------------------------------------------------------------------------------

    def _do(self, work: Callable[[HistoryFile], _T]) -> _T:
        """Do it with the open file; a damaged one is moved aside first. Raises `FaultError`; then the file is
        closed."""
        for moved in (False, True):
            try:
                file = self._opened()
                done = work(file)
            except (sqlite3.Error, OSError, NotAHistoryError, DamagedError) as error:
                self._drop()
                fault = fault_of(error)
                if fault is not Fault.DAMAGED or moved:
                    raise FaultError(fault, fault_message(fault, self.path, error)) from error
                self._move_aside(foreign=isinstance(error, NotAHistoryError))
            else:
                self.unreadable += file.unreadable
                file.unreadable = 0
                if not self.waiting:
                    self.problem = None
                return done
        raise AssertionError("the second attempt returns or raises")

    def _opened(self) -> HistoryFile:
        if self._file is not None and _identity(self.path) != self._identity:
            self._drop()  # the file was deleted or replaced: what is written to the old one is lost
        if self._file is None:
            self._identity = _identity(self.path)
            try:
                self._file = HistoryFile(self.path, wait_s=self._wait_s)
                self._identity = _identity(self.path)
            except NewerError as error:
                if self._newer is not None:
                    raise NotAHistoryError from error
                self._newer = HistoryFile(self.path, wait_s=self._wait_s, read_only=True)
                newer, self.path = self.path, self.path.with_name(f"{self.path.stem}-{SCHEMA}{self.path.suffix}")
                message = (
                    f"{newer} is the history of a newer DevExplorer: its runs are listed and not changed, new ones go"
                    f" to {self.path.name}"
                )
                self._notices.append(f"{message}.")
                return self._opened()
        return self._file

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

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
            for ending in ("-journal", "-wal", "-shm"):  # they belong to the file, and what is in them too
                if os.path.exists(beside := self.path.with_name(self.path.name + ending)):
                    os.rename(beside, copy.with_name(copy.name + ending))
        except OSError as error:
            message = (
                f"the history {self.path} is damaged and cannot be moved aside ({error.strerror}); it is left as it is"
            )
            raise FaultError(Fault.READ_ONLY, message) from error
        what = "is another program's database" if foreign else "is damaged"
        message = f"The history {self.path} {what}: it is kept as {copy.name}, and a new one was started."
        saved = 0 if foreign else self._salvage(copy)
        self._notices.append(
            f"{message} {count_text(saved, 'run')} could still be read and taken over." if saved else message
        )

    def _salvage(self, copy: Path) -> int:
        """Take over what can still be read of a damaged file; returns how many runs that were."""
        saved = 0
        try:
            old = HistoryFile(copy, wait_s=self._wait_s, read_only=True)
            try:
                for run in old.readable():
                    self._opened().add(run)
                    saved += 1
                for table in old.tables():
                    for row in old.rows(table, ROWS):
                        self._opened().add_row(table, row)
            finally:
                old.close()
        except (sqlite3.Error, OSError):  # of the damaged file; what is wrong with the new one shows at its first use
            pass
        return saved

    def _stamp(self) -> str:
        return time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock()))

    def _say_waiting(self, error: FaultError) -> None:
        until = "when it is free" if error.fault is Fault.LOCKED else "when that is possible"
        count = count_text(len(self.waiting), "run")
        self._say(f"{error.message}; {count} kept in memory, to be written {until}")

    def _say(self, message: str) -> None:
        message = f"{message[:1].upper()}{message[1:]}."
        if message != self.problem:
            self._notices.append(message)
        self.problem = message


def _numbered(run: StoredRun, first_id: int) -> StoredRun:
    return run if first_id == 0 else replace(run, id=run.id + first_id)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
