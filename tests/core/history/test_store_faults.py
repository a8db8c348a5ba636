"""The history with a file that is locked, corrupt, read-only or from a newer version, or a full disk: no file
is overwritten, and no run lost."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from fakes.disk import full_disk, somebody_else
from fakes.runs import BEGAN, again, conditions, filled, matmul, one_line, samples, sweep

from devexplorer.core.base import Unavailable
from devexplorer.core.history.store import APPLICATION_ID, HistoryFile, Store
from devexplorer.core.history.store_thread import import_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path, wait_s=0.05, clock=lambda: BEGAN) as opened:
        yield opened


# --- locked


@contextmanager
def locked(path: Path, how: str = "EXCLUSIVE") -> Iterator[None]:
    """Another program in a transaction."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(f"BEGIN {how}")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize("how", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_run_that_a_locked_history_does_not_take_is_saved_beside_it(store: Store, path: Path, how: str) -> None:
    first = store.add(matmul(), conditions(0))
    with locked(path, how):
        with pytest.raises(Unavailable, match="locked by another process") as raised:
            store.add(sweep(), conditions(1), ("lost and found",))
        assert "locked by another process" in one_line(store.problem)
        assert store.runs() == ([] if how == "EXCLUSIVE" else [first])
        with pytest.raises(Unavailable, match="nothing was changed"):
            store.delete([first.id])
    (saved,) = path.parent.glob("history-unsaved-*.json")
    assert f"saved as {saved}: import that file later" in one_line(str(raised.value))
    import_file(saved, store)
    assert store.problem is None
    found = store.runs()[0]
    assert (found.result, found.tags) == (msgspec.structs.replace(sweep(), run=0), ("lost and found",))


# --- corrupt


