"""The three ways in which products are measured: live, burst, sustained. Runs on the thread that runs the benchmark.

A mode decides how long each block is, keeps the samples (seconds per iteration), and knows when it is done; it is given
an operation that is warm. docs/benchmarks.md says what each of them is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil

import numpy as np

from devexplorer.core.base import shape_text
from devexplorer.core.benchmark.measuring import LONGEST_BLOCK, Samples
from devexplorer.core.benchmark.timing import Block, BlockTimer, Operation
from devexplorer.core.records import MatmulSpec

WINDOW_SECONDS = 2.0
"""Sustained: the steady window."""
PARTS = 8
SETTLE_SECONDS = 30.0
"""Sustained: how long to wait at most for a steady speed, where the run itself has no end."""
STEADY_BLOCKS = 10
STEADY_WITHIN = 0.01
"""Steady: the medians of the first and the second half of the last ten blocks differ by less than this."""


class Live:
    """Blocks of 50 ms, one iteration right after the other, until time or iterations are used up: the curve of the
    window."""

    one_by_one = False

    def __init__(
        self, spec: MatmulSpec, timer: BlockTimer, operation: Operation, each: float, flush: Operation | None = None
    ) -> None:
        """`each`: seconds that one iteration takes about; `flush`: empties the cache."""
        self.spec = spec
        self._timer = timer
        self._operation = operation
        self._flush = flush
        self._each = each
        self._cost = each if flush is None else 0.0
        """Seconds of an iteration and of what happens between two; 0: not known yet."""
        self.samples = Samples[float]()
        self.iterations = 0
        self.blocks = 0
        self.seconds = 0.0
        """Of all iterations."""
        self.spent = 0.0
        """The same, with what happened between them."""

    @property
    def text(self) -> str:
        """What is measured now, in two or three words."""
        return shape_text(self.spec.shape)

    @property
    def done(self) -> float | None:
        """0 to 1; None where the end is not known."""
        shares = []
        if self.spec.seconds is not None:
            shares.append(self.spent / self.spec.seconds)
        if self.spec.iterations is not None:
            shares.append(self.iterations / self.spec.iterations)
        return min(max(shares), 1.0) if shares else None

    def step(self) -> Block | None:
        """Measure one block; None when nothing is left to measure."""
        length = min(self._length(self.spec.block_seconds), self._left())
        if length < 1 or (self.spec.seconds is not None and self.spent >= self.spec.seconds):
            return None
        return self._take(self._measure(length))

    def _left(self) -> int:
        """Iterations that the run may still have."""
        return LONGEST_BLOCK if self.spec.iterations is None else self.spec.iterations - self.iterations

    def _length(self, seconds: float) -> int:
        """Iterations that fill so many seconds at the latest speed."""
        if self._cost > 0:
            return min(max(int(seconds / self._cost), 1), LONGEST_BLOCK)
        return (
            LONGEST_BLOCK if self._flush is None else 1
        )  # too fast for the clock; or the first flush, which can take longest of all

    def _measure(self, iterations: int) -> Block:
        if self.one_by_one or self._flush is not None:
            block = self._timer.singly(self._operation, iterations, self._each, self._flush)
        else:
            block = self._timer.block(self._operation, iterations)
        self._each = block.seconds / block.iterations
        self._cost = block.spent / block.iterations
        return block

    def _take(self, block: Block) -> Block:
        self.samples.add(block.samples)
        self.iterations += block.iterations
        self.blocks += 1
        self.seconds += block.seconds
        self.spent += block.spent
        return block

    def parts_tflops(self) -> tuple[float, ...]:
        """Sustained has eight."""
        return ()

    def drift(self) -> float | None:
        """The last part over the first, minus 1; None without all of them."""
        parts = self.parts_tflops()
        return parts[-1] / parts[0] - 1 if len(parts) == PARTS else None


class Burst(Live):
    """Each iteration is timed alone, on a cold cache where there is one to empty: what one product takes in the middle
    of other work."""

    one_by_one = True


class Sustained(Live):
    """A steady window of 2 s in eight parts, once the speed has settled: what a card keeps up.

    `spec.seconds` bounds settling and window together; of less than 2 s the window takes all. What was measured while
    it settled is only given when it was stopped before the window began.
    """

    def __init__(
        self, spec: MatmulSpec, timer: BlockTimer, operation: Operation, each: float, flush: Operation | None = None
    ) -> None:
        super().__init__(spec, timer, operation, each, flush)
        self._window = WINDOW_SECONDS if spec.seconds is None else min(WINDOW_SECONDS, spec.seconds)
        self._settle = SETTLE_SECONDS if spec.seconds is None else spec.seconds - self._window
        self._latest: deque[float] = deque(maxlen=STEADY_BLOCKS)
        self._parts: list[float] = []
        self._part: list[Block] = []
        self._settling = self._settle > 0
        self._settled = 0.0
        """Seconds that settling took."""

    @property
    def text(self) -> str:
        """`settling`, or the part."""
        return "settling" if self._settling else f"part {min(len(self._parts) + 1, PARTS)} of {PARTS}"

    @property
    def done(self) -> float | None:
        """Of settling and window together, so that the remaining time follows from the elapsed time; unknown while it
        settles."""
        if self._settling:
            return None
        share = min((len(self._parts) + self._in_part() / (self._window / PARTS)) / PARTS, 1.0)
        return (self._settled + share * self._window) / (self._settled + self._window)

    def step(self) -> Block | None:
        """See `Live`."""
        if self._settling:
            block = self._take(self._measure(self._length(self.spec.block_seconds)))
            self._latest.append(float(np.median(block.samples)))
            if self._steady() or self.spent >= self._settle:
                self._begin()
            return block
        length = min(self._length(min(self.spec.block_seconds, self._window / PARTS - self._in_part())), self._left())
        if len(self._parts) == PARTS or length < 1:
            return None
        block = self._take(self._measure(length))
        self._part.append(block)
        if self._in_part() >= self._window / PARTS * (1 - 1e-9):
            seconds = sum(part.seconds for part in self._part)
            self._parts.append(self.spec.flop * sum(part.iterations for part in self._part) / seconds / 1e12)
            self._part = []
        return block

    def _in_part(self) -> float:
        return sum(block.spent for block in self._part)

    def _steady(self) -> bool:
        if len(self._latest) < STEADY_BLOCKS:
            return False
        first, second = np.split(np.array(self._latest), 2)
        return bool(abs(np.median(second) / np.median(first) - 1) < STEADY_WITHIN)

    def _begin(self) -> None:
        """From here on it counts."""
        self._settling, self._settled = False, self.spent
        self.samples = Samples[float]()
        self.iterations = self.blocks = 0
        self.seconds = self.spent = 0.0

    def parts_tflops(self) -> tuple[float, ...]:
        """Those that are finished: mean TFLOP/s of an eighth of the window each."""
        return tuple(self._parts)


MODES = {"live": Live, "burst": Burst, "sustained": Sustained}


def warm_up(
    timer: BlockTimer,
    operation: Operation,
    seconds: float,
    block_seconds: float,
    stopped: Callable[[], bool] = lambda: False,
) -> float:
    """Run for so many seconds, one iteration at least unless `stopped()`; returns about how long one iteration
    takes."""
    spent, each, iterations = 0.0, 0.0, 1
    while spent < seconds and not stopped():
        block = timer.block(operation, iterations)
        spent += block.seconds
        each = block.seconds / block.iterations
        iterations = min(max(ceil(min(block_seconds, seconds) / each), 1), LONGEST_BLOCK) if each > 0 else LONGEST_BLOCK
    return each
