"""Marks that hooks leave, and their sums: how long each phase of each step took. The thread that is observed.

A hook appends a stamp and the phase from now on, and seldom a note; a tuple of the three takes twice as long to sum up,
and three times the memory. Marks are folded some steps later, in exclusive time: what is between two marks belongs to
the phase that the first of them began. A stamp is `perf_counter_ns`, or on a device a tuple that begins with it
(`clocks.py`).
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from devexplorer.core.observe.clocks import Clock, HostClock

REST, INPUT, COPIES, FORWARD, EVALUATION, BACKWARD, OPTIMIZER, READ, RANKS = range(9)
NAMES = (
    "rest",
    "input wait",
    "copies",
    "forward",
    "evaluation",
    "backward",
    "optimizer",
    "read back",
    "other ranks",
)
WARM_UP_STEPS = 3
"""Left out where there are more than twice as many."""
KEPT_STEPS = 2_000
"""For medians; sums are of all."""
LONG_STEP_MARKS = 8_192
"""A step with more marks is folded before it is over, so that nothing grows without bound."""
LOOP_GAP_NS = 50_000
"""A pause between two values that are read back one after the other: the loop that reads them."""
IN_CLOSURE = re.compile(
    b"(?<=%c)%c(?=%c)|(?<!%c)%c(?=%c)" % (FORWARD, OPTIMIZER, BACKWARD, BACKWARD, OPTIMIZER, FORWARD)
)
"""Phases of an optimizer that has called its closure: what that does before forward, and between forward and backward,
is the script's own. What follows a backward is the optimizer's again."""


WHOLE = "Module.to()"
"""What crosses when a model is moved."""


class Crossing(NamedTuple):
    """A copy or a value that was read back: the note of such a mark."""

    what: str
    """`.item()`, `.cpu()`, …"""
    copied: bool
    """Whether it was a whole tensor or model, rather than a value."""
    to: str
    """`host`, `device` or `between` (two devices)."""
    within: bool
    """Whether it was inside a model, or of a tensor that has a graph."""
    graph: bool
    """Whether its gradient takes the way back."""
    code: Any
    """The script's code that caused it, and its last instruction: a line costs more to work out than both to keep."""
    instruction: int
    within_package: tuple[Any, int] | None = None
    """The same of the installed package that the script's line called for it."""
    backward: bool = False
    """Whether it was within backward: what was saved for it comes from the host, or a hook of the script's copies."""


class StepTimes:
    """Sums over steps, in nanoseconds."""

    def __init__(self) -> None:
        self.steps = 0
        self.host = np.zeros(len(NAMES))
        """By phase, on the processor's clock."""
        self.counted = np.zeros(len(NAMES))
        """By phase, on the clock that the verdict goes by."""
        self.rests = np.zeros((len(NAMES), len(NAMES)))
        """Rest by the phases before and after it, on that clock."""
        self.crossings: Counter[Crossing] = Counter()
        self.begun = 0
        """Steps in which the script began to iterate over its input again."""
        self.begin_wait = 0.0
        """The wait for input in these."""

    def add(self, other: StepTimes) -> None:
        """All that the other one has."""
        self.steps += other.steps
        self.host += other.host
        self.counted += other.counted
        self.rests += other.rests
        self.crossings.update(other.crossings)
        self.begun += other.begun
        self.begin_wait += other.begin_wait


