"""The sampler's threads: one for fast jobs, another on request, none forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from devexplorer.core.base.time_limit import WorkerPool


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_one_hand_does_all_jobs_in_their_order_and_is_used_again() -> None:
    crew, done = WorkerPool("hand"), []

    def job(number: int) -> None:
        done.append((number, threading.current_thread().name))

    for start in (0, 3):
        crew.add([lambda number=number: job(number) for number in range(start, start + 3)])  # type: ignore[misc]
        crew.call(1)
        until(lambda start=start: len(done) == start + 3)  # type: ignore[misc]
        until(lambda: crew.idle)
    assert done == [(number, "hand-1") for number in range(6)]
    assert crew.end(10.0)


def test_a_job_may_add_others() -> None:
    crew, done = WorkerPool("hand"), []
    crew.add([lambda: crew.add([lambda: done.append("later")]), lambda: done.append("now")])
    crew.call(1)
    until(lambda: done == ["now", "later"])
    assert crew.end(10.0)


def test_a_job_that_hangs_holds_its_own_hand_only() -> None:
    crew, gate, done = WorkerPool("hand"), threading.Event(), []
    crew.add([lambda: gate.wait(10.0) and None, lambda: done.append(1), lambda: done.append(2)])
    crew.call(1)
    until(lambda: crew.waiting == 2)
    assert done == []
    crew.call(crew.waiting)
    until(lambda: sorted(done) == [1, 2])
    assert not crew.end(0.01), "one still hangs"
    crew.add([lambda: done.append(3)])
    crew.call(1)
    gate.set()
    assert crew.end(10.0)
    assert 3 not in done, "nothing is begun any more"


def test_a_job_that_fails_ends_its_hand_and_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(args.exc_type))
    crew, done = WorkerPool("hand"), []

    def fail() -> None:
        raise ZeroDivisionError

    crew.add([fail])
    crew.call(1)
    until(lambda: said == [ZeroDivisionError])
    crew.add([lambda: done.append(1)])
    crew.call(1)
    until(lambda: done == [1])
    assert crew.end(10.0)
