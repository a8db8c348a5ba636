"""The history of all benchmark runs: SQLite under the user's data folder (`HistoryFile`), and what happens when that
cannot be read or written (`Store`).

One thread at a time: the command line uses it directly, the window through `core.history.store_thread`. No torch, no
Qt.

A run is one row: its records as JSON, and beside them the columns that are filtered by. A rollback journal and not WAL:
home folders of GPU servers are often on network file systems, where WAL must not be used (sqlite.org/wal.html); a
history in WAL mode cannot be read from a folder that is read-only; and one small write per run needs no speed. Every
run is committed, and on the disk, before `add` returns.

No fault overwrites a file, and each is one sentence:
- locked by another process for long, read-only, disk full, of a newer version: a new run is saved as a JSON file beside
  it, or where temporary files go, to be imported later; nothing else is changed.
- damaged, or another program's database: it is moved aside under a name that is said, and a new one is started.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import msgspec
import platformdirs
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, Unavailable, first_line
from devexplorer.core.benchmark.kind import dtype, kind_name
from devexplorer.core.feature import any_result
from devexplorer.core.history.export import write_json
from devexplorer.core.history.filter import Filter, checked_tags, device_of, digest, search_text, where
from devexplorer.core.records import BenchResult, Conditions, StoredRun

APPLICATION_ID = 0x44457868
"""`DExh` at its place in the header, so that another program's database is not taken for a history."""
SCHEMA = 1
CHECKED_BYTES = 64 << 20
"""Files up to this size are checked as a whole when they are opened (0.1 s at most); faults in larger ones are found
when they are met."""

_LAYOUT = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL, began REAL NOT NULL, device TEXT NOT NULL, device_name TEXT NOT NULL, uuid TEXT, dtype TEXT,
    simulated INTEGER NOT NULL, imported INTEGER NOT NULL, digest TEXT NOT NULL, text TEXT NOT NULL, tags TEXT NOT NULL,
    result TEXT NOT NULL, conditions TEXT NOT NULL
)
"""


class SideRow(NamedTuple):
    """One record of a feature, a row of its own table beside that of runs; what it says is known to the feature alone.
    The table is made with its first row, so that files of earlier versions need no change."""

    began_unix_s: float
    simulated: bool
    record: str
    """As JSON."""
    id: int = 0
    """0: it is not stored yet."""


class NotAHistoryError(Exception):
    """A sound database, but not one of ours."""


class DamagedError(Exception):
    """SQLite's own check found it damaged."""


class NewerError(Exception):
    """Made by a newer version."""


class FaultError(Exception):
    """The file could not be used; its text is one clause for a person."""


_LOCKED = "is locked by another process"
_CLOSED = "cannot be written ({reason}); make the file and its folder writable"
_FULL = "cannot be written: the disk is full, or fails"
_DAMAGED = "is damaged"
_BY_CODE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _CLOSED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_AUTH: _CLOSED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def is_damaged(error: Exception) -> bool:
    """Whether the file holds no history that can be read."""
    return _what(error) == _DAMAGED


def fault_text(path: Path, error: Exception) -> str:
    """One clause: what is wrong, and what would help."""
    reason = getattr(error, "strerror", None) or first_line(error)
    return f"the history {path} {_what(error).format(reason=reason)}"


def _what(error: Exception) -> str:
    if isinstance(error, NotAHistoryError | DamagedError):
        return _DAMAGED
    if isinstance(error, NewerError):
        return "is that of a newer DevExplorer, which this version neither reads nor changes"
    if isinstance(error, OSError):
        return _FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else _CLOSED
    return _BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "cannot be used ({reason})")