def broken(path: Path, kind: str) -> bytes:
    """A history with a fault; returns the bytes of the file."""
    with Store(path) as store:
        store.runs()
        assert store._file is not None
        store._file._connection.execute("PRAGMA synchronous = OFF")  # 40 runs need not be on the disk one by one here
        for number in range(40):
            store.add(matmul(samples(100, seed=number)), conditions(number))
    content = bytearray(path.read_bytes())
    if kind == "not a database":
        content = bytearray(b"this is no database, however long it is. " * 200)
    elif kind == "torn":
        del content[len(content) // 2 :]
    elif kind == "scribbled over":
        content[4096:-4096] = os.urandom(1024) * ((len(content) - 8192) // 1024)
    path.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("kind", ["not a database", "torn", "scribbled over"])
def test_a_corrupt_history_is_kept_under_another_name(store: Store, path: Path, kind: str) -> None:
    content = broken(path, kind)
    run = store.add(matmul(), conditions(99))
    assert again(path) == [run]
    copy = path.with_name("history-damaged-20270115-080000.sqlite3")
    assert copy.read_bytes() == content
    (words,) = store.notices()
    assert copy.name in one_line(words)
    assert "damaged" in words


def test_a_second_corrupt_history_does_not_replace_the_first_copy(store: Store, path: Path) -> None:
    first = broken(path, "not a database")
    store.runs()
    path.write_bytes(b"\0" * 10_000)
    store.add(matmul(), conditions(0))
    assert path.with_name("history-damaged-20270115-080000.sqlite3").read_bytes() == first
    assert path.with_name("history-damaged-20270115-080000-2.sqlite3").read_bytes() == b"\0" * 10_000


def test_another_programs_database_is_left_whole(store: Store, path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    with other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    content = path.read_bytes()
    store.add(matmul(), conditions(0))
    assert path.with_name("history-foreign-20270115-080000.sqlite3").read_bytes() == content
    assert "another program's" in one_line(store.notices()[0])


def test_a_row_that_cannot_be_read_costs_no_other(store: Store, path: Path) -> None:
    added = filled(store)
    with sqlite3.connect(path) as other:
        other.execute('UPDATE runs SET result = \'{"type": "quantum"}\' WHERE id = ?', (added[1].id,))
    other.close()
    assert store.runs() == [run for run in reversed(added) if run.id != added[1].id]
    assert store.unreadable == 1


def test_a_history_that_was_deleted_meanwhile_is_made_again(store: Store, path: Path) -> None:
    store.add(matmul(), conditions(0))
    path.unlink()
    run = store.add(sweep(), conditions(1))
    assert again(path) == [run]


def test_a_history_in_the_middle_of_a_write_is_rolled_back(store: Store, path: Path) -> None:
    """The result of a crash during a write: a half-written file, and a journal with its original pages."""
    added = [store.add(matmul(samples(100, seed=number)), conditions(number)) for number in range(30)]
    store.close()
    half = path.with_name("half.sqlite3")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA cache_size = 2")
    other.execute("BEGIN")
    other.execute("UPDATE runs SET text = text || 'half', result = '{}'")
    journal = path.with_name(f"{path.name}-journal")
    assert journal.stat().st_size > 512, "pages were written before the end"
    half.write_bytes(path.read_bytes())
    half.with_name(f"{half.name}-journal").write_bytes(journal.read_bytes())
    other.execute("ROLLBACK")
    other.close()
    with Store(half) as found:
        assert found.runs() == added[::-1]
        assert found.notices() == ()


# --- read-only


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that other users can read but not write; pytest's own is private."""
    with tempfile.TemporaryDirectory(prefix="devexplorer-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another user cannot be played here")
@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file yet"])
def test_a_read_only_history_is_listed_and_what_cannot_be_kept_is_said(
    readable_folder: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path = readable_folder / "history.sqlite3"
    if there:
        with Store(path) as store:
            store.add(matmul(), conditions(0))
        path.chmod(0o444)
    readable_folder.chmod(0o555)
    before = path.read_bytes() if there else None
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(readable_folder))
    with somebody_else():
        store = Store(path, wait_s=0.05)
        assert len(store.runs()) == there
        with pytest.raises(Unavailable, match=r"cannot be written.*could not be saved anywhere"):
            store.add(sweep(), conditions(1))
        store.close()
    assert (path.read_bytes() if there else None) == before
    assert sorted(readable_folder.iterdir()) == ([path] if there else [])


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    store = Store(tmp_path / "taken" / "history.sqlite3")
    assert store.runs() == []
    with pytest.raises(Unavailable, match="cannot be written") as raised:
        store.add(matmul(), conditions())
    (saved,) = tmp_path.glob("history-unsaved-*.json")
    assert str(saved) in one_line(str(raised.value))
    store.close()


# --- from a newer version


def test_a_newer_history_is_left_alone_and_said(store: Store, path: Path) -> None:
    store.add(matmul(), conditions(0))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN mood TEXT")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    content = path.read_bytes()
    assert store.runs() == []
    assert "newer DevExplorer" in one_line(store.problem)
    with pytest.raises(Unavailable, match=r"newer DevExplorer.*import that file later"):
        store.add(sweep(), conditions(1))
    store.close()
    assert path.read_bytes() == content


# --- disk full


def test_a_full_disk_takes_runs_again_when_there_is_room(store: Store, path: Path) -> None:
    store.add(matmul(), conditions(0))
    with full_disk(path.stat().st_size), pytest.raises(Unavailable, match="the disk is full"):
        store.add(matmul(samples(90)), conditions(1))
    assert store.add(matmul(samples(90)), conditions(1)).id > 0
    assert store.problem is None
    assert [each.result for each in again(path)] == [matmul(samples(90)), matmul()]


def test_sqlites_own_word_for_a_full_disk_is_the_same(store: Store, path: Path) -> None:
    store.add(matmul(), conditions(0))
    assert isinstance(store._file, HistoryFile)
    pages = store._file._number("PRAGMA page_count")
    store._file._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="the disk is full"):
        store.add(matmul(samples(90)), conditions(1))
    assert again(path)[0].conditions == conditions(0)
    assert store.add(matmul(samples(90)), conditions(1)).id > 0, "the file was opened anew, without the limit"


def test_the_file_says_whose_it_is(store: Store, path: Path) -> None:
    store.runs()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