class StepFold:
    """Turns marks into steps. The hooks append to `stamps` and `phases` and say in `cuts` where a step ended.

    Many steps at once: what costs a microsecond for each mark would be the greater part of what observing costs.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or HostClock()
        self.enough = self.clock.fold_marks
        """From so many marks on they are summed up."""
        self.stamps: list[Any] = [self.clock.now()]
        self.phases = bytearray((REST,))
        """Those that begin at the stamps."""
        self.notes: list[tuple[int, Any]] = []
        """Index of a mark, and what crossed there."""
        self.cuts: list[int] = []
        self.split = 0
        """Index of the mark that ended the last optimizer, and so nearly the step; 0: there was none since."""
        self.steps, self.summed_s = 0, time.perf_counter()
        """How many were summed up, and when."""
        self.warm_up = StepTimes()
        self.total = StepTimes()
        """Of all steps after the warm-up."""
        self._recent: deque[Any] = deque()
        """Rows of nanoseconds by phase, a block of steps at a time."""
        self.stops: list[tuple[int, int]] = []
        """When the script was stopped, from and to, on the processor's clock: that belongs to no step."""
        self._open = StepTimes()
        """Of the step that is not over: what was folded already because it is long."""
        self._before = REST
        """The last phase that was neither rest nor reading back."""

    def begin(self, clock: Clock) -> None:
        """From now on, by this clock; what was not summed up is left out."""
        self.clock, self.enough = clock, clock.fold_marks
        self.stamps[:] = [clock.now()]
        self.phases[:] = (REST,)
        self.notes.clear()
        self.cuts.clear()
        self.split = 0

    def cut(self) -> None:
        """The step ended where the last optimizer did."""
        if self.split:
            self.cuts.append(self.split)
        self.split = 0

    def forget(self) -> None:
        """What was taken for steps were none: calls of a model before the training began."""
        self.fold()
        self.steps, self.warm_up, self.total, self._open = 0, StepTimes(), StepTimes(), StepTimes()
        self._recent.clear()

    def leave_out(self, begun: int, ended: int) -> int:
        """What passed between these belongs to no step; returns how long that is, where it was not left out before."""
        if self.stops:
            begun = max(begun, self.stops[-1][1])
        if ended <= begun:
            return 0
        if self.stops and self.stops[-1][1] == begun:
            self.stops[-1] = self.stops[-1][0], ended
        else:
            self.stops.append((begun, ended))
        return ended - begun

    def fold(self) -> None:
        """Sum up all steps that have ended and whose marks the device has reached."""
        if len(self.stamps) != len(self.phases):  # Ctrl-C came between the two, and the script goes on
            self.begin(self.clock)
        stamps, phases, last = self.stamps, self.phases, len(self.phases) - 1
        ends: list[int] = []
        for cut in self.cuts:
            if not self.clock.reached(stamps[min(cut + 1, last)]):
                break
            end = cut
            while end < last and phases[end] == REST:
                end += 1  # what is rest right after the optimizer belongs to its step
            ends.append(end)
        del self.cuts[: len(ends)]
        unfinished = False
        if not self.cuts and last - (ends[-1] if ends else 0) > LONG_STEP_MARKS:
            if self.split > (ends[-1] if ends else 0):
                ends.append(self.split)
            if self.clock.reached(stamps[last]) or last > 4 * LONG_STEP_MARKS:
                ends.append(last)
                self.split, unfinished = 0, True
        if not ends:
            return
        self._sum(ends, unfinished)
        self.summed_s = time.perf_counter()
        start = ends[-1]
        self.clock.release(islice(stamps, start))
        del stamps[:start], phases[:start]
        self.notes = [(number - start, note) for number, note in self.notes if number >= start]
        self.cuts = [cut - start for cut in self.cuts]
        self.split = max(0, self.split - start)

    def finish(self) -> None:
        """The run is over: its last step, too, if its optimizer was reached."""
        self.cut()
        self.stamps.append(self.clock.now())
        self.phases.append(REST)
        self.fold()

    def _sum(self, ends: list[int], unfinished: bool) -> None:
        """Sum up the steps that end at these marks; the last one goes on if it is unfinished."""
        last, count, kinds = ends[-1], len(ends), len(NAMES)
        phases = self.phases[: last + 1]
        if phases.count(EVALUATION) > 1 and phases.count(INPUT) > 1:
            _join_evaluations(phases)
        phases = bytearray(IN_CLOSURE.sub(bytes([REST]), phases))
        host, counted = self._durations(self.stamps[: last + 1], phases)
        phase = np.frombuffer(phases, np.uint8).astype(int)
        number = np.arange(last)
        step = np.repeat(np.arange(count), np.diff(ends, prepend=0))
        works = phase[:-1] != REST
        begun = np.unique(step[_begins_again(phase[:-1])])
        previous, following = number - 1, number + 1  # marks of rest alternate with those of other phases
        reads = ~works & (phase[previous] == READ) & (phase[following] == READ) & (counted < LOOP_GAP_NS)
        rests = ~works & ~reads
        works &= phase[:-1] != READ  # what is after `.item()` is after that which it reads
        previous = np.maximum.accumulate(np.where(works, number, -1))
        before = np.where(previous >= 0, phase[previous], self._before)
        after = phase[np.minimum.accumulate(np.where(works, number, last)[::-1])[::-1]]
        self._before = int(before[-1])
        phase = np.where(reads, READ, phase[:-1])

        cells = step * kinds + phase
        rows = np.bincount(cells, counted, count * kinds).reshape(count, kinds)
        host_rows = rows
        if host is not counted:
            host_rows = np.bincount(cells, host, count * kinds).reshape(count, kinds)
        notes = []
        for at, note in self.notes:
            if at < last and phases[at] in (COPIES, READ):
                notes.append((step[at], _noted(note)))
        finished = count - 1 if unfinished else count
        warm = min(max(0, WARM_UP_STEPS - self.steps), finished)
        rows[0] += self._open.counted  # the first step may have been folded in part
        for first, beyond, sums in (
            (0, warm, self.warm_up),
            (warm, finished, self.total),
            (finished, count, StepTimes()),
        ):
            if first == beyond:
                continue
            sums.steps += beyond - first
            sums.counted += rows[first:beyond].sum(0)
            sums.host += host_rows[first:beyond].sum(0)
            chosen = rests & (step >= first) & (step < beyond)
            pairs = before[chosen] * kinds + after[chosen]
            sums.rests += np.bincount(pairs, counted[chosen], kinds * kinds).reshape(kinds, kinds)
            sums.crossings.update(note for number, note in notes if first <= number < beyond)
            here = begun[(begun >= first) & (begun < beyond)]
            sums.begun += len(here)
            sums.begin_wait += float(rows[here, INPUT].sum())
            if first == 0:
                sums.host += self._open.host
                sums.rests += self._open.rests
                sums.crossings.update(self._open.crossings)
                self._open = StepTimes()
            if sums is not self.warm_up and sums is not self.total:
                self._open = sums
        self.steps += finished
        if finished:
            self._recent.append(rows[:finished])
        while len(self._recent) > 1 and sum(len(block) for block in self._recent) > KEPT_STEPS:
            self._recent.popleft()

    def _durations(self, stamps: list[Any], phases: bytearray) -> tuple[Any, Any]:
        """What passed from each stamp to the next: on the processor's clock, and on the one that counts."""
        if type(self.clock) is HostClock:
            host = np.diff(np.fromiter(stamps, np.int64, len(stamps))).astype(float)
            if self.stops:
                self._leave_out_stops(stamps, phases, host, host)
            return host, host
        between = self.clock.between
        pairs = [
            between(begun, ended, phase in (REST, INPUT))
            for begun, ended, phase in zip(stamps, stamps[1:], phases, strict=False)
        ]
        both = np.array(pairs, dtype=float)
        if self.stops:
            self._leave_out_stops([stamp[0] for stamp in stamps], phases, both[:, 0], both[:, 1])
        return both[:, 0], both[:, 1]

    def _leave_out_stops(self, moments: list[int], phases: bytearray, host: Any, counted: Any) -> None:
        """Take them out of what passed from each moment to the next. On a clock that stood still meanwhile, as that of
        virtual GPUs while they compute, there is nothing to take out."""
        for begun, ended in list(self.stops):
            number = max(0, bisect_right(moments, begun) - 1)
            while number < len(host) and moments[number] < ended:
                stopped = min(ended, moments[number + 1]) - max(begun, moments[number])
                host[number] -= stopped
                if counted is not host and (counted[number] >= stopped or phases[number] in (REST, INPUT)):
                    counted[number] = max(0.0, counted[number] - stopped)
                number += 1
        del self.stops[: bisect_right([ended for _, ended in self.stops], moments[-1])]

    def counts(self) -> tuple[StepTimes, Any]:
        """The sums, and rows of the steps for medians: without the warm-up where there are enough."""
        rows = np.concatenate([np.zeros((0, len(NAMES))), *self._recent])
        if self.steps > 2 * WARM_UP_STEPS:
            return self.total, rows[max(0, WARM_UP_STEPS - (self.steps - len(rows))) :]
        both = StepTimes()
        both.add(self.warm_up)
        both.add(self.total)
        return both, rows


