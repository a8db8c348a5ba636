"""Time limits for driver calls: a call that hangs is abandoned on its thread, and everything else goes on. Any thread.

A driver call cannot be cancelled. So jobs run on daemon threads, each call is noted on the `CallTracker` of its job,
and the thread that waits looks at the trackers. A call that takes too long is given up: its thread does nothing more
when the call returns, and the job is begun again on another thread, without that call. Noting a call costs two
assignments; nothing is handed from thread to thread call by call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

ABANDONED = "left-behind"
"""Name of a thread whose call was given up."""
GRACE_S = 0.02
"""Jobs run one after the other on one thread; each that still waits after this time gets a thread of its own."""
LOOK_S = 0.02
"""Between two looks at the trackers."""


class AbandonedError(Exception):
    """The call of this thread took too long, and another thread has taken over. Nothing that it found out counts."""


class TimeLimitError(Exception):
    """A call did not come back in time."""


class CallTracker:
    """The calls of one attempt at a job. Its thread writes `calls` and `subject`, other threads read them."""

    __slots__ = ("calls", "left", "seen", "since", "subject", "thread")

    def __init__(self) -> None:
        self.calls = 0
        """Grows with every call into the driver."""
        self.subject: Any = None
        """What is being asked; None between calls."""
        self.left = False
        """Whether it was given up."""
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


def driver_function(thread: threading.Thread) -> str | None:
    """The outermost function of NVML that a thread is inside."""
    frame = sys._current_frames().get(thread.ident or 0)
    function = None
    while frame is not None:
        if frame.f_code.co_name.startswith("nvml"):
            function = frame.f_code.co_name
        frame = frame.f_back
    return function


def any_abandoned() -> bool:
    """Whether a thread of this process is still inside a call that was given up."""
    return any(thread.name == ABANDONED for thread in threading.enumerate())


def run_all(
    jobs: Sequence[Callable[[CallTracker], T]], give_up: Callable[[CallTracker, float], bool], name: str
) -> list[T]:
    """Do all jobs on threads called `name-N` and wait for them; the results in their order, or the first job's
    exception.

    `give_up(tracker, now)` is asked again and again about each job under way, and says whether its call takes too long;
    it has to see to it that the job's next attempt leaves that call out.
    """
    pool = WorkerPool(name)
    trackers: dict[int, CallTracker] = {}
    replies: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
    outcomes: dict[int, tuple[Any, BaseException | None]] = {}

    def attempt(number: int) -> None:
        tracker = trackers[number] = CallTracker()
        result, failure = None, None
        try:
            result = jobs[number](tracker)
        except AbandonedError:
            return
        except BaseException as error:  # raised where it is waited for
            failure = error
        if not tracker.left:
            replies.put((number, result, failure))

    pool.add(partial(attempt, number) for number in range(len(jobs)))
    pool.call(1)
    started = time.monotonic()
    try:
        while len(outcomes) < len(jobs):
            try:
                number, *outcome = replies.get(timeout=LOOK_S)
                outcomes[number] = (outcome[0], outcome[1])
            except Empty:
                now = time.monotonic()
                for number, tracker in trackers.copy().items():
                    if number not in outcomes and give_up(tracker, now):
                        del trackers[number]
                        pool.add([partial(attempt, number)])
                        pool.call(1)
                if now - started >= GRACE_S:
                    pool.call(pool.waiting)
    finally:
        pool.end(0)
    ordered = [outcomes[number] for number in range(len(jobs))]
    for _, failure in ordered:
        if failure is not None:
            raise failure
    return [result for result, _ in ordered]


def call_within(limit_s: float, call: Callable[[], T], what: str) -> T:
    """What `call` returns or raises, on a thread of its own; `TimeLimitError`, with `what` named, when that takes too
    long."""

    def give_up(tracker: CallTracker, now: float) -> bool:
        if tracker.waited_s(now) < limit_s:
            return False
        tracker.leave()
        raise TimeLimitError(f"{what} did not answer within {limit_s:g} s")

    def job(tracker: CallTracker) -> T:
        tracker.calls, tracker.subject = 1, what
        try:
            return call()
        finally:
            tracker.subject = None

    return run_all([job], give_up, "driver-call")[0]


Job = Callable[[], None]


class WorkerPool:
    """`add` jobs, then `call` as many workers as shall do them; idle workers wait to be called again.

    One worker for several quick jobs costs a tenth of one worker each: they would compete for the GIL at every driver
    call. Workers wait without timers. A hanging job holds only its own worker; a worker ends when its job raises (the
    thread hook reports it) or when an abandoned call returns (`time_limit`), and is then replaced.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Job] = deque()
        self._idle: list[_Worker] = []
        self._hands: list[_Worker] = []
        self._lock = threading.Lock()
        self._ending = False

    @property
    def waiting(self) -> int:
        """Number of jobs that have not begun."""
        return len(self._jobs)

    @property
    def idle(self) -> int:
        """Number of idle workers."""
        return len(self._idle)

    def add(self, jobs: Iterable[Job]) -> None:
        """Append jobs to the queue. Any thread, including workers."""
        self._jobs.extend(jobs)

    def call(self, hands: int) -> None:
        """Let that many more workers process the queue: idle ones first, then new ones."""
        for _ in range(hands):
            with self._lock:
                if self._ending:
                    return
                if self._idle:
                    hand = self._idle.pop()  # the last that worked: one does all the work as long as that is enough
                else:
                    self._hands = [hand for hand in self._hands if hand.thread.is_alive()]
                    hand = _Worker(f"{self._name}-{len(self._hands) + 1}", self._work)
                    self._hands.append(hand)
                    hand.thread.start()
            hand.go.put(True)

    def end(self, deadline_s: float) -> bool:
        """Start no more jobs, and wait for the workers until the deadline; returns whether all have ended."""
        with self._lock:
            self._ending = True
            hands = list(self._hands)
        self._jobs.clear()
        for hand in hands:
            hand.go.put(False)
        until = time.monotonic() + deadline_s
        for hand in hands:
            if hand.thread.name != ABANDONED:  # that one is inside a call that may never come back
                hand.thread.join(max(until - time.monotonic(), 0))
        return not any(hand.thread.is_alive() for hand in hands)

    def _work(self, hand: _Worker) -> None:
        while hand.go.get():  # no timeout: each would be a timer
            while not self._ending:
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    break
                job()
                if hand.thread.name == ABANDONED:
                    return  # another hand has taken its place
            with self._lock:
                self._idle.append(hand)


class _Worker:
    """A thread and the queue that wakes it."""

    def __init__(self, name: str, work: Callable[[_Worker], None]) -> None:
        self.go: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
