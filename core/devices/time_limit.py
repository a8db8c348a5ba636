"""Time limits for driver calls: a call that hangs is abandoned on its thread, and everything else goes on. Any thread.

A driver call cannot be cancelled. So jobs run on daemon threads, each call is noted on the `CallTracker` of its job,
and whoever waits looks at the lines. A call that takes too long is given up: its thread does nothing more when the call
returns, and the job is begun again on another thread, without that call. Noting a call costs two assignments; nothing
is handed from thread to thread call by call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

ABANDONED = "left-behind"
"""Name of a thread whose call was given up."""
GRACE_S = 0.02
"""Jobs run one after the other on one thread; after so long each that still waits gets a thread of its own."""
LOOK_S = 0.02
"""Between two looks at the lines."""


class AbandonedError(Exception):
    """The call of this thread took too long, and another thread has taken over. Nothing that it found out counts."""


class TimeLimitError(Exception):
    """A call did not come back in time."""


class CallTracker:
    """The calls of one attempt at a job. Its thread writes `calls` and `subject`, whoever watches reads them."""

    __slots__ = ("calls", "left", "seen", "since", "subject", "thread")

    def __init__(self) -> None:
        self.calls = 0
        """Grows with every call into the driver."""
        self.subject: Any = None
        """What is being asked; None between calls."""
        self.left = False
        """Whether somebody gave up on it."""
        self.thread = threading.current_thread()
        self.seen = -1
        self.since = 0.0

    def waited_s(self, now: float) -> float:
        """For how long the present call has been seen to take; 0 when there is none, or another one than at the last
        look."""
        calls = self.calls
        if self.subject is None or calls != self.seen:
            self.seen, self.since = calls, now
            return 0.0
        return now - self.since

    def leave(self) -> None:
        """Give up on the present call."""
        self.left = True
        self.thread.name = ABANDONED


def driver_function(thread: threading.Thread, prefix: str = "nvml") -> str | None:
    """The outermost function of the driver's interface that a thread is inside."""
    frame = sys._current_frames().get(thread.ident or 0)
    found = None
    while frame is not None:
        if frame.f_code.co_name.startswith(prefix):
            found = frame.f_code.co_name
        frame = frame.f_back
    return found


def any_abandoned() -> bool:
    """Whether a thread of this process is still inside a call that was given up."""
    return any(thread.name == ABANDONED for thread in threading.enumerate())


def run_all(
    jobs: Sequence[Callable[[CallTracker], T]], give_up: Callable[[CallTracker, float], bool], name: str
) -> list[T]:
    """Do all jobs on threads called `name-N` and wait for them; the results in their order, or the first job's
    exception.

    `give_up(line, now)` is asked again and again about each job under way, and says whether the call on the line takes
    too long; it has to see to it that the job's next attempt leaves that call out.
    """
    work = _Work(jobs, name)
    work.hire(1)
    started = time.monotonic()
    while work.unfinished:
        if not work.collect(LOOK_S):
            now = time.monotonic()
            for number, line in work.under_way():
                if give_up(line, now):
                    work.begin_again(number)
            if now - started >= GRACE_S:
                work.hire(work.waiting)
    return work.results()


class _Work:
    """The jobs of one `run_all`, and the threads that do them."""

    def __init__(self, jobs: Sequence[Callable[[CallTracker], Any]], name: str) -> None:
        self._jobs = jobs
        self._name = name
        self._todo = deque(range(len(jobs)))
        self._lines: dict[int, CallTracker] = {}
        self._replies: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self._found: dict[int, tuple[Any, BaseException | None]] = {}
        self._hired = 0

    @property
    def unfinished(self) -> bool:
        return len(self._found) < len(self._jobs)

    @property
    def waiting(self) -> int:
        return len(self._todo)

    def hire(self, hands: int) -> None:
        for _ in range(hands):
            self._hired += 1
            threading.Thread(target=self._do, name=f"{self._name}-{self._hired}", daemon=True).start()

    def collect(self, patience_s: float) -> bool:
        """Take one reply; False when none comes."""
        try:
            number, result, error = self._replies.get(timeout=patience_s)
        except Empty:
            return False
        self._lines.pop(number, None)
        self._found[number] = (result, error)
        return True

    def under_way(self) -> list[tuple[int, CallTracker]]:
        return [(number, line) for number, line in self._lines.copy().items() if number not in self._found]

    def begin_again(self, number: int) -> None:
        self._lines.pop(number, None)
        self._todo.appendleft(number)
        self.hire(1)

    def results(self) -> list[Any]:
        for number in range(len(self._jobs)):
            error = self._found[number][1]
            if error is not None:
                raise error
        return [self._found[number][0] for number in range(len(self._jobs))]

    def _do(self) -> None:
        while self._todo:
            try:
                number = self._todo.popleft()
            except IndexError:
                return
            line = self._lines[number] = CallTracker()
            reply: tuple[int, Any, BaseException | None]
            try:
                reply = (number, self._jobs[number](line), None)
            except AbandonedError:
                return
            except BaseException as error:  # raised where it is waited for
                reply = (number, None, error)
            if line.left:
                return
            self._replies.put(reply)


def call_within(limit_s: float, call: Callable[[], T], what: str) -> T:
    """What `call` returns or raises, on a thread of its own; `TimeLimitError`, with `what` named, when that takes too
    long."""

    def give_up(line: CallTracker, now: float) -> bool:
        if line.waited_s(now) < limit_s:
            return False
        line.leave()
        raise TimeLimitError(f"{what} did not answer within {limit_s:g} s")

    def job(line: CallTracker) -> T:
        line.calls, line.subject = 1, what
        try:
            return call()
        finally:
            line.subject = None

    return run_all([job], give_up, "driver-call")[0]