def _begins_again(phases: Any) -> Any:
    """Marks of a first batch: the iterator was made just before it, and nothing else came between."""
    works = np.flatnonzero(phases != REST)
    waits = phases[works] == INPUT
    return works[1:][waits[1:] & waits[:-1]]


def move_waiting(times: StepTimes, rows: Any, waited: float) -> None:
    """From backward to the ranks: as much of each backward as was waited in the usual one."""
    for sums in (times.host, times.counted):
        moved = min(waited * times.steps, sums[BACKWARD])
        sums[BACKWARD] -= moved
        sums[RANKS] += moved
    moved_rows = np.minimum(rows[:, BACKWARD], waited)
    rows[:, BACKWARD] -= moved_rows
    rows[:, RANKS] += moved_rows


def _noted(note: Any) -> Crossing:
    """The note of a mark. That of a value read back is a plain tuple: what, phase, and where."""
    if type(note) is Crossing:
        return note
    what, phase, *where = note
    return Crossing(what, False, "host", phase in (FORWARD, EVALUATION), False, *where)


def _join_evaluations(phases: bytearray) -> None:
    """Evaluating over a set of its own (two batches or more without training between them) is one phase: its input,
    copies and sums are not those of a step of training."""
    begun = 0
    for number, phase in enumerate(phases):
        if phase in (FORWARD, BACKWARD, OPTIMIZER):
            _join_evaluation(phases, begun, number)
            begun = number + 1
    _join_evaluation(phases, begun, len(phases))


