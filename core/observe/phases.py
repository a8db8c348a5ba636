"""Marks that hooks leave, and their sums: how long each phase of each step took. The thread that is observed.

A hook appends `(stamp, phase from now on, note)` and nothing else. Marks are folded some steps later, in exclusive
time: what is between two marks belongs to the phase that the first of them began. A stamp is `perf_counter_ns`, or on a
device a tuple that begins with it (`clocks.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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

Mark = tuple[Any, int, Any]


class Crossing(NamedTuple):
    """A copy or a value that was read back: the note of such a mark."""

    what: str
    """`.item()`, `.cpu()`, …"""
    copied: bool
    """Whether it was a whole tensor or model, rather than a value."""
    to: str
    """`host`, `device` or `between` (two devices)."""
    within: bool
    """Whether it was inside a model, or of a tensor that gets gradients."""
    code: Any
    """The code of the caller, and its last instruction: a line costs more to work out than both to keep."""
    instruction: int


class StepTimes:
    """Sums of one step, or of many."""

    __slots__ = ("card", "crossings", "host", "rests")

    def __init__(self) -> None:
        self.host = [0] * len(NAMES)
        """Nanoseconds by phase."""
        self.card: list[float] | None = None
        """The same on the device's clock, where there is one."""
        self.rests: Counter[tuple[int, int]] = Counter()
        """(phase before, phase after) -> nanoseconds of rest between them, on the clock that counts."""
        self.crossings: Counter[Crossing] = Counter()

    @property
    def counted(self) -> Sequence[float]:
        """Nanoseconds by phase on the clock that the verdict goes by."""
        return self.host if self.card is None else self.card

    def add(self, other: StepTimes) -> None:
        """All that the other one has."""
        if other.card is not None or self.card is not None:
            own = self.card or [float(value) for value in self.host]
            self.card = [a + b for a, b in zip(own, other.counted, strict=True)]
        self.host = [a + b for a, b in zip(self.host, other.host, strict=True)]
        self.rests.update(other.rests)
        self.crossings.update(other.crossings)


