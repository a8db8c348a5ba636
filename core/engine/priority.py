"""The priority of the engine among the programs of the machine. Window's main thread, once per beat; no Qt, no torch.

Linux schedules sessions as groups (autogroup): the nice value of the engine's group counts against every other session,
the window's and those of other users. While no other program needs the cores, the group yields: only the window can
profit from that. On a busy machine a group that always yields starves (measured at load 8: a start took 54 s instead of
7), so there it has the default value until the window itself has to wait for a core; then it yields for a while, each
time for longer. If the window waits all the same, it is waiting for other programs, and the engine goes on.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable

from devexplorer.core.base import Clock
from devexplorer.core.devices.cpu_busy import CpuBusy

BEAT_S = 0.033
"""What the window leaves between two beats."""
WAITED_S = 0.03
"""A beat that waited so long for a core is late: one was missed. Other programs on every core make it wait 10 to 20
ms."""
HELD_UP = (3, 1.0)
"""So many late beats within so many seconds: the engine holds the window up."""
IN_VAIN = (8, 2.0)
"""So many although the engine yields: other programs hold it up."""
HIDDEN_S = 0.5
"""Beats this far apart are ignored: the window is hidden, or the machine slept."""
FIRST_S, LONGEST_S = 8.0, 64.0
"""How long the engine yields on a busy machine, the first time and at most."""
CALM_S = 10.0
"""After so long without yielding the next time counts as the first."""
PAUSE_S = 10.0
"""How long yielding is not tried again after it was in vain."""
LOOK_S = 1.0
"""Between two readings of what other programs use."""
BUSY_SHARE = 0.25
"""Share of all cores from which on other programs make the machine a busy one."""
YIELDING = 10
"""The nice value of a group that yields."""


class OtherPrograms:
    """Share of all cores, 0 to 1, that programs other than this process and the engine used since the last call; None
    where the system does not report it."""

    def __init__(self, engine_cpu_s: Clock) -> None:
        """`engine_cpu_s`: seconds of CPU time that the engine has used so far."""
        self._engine_cpu_s = engine_cpu_s
        self._busy = CpuBusy()
        self._then = self._now()

    def __call__(self) -> float | None:
        """The share since the last call."""
        percent = self._busy()
        if percent is None:
            return None
        (then, then_used), (now, used) = self._then, self._now()
        self._then = now, used
        return max(percent / 100 - (used - then_used) / (now - then) / (os.cpu_count() or 1), 0.0)

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.process_time() + self._engine_cpu_s()


class EnginePriority:
    """`beat` once per beat of the window."""

    def __init__(
        self,
        renice: Callable[[int], bool],
        others: Callable[[], float | None],
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.thread_time,
    ) -> None:
        """`renice` gives the engine's group a nice value and returns whether that worked; `others` as `OtherPrograms`;
        `cpu_clock`: what the beating thread has computed, which is not waiting."""
        self._renice, self._others, self._clock, self._cpu_clock = renice, others, clock, cpu_clock
        self._last: tuple[float, float] | None = None
        self._late: deque[float] = deque(maxlen=max(HELD_UP[0], IN_VAIN[0]))
        """When the newest late beats were."""
        self._look_at = clock() + LOOK_S
        self._yield_s = FIRST_S
        self._until = -CALM_S
        """When the engine goes on (infinite: when others need the cores); while it does: since when."""
        self._not_before = 0.0
        self.yielding = False

    def beat(self) -> None:
        """The window beats now."""
        now, cpu = self._clock(), self._cpu_clock()
        last, self._last = self._last, (now, cpu)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look(now)
        if last is None or now - last[0] > HIDDEN_S:
            return
        if (now - last[0]) - max(BEAT_S, cpu - last[1]) > WAITED_S:
            self._late.append(now)
        if not self.yielding:
            if now >= self._not_before and self._were_late(*HELD_UP, now):
                seconds = FIRST_S if now - self._until > CALM_S else min(2 * self._yield_s, LONGEST_S)
                if self._yield_until(now + seconds):
                    self._yield_s = seconds
        elif self._until < math.inf and self._were_late(*IN_VAIN, now):
            self._go_on(now)
            self._not_before = now + PAUSE_S
        elif now >= self._until:
            self._go_on(now)

    def _look(self, now: float) -> None:
        share = self._others()
        if share is not None and share < BUSY_SHARE:
            self._yield_until(math.inf)
        elif self._until == math.inf:
            self._go_on(now)

    def _were_late(self, beats: int, seconds: float, now: float) -> bool:
        return len(self._late) >= beats and now - self._late[-beats] <= seconds

    def _yield_until(self, until: float) -> bool:
        if not self.yielding:
            if not self._renice(YIELDING):
                return False
            self.yielding = True
            self._late.clear()
        self._until = until
        return True

    def _go_on(self, now: float) -> None:
        if self._renice(0):
            self.yielding = False
            self._until = now
            self._late.clear()
