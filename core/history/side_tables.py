"""Tables of features beside that of runs in the same file, a record a row; each is made with its first row, so that
files of earlier versions need no change. What a record says is known to its feature alone. Every function may raise
`sqlite3.Error`; one thread at a time."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple


class SideRow(NamedTuple):
    """One record of a feature."""

    began_unix_s: float
    simulated: bool
    record: str
    """As JSON."""
    id: int = 0
    """0: it is not stored yet."""


def add_row(connection: sqlite3.Connection, table: str, row: SideRow) -> int:
    """Store it, within a transaction; returns its number."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_quoted(table)} (id INTEGER PRIMARY KEY AUTOINCREMENT, began REAL NOT NULL,"
        " simulated INTEGER NOT NULL, record TEXT NOT NULL)"
    )
    insert = f"INSERT INTO {_quoted(table)} (began, simulated, record) VALUES (?, ?, ?)"
    number = connection.execute(insert, (row.began_unix_s, row.simulated, row.record)).lastrowid
    assert number is not None
    return number


def rows(connection: sqlite3.Connection, table: str, limit: int) -> list[SideRow]:
    """The newest, the oldest of them first."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return []
    select = f"SELECT began, simulated, record, id FROM {_quoted(table)} ORDER BY began DESC, id DESC LIMIT ?"
    newest = connection.execute(select, (limit,)).fetchall()
    return [SideRow(began, bool(simulated), record, number) for began, simulated, record, number in reversed(newest)]


def _quoted(name: str) -> str:
    """A name in a file that was damaged can be anything."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