class StepFold:
    """Turns marks into steps. The hooks append to `marks` and say in `cuts` where a step ended."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or HostClock()
        self.marks: list[Mark] = [(self.clock.now(), REST, None)]
        self.cuts: list[int] = []
        self.split = 0
        """Index of the mark that ended the last optimizer, and so nearly the step; 0: there was none since."""
        self.steps = 0
        self.recent: deque[StepTimes] = deque(maxlen=KEPT_STEPS)
        self.warm_up = StepTimes()
        self.total = StepTimes()
        """Of all steps after the warm-up."""
        self._open = StepTimes()
        """Of the step that is not over: what was folded already because it is long."""
        self._before = REST
        """The last phase that was no rest."""

    def cut(self) -> None:
        """The step ended where the last optimizer did."""
        if self.split:
            self.cuts.append(self.split)
        self.split = 0

    def forget(self) -> None:
        """What was taken for steps were none: calls of a model before the training began."""
        self.fold()
        self.steps, self.warm_up, self.total, self._open = 0, StepTimes(), StepTimes(), StepTimes()
        self.recent.clear()

    def fold(self) -> None:
        """Sum up all steps that have ended and whose marks the device has reached."""
        start = 0
        while self.cuts and self.clock.reached(self.marks[min(self.cuts[0] + 1, len(self.marks) - 1)][0]):
            end = self.cuts.pop(0)
            while end < len(self.marks) - 1 and self.marks[end][1] == REST:
                end += 1  # what is rest right after the optimizer belongs to its step
            end = max(end, start)
            self._sum(start, end)
            self._close()
            start = end
        if not self.cuts and len(self.marks) - start > LONG_STEP_MARKS:
            if self.split > start:
                self._sum(start, self.split)
                self._close()
                start = self.split
            end = len(self.marks) - 1
            if self.clock.reached(self.marks[end][0]) or len(self.marks) > 4 * LONG_STEP_MARKS:
                self._sum(start, end)
                start, self.split = end, 0
        self.clock.release(mark[0] for mark in self.marks[:start])
        del self.marks[:start]
        self.cuts = [cut - start for cut in self.cuts]
        self.split = max(0, self.split - start)

    def finish(self) -> None:
        """The run is over: its last step, too, if its optimizer was reached."""
        self.cut()
        self.marks.append((self.clock.now(), REST, None))
        self.fold()

    def _close(self) -> None:
        self.steps += 1
        step, self._open = self._open, StepTimes()
        if self.steps <= WARM_UP_STEPS:
            self.warm_up.add(step)
        else:
            self.total.add(step)
        self.recent.append(step)

    def _sum(self, start: int, end: int) -> None:
        """Add what is between these marks to the step that is open."""
        marks = self.marks[start : end + 1]
        phases = [mark[1] for mark in marks]
        if phases.count(EVALUATION) > 1 and phases.count(INPUT) > 1:
            marks = _evaluations_joined(marks)
        step, before = self._open, self._before
        host, rests = step.host, step.rests
        between = None if isinstance(self.clock, HostClock) else self.clock.between
        begun, phase, note = marks[0]
        resting = 0.0
        for stamp, following, next_note in marks[1:]:
            if between is None:
                counted = nanoseconds = stamp - begun
            else:
                nanoseconds, counted = between(begun, stamp, phase in (REST, INPUT))
                if step.card is None:
                    step.card = [float(value) for value in host]
                step.card[phase] += counted
            host[phase] += nanoseconds
            if phase == REST:
                resting += counted
            else:
                before = phase
                if type(note) is Crossing:
                    step.crossings[note] += 1
            if following != REST and resting:
                if before == READ == following and resting < LOOP_GAP_NS:
                    host[READ] += int(resting)
                    host[REST] -= int(resting)
                    if step.card is not None:
                        step.card[READ] += resting
                        step.card[REST] -= resting
                else:
                    rests[before, following] += int(resting)
                resting = 0.0
            begun, phase, note = stamp, following, next_note
        if resting:  # the step ended with it
            rests[before, phase] += int(resting)
        self._before = before

    def counts(self) -> tuple[StepTimes, list[StepTimes]]:
        """The sums, and the steps for medians: without the warm-up where there are enough."""
        if self.steps > 2 * WARM_UP_STEPS:
            skipped = max(0, WARM_UP_STEPS - (self.steps - len(self.recent)))
            return self.total, list(self.recent)[skipped:]
        both = StepTimes()
        both.add(self.warm_up)
        both.add(self.total)
        return both, list(self.recent)


def _evaluations_joined(marks: Sequence[Mark]) -> list[Mark]:
    """Evaluating over a set of its own (two batches or more without training between them) is one phase: its input,
    copies and sums are not those of a step of training."""
    joined: list[Mark] = []
    block: list[Mark] = []
    for mark in marks:
        if mark[1] in (FORWARD, BACKWARD, OPTIMIZER):
            joined += _evaluation_first(block)
            joined.append(mark)
            block = []
        else:
            block.append(mark)
    return joined + _evaluation_first(block)


def _evaluation_first(block: list[Mark]) -> list[Mark]:
    evaluated = [number for number, mark in enumerate(block) if mark[1] == EVALUATION]
    fed = [number for number, mark in enumerate(block) if mark[1] == INPUT]
    if len(evaluated) < 2 or sum(1 for number in fed if number < evaluated[-1]) < 2:
        return block
    first = min(fed[0], evaluated[0])
    return [
        (stamp, EVALUATION, None) if first <= number <= evaluated[-1] else (stamp, phase, note)
        for number, (stamp, phase, note) in enumerate(block)
    ]


def lines_of(crossings: Mapping[Crossing, int]) -> Counter[str]:
    """Places in the script, each with how often something crossed there."""
    found: Counter[str] = Counter()
    for crossing, count in crossings.items():
        found[place_of(crossing)] += count
    return found


def place_of(crossing: Crossing) -> str:
    """`train.py, line 12`."""
    return line_text(crossing.code, line_at(crossing.code, crossing.instruction))


def line_at(code: Any, instruction: int) -> int:
    """The line that an instruction of a code object belongs to."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return int(line)
    return int(code.co_firstlineno)


def line_text(code: Any, line: int) -> str:
    """A place as people read it."""
    return f"{str(code.co_filename).replace(chr(92), '/').rpartition('/')[2]}, line {line}"