class HistoryFile:
    """An open file. Every method may raise `sqlite3.Error`; making one also `NewerError`, `NotAHistoryError`,
    `DamagedError`, `OSError`."""

    def __init__(self, path: Path, *, wait_s: float) -> None:
        """Open, and lay out when it is new. `wait_s`: how long to wait for another process."""
        self.path = path
        self.unreadable = 0
        """Rows that this version could not read, in the last answer."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        application, version = self._number("PRAGMA application_id"), self._number("PRAGMA user_version")
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if application != APPLICATION_ID and (application or version or tables):
            raise NotAHistoryError
        if version > SCHEMA:
            raise NewerError
        self._connection.execute("PRAGMA synchronous = EXTRA")
        if version == 0:
            with self._transaction():
                if self._number("PRAGMA user_version") == 0:  # no other process was quicker
                    self._connection.execute(_LAYOUT)
                    self._connection.execute("CREATE INDEX runs_began ON runs (began DESC, id DESC)")
                    self._connection.execute("CREATE INDEX runs_digest ON runs (digest)")
                    self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        elif os.path.getsize(self.path) <= CHECKED_BYTES:
            (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise DamagedError

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, run: StoredRun, once: bool) -> int:
        """Store a run; returns the id that it has from now on. When this returns, it is on the disk. `once`: see
        `Store.add`."""
        known, spec = run.conditions, run.result.spec
        row = (  # in the order of `_LAYOUT`
            None, kind_name(run.result), known.started_unix_s, device_of(run), known.device_name, known.uuid,
            dtype(spec),
            run.result.simulated, run.imported, digest(run.result, known), search_text(run), _json(run.tags),
            _json(run.result), _json(known),
        )  # fmt: skip
        with self._transaction():
            if once and (there := self.find(digest(run.result, known))) is not None:
                return there
            number = self._connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row).lastrowid
        assert number is not None
        return number

    def add_row(self, table: str, row: SideRow) -> int:
        """Store a record of a feature in its table; returns the id that it has from now on."""
        with self._transaction():
            self._connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{table}" (id INTEGER PRIMARY KEY AUTOINCREMENT, began REAL NOT NULL,'
                " simulated INTEGER NOT NULL, record TEXT NOT NULL)"
            )
            insert = f'INSERT INTO "{table}" (began, simulated, record) VALUES (?, ?, ?)'
            number = self._connection.execute(insert, row[:3]).lastrowid
        assert number is not None
        return number

    def tag(self, run: StoredRun, tags: tuple[str, ...]) -> None:
        """Give a stored run these tags instead of those it has."""
        tagged = msgspec.structs.replace(run, tags=tags)
        with self._transaction():
            self._connection.execute(
                "UPDATE runs SET tags = ?, text = ? WHERE id = ?", (_json(tags), search_text(tagged), run.id)
            )

    def delete(self, ids: Iterable[int]) -> int:
        """Forget runs; returns how many there were."""
        with self._transaction():
            return sum(
                self._connection.execute("DELETE FROM runs WHERE id = ?", (number,)).rowcount for number in set(ids)
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # --- reading -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: Filter, limit: int) -> list[StoredRun]:
        """The newest first; rows that cannot be read are left out and counted."""
        condition, values = where(wanted)
        order = "ORDER BY began DESC, id DESC LIMIT ?"
        rows = self._select(f"WHERE {condition} {order}", *values, limit).fetchall()
        result = [run for row in rows if (run := _run(row)) is not None]
        self.unreadable = len(rows) - len(result)
        return result

    def rows(self, table: str, limit: int) -> list[SideRow]:
        """Records of a feature: the newest, the oldest of them first."""
        if not self._number("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)):
            return []
        select = f'SELECT began, simulated, record, id FROM "{table}" ORDER BY began DESC, id DESC LIMIT ?'
        newest = self._connection.execute(select, (limit,)).fetchall()
        return [
            SideRow(began, bool(simulated), record, number) for began, simulated, record, number in reversed(newest)
        ]

    def count(self, wanted: Filter) -> int:
        """How many there are."""
        condition, values = where(wanted)
        return self._number(f"SELECT count(*) FROM runs WHERE {condition}", values)

    def get(self, number: int) -> StoredRun | None:
        """One run."""
        row = self._select("WHERE id = ?", number).fetchone()
        return None if row is None else _run(row)

    def find(self, run_digest: str) -> int | None:
        """The id of the run with that digest."""
        row = self._connection.execute("SELECT id FROM runs WHERE digest = ? LIMIT 1", (run_digest,)).fetchone()
        return None if row is None else int(row[0])

    def _select(self, which: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT id, tags, imported, result, conditions FROM runs {which}", values)

    def _number(self, query: str, values: Iterable[object] = ()) -> int:
        (value,) = self._connection.execute(query, tuple(values)).fetchone()
        return int(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _run(row: tuple[int, str, int, str, str]) -> StoredRun | None:
    number, tags, imported, result, conditions = row
    try:
        return StoredRun(
            id=number,
            result=msgspec.json.decode(result, type=any_result()),
            conditions=msgspec.json.decode(conditions, type=Conditions),
            tags=msgspec.json.decode(tags, type=tuple[str, ...]),
            imported=bool(imported),
        )
    except (msgspec.MsgspecError, TypeError, ValueError):  # by a newer version, or edited by hand
        return None


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
        self,
        result: BenchResult,
        conditions: Conditions,
        tags: Iterable[str] = (),
        *,
        imported: bool = False,
        once: bool = False,
    ) -> StoredRun:
        """Keep a run. It is on the disk when this returns. `once`: where it is there already, that one is returned.

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
            return replace(run, id=self._do(lambda file: file.add(run, once)))
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
