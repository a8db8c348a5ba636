"""Products of many shapes, one after the other in burst mode, and the search for the fastest. Runs on the jobs thread
or a bench thread.

`core.sweep.run` says how it looks. It measures shapes of which an iteration is expected (at the highest
throughput so far) to take half of the time per shape at most, and whose operands fill nine tenths of the free memory at
most: no single shape eats up the time budget, which is spent on the clock of the device (the simulated one of a virtual
GPU, so that the same search measures the same shapes again).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, Unavailable, parse_seconds, shape_text
from devexplorer.core.benchmark.matmul import Burst, MeasuredProduct, real_product, warm_up
from devexplorer.core.benchmark.spec import (
    BY_COLUMNS,
    LARGEST_SIDE,
    MOST_SHAPES,
    Checks,
    check_chip,
    check_fits,
    check_product,
    free_bytes,
    operand_bytes,
    shape_problem,
)
from devexplorer.core.benchmark.statistics import BLOCK_SECONDS, spread
from devexplorer.core.benchmark.timing import BlockTimer, Operation, Runner
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint, MatmulSpec
from devexplorer.core.sweep.kind import SweepCell, SweepResult, SweepSpec

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


WARM_UP_SECONDS = 0.05
"""Per shape, or one iteration where that is longer."""
SHARE_OF_MEMORY = 0.9
FEWEST_ITERATIONS = 2
"""That a shape of the search is expected to have."""


def check_sweep(spec: SweepSpec, registry: DeviceRegistry) -> SweepSpec:
    """The specification with the device's canonical name. Raises `BadInput` with everything that is wrong.

    Shapes that do not fit are none of it: they become cells with a reason.
    """
    checks = Checks(registry)
    if not spec.shapes and spec.search_seconds is None:
        checks.add("a sweep needs sizes (256:4096:256), or seconds for a search")
    if len(spec.shapes) > MOST_SHAPES:
        checks.add(f"{len(spec.shapes):,} shapes are too many; {MOST_SHAPES:,} are the most that one sweep measures")
    measured = [cell.shape for cell in spec.done]
    wrong = next(
        (shape for shape in (*spec.shapes, *measured) if not all(1 <= side <= LARGEST_SIDE for side in shape)), None
    )
    if wrong is not None:
        checks.add(
            f"a product of {'x'.join(map(str, wrong))} cannot be measured; every side is from 1 to {LARGEST_SIDE}"
        )
    if spec.search_seconds is not None:
        checks.checked(partial(parse_seconds, spec.search_seconds, "search"))
    checks.checked(partial(parse_seconds, spec.shape_seconds, "per shape"))
    device = checks.checked(partial(_chip, spec, registry), spec.device)
    checks.demand_none()
    free_bytes(registry, device)  # makes a CUDA card's context, or says that there is no room for one
    return replace(spec, device=device)


def _chip(spec: SweepSpec, registry: DeviceRegistry) -> str:
    """The canonical name of a device that has such products."""
    check_product(spec.dtype)
    device = registry.choose(spec.device)
    check_chip(spec.dtype, registry.info(device))
    return device


class SweepRun(Runner[SweepSpec]):
    """A step begins a shape or measures one block of it."""

    def __init__(
        self,
        spec: SweepSpec,
        run: int,
        timer: BlockTimer,
        *,
        kind: str = "cpu",
        make: Callable[[MatmulSpec], MeasuredProduct] = real_product,
        flush: Callable[[str], Operation] | None = None,
        free_bytes: Callable[[], int | None] = lambda: None,
        datasheet_tflops: float | None = None,
        clock: Clock = time.time,
    ) -> None:
        """`kind` of the device, `make` for the products on it, `flush` for its cache (called with the device), its free
        memory."""
        super().__init__(spec, run, clock, simulated=timer.simulated, on_cpu=spec.device == "cpu")
        self._timer = timer
        self._kind = kind
        self._make = make
        self._make_flush = flush
        self._free_bytes = free_bytes
        self._datasheet_tflops = datasheet_tflops
        self._flush: Operation | None = None
        self._free: int | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self._cells = list(spec.done)
        self._new = 0
        self._current: Burst | None = None
        """The shape that is being measured."""
        self._began: float | None = None
        self._iterations = 0
        self._seconds = 0.0
        known = {cell.shape for cell in spec.done}
        self._given = [shape for shape in dict.fromkeys(spec.shapes) if shape not in known]
        self._total = len(self._given)
        self._search = None if spec.search_seconds is None else Search(self._allowed, spec.shapes, seed=len(known))
        for cell in spec.done:
            self._tell(cell)

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Make the buffer that flushes the cache. Each shape allocates, verifies and warms up for itself."""
        self._stopped = stopped
        if self._make_flush is not None and not stopped():
            self._flush = self._make_flush(self.spec.device)

    def step(self) -> BenchPoint | None:
        """Begin the next shape, or measure a block of the current one; None after the last."""
        if self._began is None:
            self._began = self._timer.now()
        if self._current is not None:
            return self._guarded(self._current.spec, self._measure)
        shape = self._next_shape()
        if shape is None:
            return None
        spec = self._spec_of(shape)
        return self._guarded(spec, lambda: self._begin(spec))

    def _next_shape(self) -> Shape | None:
        if self._search is None:
            return self._given[self._new] if self._new < self._total else None
        assert self.spec.search_seconds is not None
        if (
            self._new < self._total or self._elapsed() < self.spec.search_seconds
        ):  # what was given is measured in any case
            self._free = self._free_bytes()  # once for all the draws of a proposal
            return self._search.propose()
        return None

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else self._timer.now() - self._began

    def _allowed(self, shape: Shape) -> bool:
        """Whether the search may measure this shape."""
        m, n, k = shape
        needed = sum(operand_bytes(m, n, k, self.spec.dtype))
        if max(shape) > LARGEST_SIDE or (self._free is not None and needed > self._free * SHARE_OF_MEMORY):
            return False
        best = self._search.best if self._search is not None else None
        return best is None or 2 * m * n * k / (best[1] * 1e12) <= self.spec.shape_seconds / FEWEST_ITERATIONS

    def _spec_of(self, shape: Shape) -> MatmulSpec:
        m, n, k = shape
        return MatmulSpec(
            device=self.spec.device,
            dtype=self.spec.dtype,
            m=m,
            n=n,
            k=k,
            transpose_b=self.spec.dtype in BY_COLUMNS,
            mode="burst",
            seconds=self.spec.shape_seconds,
            block_seconds=self.spec.shape_seconds if self.simulated else BLOCK_SECONDS,
        )

    def _guarded(self, spec: MatmulSpec, work: Callable[[], BenchPoint]) -> BenchPoint:
        """A shape for which there is no room, or no kernel, ends with its reason; everything else ends the sweep."""
        try:
            return work()
        except (BadInput, Unavailable, RuntimeError, MemoryError) as error:
            if not isinstance(error, BadInput | Unavailable) and not is_out_of_memory(error):
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "out of memory"
        self._current = None
        return self._finish(SweepCell(*spec.shape, reason=reason))

    def _begin(self, spec: MatmulSpec) -> BenchPoint:
        problem = shape_problem(spec, self._kind)
        if problem is not None:
            raise BadInput(problem)
        check_fits(spec, self._free_bytes())  # the buffer of the flush is there already
        made = self._make(spec)
        if not made.verify():
            return self._finish(
                SweepCell(*spec.shape, reason="its values are wrong, so its speed is meaningless", verified=False)
            )
        each = warm_up(self._timer, made.operation, WARM_UP_SECONDS, spec.block_seconds, self._stopped)
        self._current = Burst(spec, self._timer, made.operation, each, self._flush)
        return (
            self._measure() if self.simulated else self._progress(spec.shape)
        )  # what passes at once needs no points on the way

    def _measure(self) -> BenchPoint:
        assert self._current is not None
        mode, spec = self._current, self._current.spec
        block = mode.step()
        if block is not None:
            self._iterations += block.iterations
            self._seconds += block.seconds
            if mode.spent < self.spec.shape_seconds and not self.simulated:  # there every block is like the first
                tflops = spec.flop / float(np.median(block.samples)) / 1e12
                return self._progress(spec.shape, tflops=tflops, iterations=block.iterations, seconds=block.seconds)
        self._current = None
        tflops_spread = spread([spec.flop / seconds / 1e12 for seconds in mode.samples.kept])
        cell = SweepCell(
            *spec.shape,
            tflops=tflops_spread,
            iterations=mode.iterations,
            verified=True,
            seconds=mode.seconds,
        )
        return self._finish(cell, 0 if block is None else block.iterations, 0.0 if block is None else block.seconds)

    def _finish(self, cell: SweepCell, iterations: int = 0, seconds: float = 0.0) -> BenchPoint:
        self._cells.append(cell)
        self._new += 1
        self._tell(cell)
        tflops = None if cell.tflops is None else cell.tflops.median
        return self._progress(cell.shape, tflops=tflops, iterations=iterations, seconds=seconds, part=cell)

    def _tell(self, cell: SweepCell) -> None:
        if self._search is not None:
            self._search.tell(cell.shape, None if cell.tflops is None else cell.tflops.median)

    def _done(self) -> float:
        if self.spec.search_seconds is not None:
            return min(self._elapsed() / self.spec.search_seconds, 1.0)
        current = (self._current.done or 0.0) if self._current is not None else 0.0
        return min((self._new + current) / self._total, 1.0) if self._total else 1.0

    def _progress(self, shape: Shape, **measured: Any) -> BenchPoint:
        return self._point(shape_text(shape), done=self._done(), **measured)

    def result(self, *, stopped: bool, failure: str | None = None) -> SweepResult | None:
        """The finished shapes; None when there is not one."""
        if not self._cells:
            return None
        compared = [cell.verified for cell in self._cells if cell.verified is not None]
        return SweepResult(
            cells=tuple(self._cells),
            iterations=self._iterations,
            seconds=self._seconds,
            verified=all(compared) if compared else None,
            datasheet_tflops=self._datasheet_tflops,
            **self._shared(stopped, failure),
        )
