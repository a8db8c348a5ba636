"""Notices that a script is stopped: by a signal (SIGSTOP, Ctrl-Z), or in a debugger. What passes meanwhile belongs to
no step. A thread of its own, `observe-stops`, which looks four times a second; it asks for no lock and holds none.

A process that is stopped has no time of the processor, and none of its threads wakes: that is what tells a signal. In a
debugger the observed thread alone waits, and its stack says where.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING

from devexplorer.core.observe import hooks
from devexplorer.core.observe.places import is_own
from devexplorer.core.observe.records import BY_SIGNAL, IN_DEBUGGER

if TYPE_CHECKING:
    from devexplorer.core.observe.observer import Observation

LOOK_S = 0.25
CLOSE_LOOK_S = 0.05
"""While it is in a debugger."""
LEAST_S = 1.0
"""A thread can have to wait for a processor, or for a library that lets no other run; a second is long for that."""
BUSY_SHARE = 0.1
"""Of that time on a processor: then it was not stopped."""
DEBUGGERS = {("pdb.py", "interaction"), ("pydevd.py", "do_wait_suspend"), ("pydevd.py", "_do_wait_suspend")}


class StopWatch:
    """`start` it; it ends with the run. `Observation.held` and `stopped` are what it finds."""

    def __init__(self, run: Observation) -> None:
        self._run = run
        self._fold = run.fold
        self._last = run.fold.stamps[-1]
        """Of the last mark at the last look."""

    def start(self) -> None:
        """Begin to look."""
        self._run.stops_seen_ns = perf_counter_ns()
        threading.Thread(target=self._watch, name="observe-stops", daemon=True).start()

    def _watch(self) -> None:
        try:
            begun, used, waited = perf_counter_ns(), time.process_time_ns(), _waited_ns()
            while hooks.watch.run is self._run:
                pause = CLOSE_LOOK_S if self._run.held else LOOK_S
                time.sleep(pause)
                former, used_before, waited_before = begun, used, waited  # without a gap: it may be stopped at any line
                begun, used, waited = perf_counter_ns(), time.process_time_ns(), _waited_ns()
                paused = int(1e9 * pause)
                working = max(0, used - used_before - paused)  # in the pause itself the script may work
                if was_stopped(begun - former - paused, working, waited - waited_before):
                    self._add(self._mark_before(former + paused, former), begun, BY_SIGNAL)
                self._look_for_debugger(former, begun)
                self._run.stops_seen_ns = perf_counter_ns()
        except Exception as error:
            self._run.problem(error)

    def _mark_before(self, moment: int, earliest: int) -> int:
        """The last one up to that moment: nothing was done after it."""
        for stamp in reversed(self._fold.stamps[-100:]):
            if _nanoseconds(stamp) <= moment:
                return max(_nanoseconds(stamp), earliest)
        return earliest

    def _look_for_debugger(self, begun: int, ended: int) -> None:
        """Something that takes long leaves no mark; only then is it worth a look at the stack."""
        last, before = self._fold.stamps[-1], self._last
        self._last = last
        held = last is before and is_debugged(sys._current_frames().get(hooks.watch.thread))
        if held:
            stamp = _nanoseconds(last)
            recent = not self._run.held and begun - stamp < 2e9 * LOOK_S  # it has begun since then
            self._add(stamp if recent else max(stamp, begun), ended, IN_DEBUGGER)
        self._run.held = IN_DEBUGGER if held else ""

    def _add(self, begun: int, ended: int, how: str) -> None:
        left_out = self._fold.leave_out(begun, ended)
        if left_out:
            self._run.stopped[how] = self._run.stopped.get(how, 0.0) + left_out / 1e9


def was_stopped(asleep_ns: int, used_ns: int, waited_ns: int) -> bool:
    """Whether it slept too long, and neither worked meanwhile nor waited for a processor, as on a busy machine."""
    return asleep_ns > 1e9 * LEAST_S and used_ns < BUSY_SHARE * asleep_ns and waited_ns < 0.5 * asleep_ns


def _waited_ns() -> int:
    """How long this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def is_debugged(frame: FrameType | None) -> bool:
    """Whether a debugger waits for its user in there, rather than in something that the script calls from it."""
    while frame is not None:
        code = frame.f_code
        if (os.path.basename(code.co_filename), code.co_name) in DEBUGGERS:
            return True
        if is_own(code.co_filename):
            return False
        frame = frame.f_back
    return False


def _nanoseconds(stamp: object) -> int:
    return stamp[0] if isinstance(stamp, tuple) else stamp  # type: ignore[return-value]
