"""Looks for the shape with the highest throughput: proposes what to measure next. No torch, no thread, no clock.

A hill climb around the best shape so far, with changes that become smaller, and jumps. The speed of a product hardly
depends on the exact size until a side crosses a tile or a wave of tiles; the highest throughput lies where tiles and
waves come out even, so it is looked for at multiples of 256, then 128, then 64, which hold the sides of the tiles that
kernels use. (mamf-finder goes through a whole grid; that takes hours.)

1. Squares of 256, 512, 1024, … up to 8192, or the shapes that were given.
2. Around the best: a random choice of sides is doubled or halved (multiples of 256).
3. Then changed by up to four steps of 256, then of 128, then of 64. After eight proposals in a row without a better one
  (by 0.1 % at least): the next.
4. After the finest: one jump to a shape drawn anywhere (evenly on a logarithmic scale, multiples of 256), then 2 again.

What is out of bounds (`allowed`) or has been measured is drawn again. The random numbers have a fixed seed, so the same
measurements lead to the same proposals.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

Shape = tuple[int, int, int]

START_SIDES = (256, 512, 1024, 2048, 4096, 8192)
COARSE = 256
STEPS = (256, 128, 64)
MOST_STEPS = 4
"""A side changes by up to so many steps at once."""
TRIES = 8
"""Proposals without a better shape before the changes become smaller."""
DRAWS = 200
"""Draws before a kind of change counts as exhausted."""
LARGEST_JUMP = 32_768
MARGIN = 0.001
"""The climb goes to a shape that is faster by this share; less is noise, or the tail of a curve that never ends."""


class Search:
    """Ask `propose`, measure, `tell`; and so on."""

    def __init__(self, allowed: Callable[[Shape], bool], start: Iterable[Shape] = (), seed: int = 0) -> None:
        """`allowed`: whether a shape may be proposed now; `start`: shapes to begin with in place of squares, which are
        not asked about."""
        self._allowed = allowed
        given = list(start)
        self._start = given or [(side, side, side) for side in START_SIDES]
        self._given = bool(given)
        self._random = random.Random(seed)
        self._seen: set[Shape] = set()
        self._level = 0
        self._tries = 0
        self.best: tuple[Shape, float] | None = None
        """Where the climb has arrived, and its rate: nothing that was measured is faster by more than 0.1 %."""

    def tell(self, shape: Shape, rate: float | None) -> None:
        """How fast a shape was; None: it could not be measured."""
        self._seen.add(shape)
        if rate is not None and (self.best is None or rate > self.best[1] * (1 + MARGIN)):
            self.best = shape, rate
            self._tries = 0
        else:
            self._tries += 1

    def propose(self) -> Shape | None:
        """The next shape to measure; None when nothing new can be found."""
        while self._start:
            shape = self._start.pop(0)
            if shape not in self._seen and (self._given or self._allowed(shape)):
                self._tries = 0
                return shape
        for _ in range(len(STEPS) + 3):  # once round all levels and the jump
            if self._tries >= TRIES:
                self._next_level()
            drawn = self._drawn()
            if drawn is not None:
                return drawn
            self._next_level()
        return None

    def _next_level(self) -> None:
        self._level = (self._level + 1) % (len(STEPS) + 2)
        self._tries = 0

    def _drawn(self) -> Shape | None:
        jump = self._level == len(STEPS) + 1
        for _ in range(DRAWS):
            shape = self._anywhere() if jump or self.best is None else self._near(self.best[0])
            if min(shape) >= 1 and shape not in self._seen and self._allowed(shape):
                if jump:
                    self._next_level()  # one jump, not eight
                return shape
        return None

    def _near(self, shape: Shape) -> Shape:
        """A neighbour at the present level; a side can come out as 0."""
        sides = list(shape)
        for index in self._random.sample(range(3), self._random.randint(1, 3)):
            if self._level == 0:
                wanted = sides[index] * self._random.choice((2.0, 0.5))
                sides[index] = max(round(wanted / COARSE), 1) * COARSE
            else:
                step = STEPS[self._level - 1]
                change = self._random.choice((-1, 1)) * self._random.randint(1, MOST_STEPS)
                sides[index] = max((round(sides[index] / step) + change) * step, 0)
        return sides[0], sides[1], sides[2]

    def _anywhere(self) -> Shape:
        def side() -> int:
            return round(math.exp(self._random.uniform(math.log(COARSE), math.log(LARGEST_JUMP))) / COARSE) * COARSE

        return side(), side(), side()
