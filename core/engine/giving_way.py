"""The engine gives way to the window, and to nobody else. Called from the window's main thread, once per beat; no Qt,
no torch.

Linux schedules sessions as groups (autogroup): the nice value of a group counts against every other session of the
machine. An engine whose group always has nice 10 leaves the window alone, but on a busy machine it starves: measured at
load 8, a start took 54 s instead of 7. So the group is as nice as any other until the window has to wait for a core;
then it stands back for a while, each time for longer. If the window waits all the same, it is not the engine that it
waits for, and the engine goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

BEAT_S = 0.033
"""What the window leaves between two beats."""
WAITED_S = 0.03
"""A beat that waited so long for a core is a late one: it was missed. Other programs on every core make it wait for 10
to 20 ms."""
HELD_UP = (3, 1.0)
"""So many late beats within so many seconds: the engine holds the window up."""
IN_VAIN = (8, 2.0)
"""So many although the engine stands back: it is not the engine."""
HIDDEN_S = 0.5
"""Beats so far apart tell nothing: the window is hidden, or the machine slept."""
FIRST_S, LONGEST_S = 8.0, 64.0
"""How long the engine stands back the first time, and at most."""
CALM_S = 10.0
"""Smooth for so long without standing back: the next time is a first time again."""
PAUSE_S = 10.0
"""How long it is not tried again after it was in vain."""
BACK = 10
"""The nice value of a group that stands back."""


class GivingWay:
    """`beat` once per beat of the window; `renice` gives the engine's group a nice value and says whether that could be
    done."""

    def __init__(
        self,
        renice: Callable[[int], bool],
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`cpu_clock`: what the thread that beats has computed, which is no waiting."""
        self._renice, self._clock, self._cpu_clock = renice, clock, cpu_clock
        self._last: tuple[float, float] | None = None
        self._late: deque[float] = deque(maxlen=max(HELD_UP[0], IN_VAIN[0]))
        """When the newest late beats were."""
        self._stand_s = FIRST_S
        self._until = -CALM_S
        """When the engine goes on; while it does: since when."""
        self._not_before = 0.0
        self.standing_back = False

    def forget(self) -> None:
        """Start over for a new engine, which has the default priority."""
        self._late.clear()
        self.standing_back = False

    def beat(self) -> None:
        """The window beats now."""
        now, cpu = self._clock(), self._cpu_clock()
        last, self._last = self._last, (now, cpu)
        if last is None or now - last[0] > HIDDEN_S:
            return
        if (now - last[0]) - max(BEAT_S, cpu - last[1]) > WAITED_S:
            self._late.append(now)
        if not self.standing_back:
            if now >= self._not_before and self._were_late(*HELD_UP, now):
                self._stand_back(now)
        elif self._were_late(*IN_VAIN, now):
            self._go_on(now)
            self._not_before = now + PAUSE_S
        elif now >= self._until:
            self._go_on(now)

    def _were_late(self, beats: int, seconds: float, now: float) -> bool:
        return len(self._late) >= beats and now - self._late[-beats] <= seconds

    def _stand_back(self, now: float) -> None:
        if not self._renice(BACK):
            return
        self._stand_s = FIRST_S if now - self._until > CALM_S else min(2 * self._stand_s, LONGEST_S)
        self._until = now + self._stand_s
        self.standing_back = True
        self._late.clear()

    def _go_on(self, now: float) -> None:
        if self._renice(0):
            self.standing_back = False
            self._until = now
            self._late.clear()