def _join_evaluation(phases: bytearray, begun: int, ended: int) -> None:
    last = phases.rfind(EVALUATION, begun, ended)
    if phases.count(EVALUATION, begun, ended) < 2 or phases.count(INPUT, begun, last) < 2:
        return
    first = min(phases.find(INPUT, begun, ended), phases.find(EVALUATION, begun, ended))
    phases[first : last + 1] = bytes((EVALUATION,)) * (last + 1 - first)


def lines_of(crossings: Mapping[Crossing, int]) -> Counter[str]:
    """Places in the script, each with how often something crossed there."""
    found: Counter[str] = Counter()
    for crossing, count in crossings.items():
        found[place_of(crossing)] += count
    return found


def place_of(crossing: Crossing) -> str:
    """`train.py, line 12`, or `train.py, line 12 (accelerate/utils/operations.py, line 160)`."""
    place = line_text(crossing.code, line_at(crossing.code, crossing.instruction))
    inner = package_line(crossing)
    return f"{place} ({inner})" if inner else place


def package_line(crossing: Crossing) -> str:
    """Of an installed package, where it is not the script's own line that crosses."""
    if crossing.within_package is None:
        return ""
    code, instruction = crossing.within_package
    file = code.co_filename.replace(chr(92), "/").rpartition("-packages/")[2]
    return f"{file}, line {line_at(code, instruction)}"


def line_at(code: Any, instruction: int) -> int:
    """The line that an instruction of a code object belongs to."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return int(line)
    return int(code.co_firstlineno)


def line_text(code: Any, line: int) -> str:
    """A place as people read it."""
    return f"{str(code.co_filename).replace(chr(92), '/').rpartition('/')[2]}, line {line}"
