"""Why SQLite could not do it, sorted by what helps, and in words. Pure functions, any thread; no torch."""

from __future__ import annotations

import enum
import errno
import sqlite3
from pathlib import Path

from devexplorer.core.benchmark.history.file import DamagedError, NotAHistoryError


class Fault(enum.Enum):
    """Why the file could not be used."""

    LOCKED = "locked"
    READ_ONLY = "read-only"
    FULL = "full"
    DAMAGED = "damaged"
    OTHER = "other"


class FaultError(Exception):
    """The file could not be used; `words` is one clause for a person."""

    def __init__(self, fault: Fault, words: str) -> None:
        super().__init__(words)
        self.fault, self.words = fault, words


def fault_of(error: Exception) -> Fault:
    """What kind of fault an error of SQLite or of the system is."""
    if isinstance(error, NotAHistoryError | DamagedError):
        return Fault.DAMAGED
    if isinstance(error, OSError):
        return Fault.FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Fault.READ_ONLY
    return {
        sqlite3.SQLITE_BUSY: Fault.LOCKED,
        sqlite3.SQLITE_LOCKED: Fault.LOCKED,
        sqlite3.SQLITE_READONLY: Fault.READ_ONLY,
        sqlite3.SQLITE_CANTOPEN: Fault.READ_ONLY,
        sqlite3.SQLITE_PERM: Fault.READ_ONLY,
        sqlite3.SQLITE_AUTH: Fault.READ_ONLY,
        sqlite3.SQLITE_FULL: Fault.FULL,
        sqlite3.SQLITE_IOERR: Fault.FULL,
        sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
        sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
    }.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, Fault.OTHER)


def _plain(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def fault_words(fault: Fault, path: Path, error: Exception) -> str:
    """One clause: what is wrong, and what would help."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return {
        Fault.LOCKED: f"the history {path} is locked by another process",
        Fault.READ_ONLY: (
            f"the history {path} cannot be written ({_plain(error)}); make the file and its folder writable"
        ),
        Fault.FULL: f"the history {path} cannot be written: the disk is full, or fails",
        Fault.DAMAGED: f"the history {path} is damaged",
        Fault.OTHER: f"the history {path} cannot be used ({reason})",
    }[fault]
