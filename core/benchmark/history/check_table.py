"""The table of fleet checks, beside that of runs in the same file; made with the first of them, so that files of
earlier versions need no change. Every function may raise `sqlite3.Error`; one thread at a time."""

from __future__ import annotations

import sqlite3

import msgspec

from devexplorer.core.records.fleet_history import StoredCheck

_LAYOUT = """
CREATE TABLE IF NOT EXISTS fleet_checks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, began REAL NOT NULL, simulated INTEGER NOT NULL, record TEXT NOT NULL
)
"""


def add_check(connection: sqlite3.Connection, check: StoredCheck) -> int:
    """Store it, within a transaction; returns its number."""
    connection.execute(_LAYOUT)
    record = msgspec.json.encode(msgspec.structs.replace(check, id=0)).decode()
    row = (check.started_unix_s, check.simulated, record)
    number = connection.execute("INSERT INTO fleet_checks (began, simulated, record) VALUES (?, ?, ?)", row).lastrowid
    assert number is not None
    return number


def checks(connection: sqlite3.Connection, limit: int) -> list[StoredCheck]:
    """The newest, the oldest of them first; those that this version cannot read are left out."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'fleet_checks'").fetchone() is None:
        return []
    rows = connection.execute("SELECT id, record FROM fleet_checks ORDER BY began DESC, id DESC LIMIT ?", (limit,))
    known = [check for number, record in rows.fetchall() if (check := _check(number, record)) is not None]
    return known[::-1]


def _check(number: int, record: str) -> StoredCheck | None:
    try:
        return msgspec.structs.replace(msgspec.json.decode(record, type=StoredCheck), id=number)
    except (msgspec.MsgspecError, TypeError, ValueError):  # by a newer version, or edited by hand
        return None
