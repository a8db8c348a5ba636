"""The history's thread: calls do not block, and results arrive in order on the calling thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.runs import conditions, matmul, model, samples, sweep

from devexplorer.core.history.filter import Filter
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import StoreThread
from devexplorer.core.records import StoredRun

DEADLINE_S = 10.0


class Desk:
    """A client that asks and listens."""

    def __init__(self, path: Path) -> None:
        self.changes = 0
        self.notices: list[tuple[str, bool]] = []
        self.said: list[tuple[str, bool]] = []
        self.kept: list[StoredRun] = []
        self.pages: list[tuple[list[StoredRun], int]] = []
        self.history = StoreThread(
            SimpleNamespace(on_run=[]),  # type: ignore[arg-type]
            lambda: Store(path, wait_s=0.01),
            on_change=self._changed,
            on_notice=lambda *said: self.notices.append(said),
        )

    def _changed(self) -> None:
        self.changes += 1

    def say(self, words: str, failed: bool) -> None:
        self.said.append((words, failed))

    def show(self, runs: object, total: int) -> None:
        self.pages.append((list(runs), total))  # type: ignore[call-overload]

    def until(self, arrived: Callable[[], object]) -> None:
        """Beat until the condition holds."""
        end = time.monotonic() + DEADLINE_S
        while not arrived():
            assert time.monotonic() < end, "it never came"
            self.history.deliver()
            time.sleep(0.001)

    def listed(self, wanted: Filter = Filter(), limit: int = 100) -> list[StoredRun]:  # noqa: B008 - frozen
        before = len(self.pages)
        self.history.request(wanted.kind, wanted.text, limit, self.show)
        self.until(lambda: len(self.pages) > before)
        return self.pages[-1][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite3"


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    made = Desk(path)
    yield made
    assert made.history.close(DEADLINE_S)


def test_runs_are_kept_listed_tagged_and_deleted_in_the_order_of_the_calls(desk: Desk) -> None:
    desk.history.add(matmul(), conditions(0), done=desk.kept.append)
    desk.history.add(sweep(), conditions(1), done=desk.kept.append)
    assert [run.result for run in desk.listed()] == [sweep(), matmul()]
    assert desk.pages[-1][1] == 2
    first, second = desk.kept
    desk.history.tag([(first.id, ("a", "b"))], desk.say)
    desk.history.delete([second.id], desk.say)
    assert [run.tags for run in desk.listed()] == [("a", "b")]
    assert desk.said == [("1 run deleted from the history.", False)]
    assert desk.changes == 4
    assert desk.history.problem is None


def test_callbacks_run_where_deliver_is_called(desk: Desk) -> None:
    threads: list[threading.Thread] = []
    desk.history.add(matmul(), conditions(), done=lambda run: threads.append(threading.current_thread()))
    time.sleep(0.02)
    assert threads == []
    desk.until(lambda: threads)
    assert threads == [threading.current_thread()]


def test_pages_and_filters_are_passed_on(desk: Desk) -> None:
    for number in range(5):
        desk.history.add(matmul(), conditions(number))
    assert [run.id for run in desk.listed(limit=2)] == [5, 4]
    assert desk.pages[-1][1] == 5
    assert desk.listed(Filter(kind="sweep")) == []


def test_exports_and_imports_are_made_on_the_thread(desk: Desk, tmp_path: Path) -> None:
    desk.history.add(matmul(samples(100)), conditions(0))
    desk.history.add(matmul(samples(90)), conditions(1))
    runs = desk.listed()
    for kind in ("json", "csv", "html"):
        desk.history.export(kind, tmp_path / f"out.{kind}", [run.id for run in runs], names=True, say=desk.say)
    desk.history.import_file(tmp_path / "out.json", desk.say)
    desk.history.import_file(tmp_path / "nothing.json", desk.say)
    desk.until(lambda: len(desk.said) == 5)
    assert [failed for _, failed in desk.said] == [False, False, False, False, True]
    assert desk.said[3][0] == "0 runs imported from out.json. 2 runs already in the history."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.sqlite3", "out.csv", "out.html", "out.json"]


def test_a_locked_history_is_said_for_as_long_as_it_lasts(desk: Desk, path: Path) -> None:
    desk.history.add(matmul(), conditions(0), done=desk.kept.append)
    desk.until(lambda: desk.kept)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    desk.history.add(model(), conditions(1), done=desk.kept.append)
    desk.until(lambda: desk.notices and desk.history.problem)
    ((words, failed),) = desk.notices
    assert failed
    assert "locked by another process" in words
    assert "import that file later" in words
    other.execute("ROLLBACK")
    other.close()
    assert len(desk.listed()) == 1
    desk.until(lambda: desk.history.problem is None)


def test_a_fault_of_ours_is_reported_and_the_next_run_is_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    desk.history.export("papyrus", Path("nowhere"), [], names=True, say=desk.say)
    desk.history.add(matmul(), conditions(), done=desk.kept.append)
    desk.until(lambda: desk.kept and desk.said)
    assert len(reported) == 1
    assert desk.said[0][1]


def test_closing_carries_out_what_was_asked_for(path: Path) -> None:
    desk = Desk(path)
    for number in range(20):
        desk.history.add(matmul(), conditions(number))
    assert desk.history.close(DEADLINE_S)
    with Store(path) as store:
        assert store.count() == 20


def test_one_that_was_never_started_can_be_closed(path: Path) -> None:
    never_started = StoreThread(SimpleNamespace(on_run=[]), lambda: Store(path))  # type: ignore[arg-type]
    assert never_started.close()
    assert not path.exists()
