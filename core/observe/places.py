"""Which lines the script's own time is spent in. A thread of its own, `observe-rest`, for a hundred samples at most.

It begins only once such time is a large part of a step, looks at the observed thread while that is in none of the other
phases or keeps a card waiting within a model, and ends. Marks alone cannot tell what comes after the optimizer from
what prepares the next batch.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from torch import nn

from devexplorer.core.observe import hooks
from devexplorer.core.observe.phases import EVALUATION, FORWARD, REST, line_text

if TYPE_CHECKING:
    from devexplorer.core.observe.observer import Observation

SAMPLES = 100
PAUSE_S = 0.003
LOOKS = 5_000
"""At the most, also where the script rests no more."""
DEEPEST = 60
BEFORE, BETWEEN, AFTER = "before forward", "between forward and optimizer", "after optimizer"
COMPILED = "in functions that torch.compile has compiled"
"""They hide the models that they call."""
WAITING = "waiting for another thread or process before forward"
"""A queue of batches is empty."""

_OWN = os.path.dirname(__file__) + os.sep
_WAITS = (threading.__file__, os.path.join("multiprocessing", "connection.py"))
"""Where Python's own code waits for others."""
_COMPILER = os.path.join("torch", "_dynamo", "eval_frame.py")
_OPERATORS = os.path.join("core", "virtual", "operators", "")
_NOT_COMPILED = "DisableContext."
"""What torch keeps from being compiled, `Optimizer.zero_grad` for one, goes through that file as well."""

NOBODYS = 3
"""References to a dictionary of locals that the script has not asked for: the frame's, ours, and of who counts them."""

Stack = list[tuple[Any, int]]


def stack_of(frame: Any) -> Stack:
    """(code, line) of a frame and all that called it, the outermost first."""
    found: Stack = []
    while frame is not None:
        line = frame.f_lineno
        if line is None:  # another thread's frame, in an instruction that no line has
            line = frame.f_code.co_firstlineno
        found.append((frame.f_code, line))
        frame = frame.f_back
    return found[::-1][:DEEPEST]


def relation(sample: Stack, forward: Stack, optimizer: Stack) -> str | None:
    """Where a line is in the loop: None if it cannot be told."""
    for depth, (code, line) in enumerate(sample):
        if depth >= len(forward) or forward[depth][0] is not code:
            return None
        begins = forward[depth][1]
        ends = begins
        if depth < len(optimizer) and optimizer[depth][0] is code:
            ends = optimizer[depth][1]
        if line == begins == ends:
            continue  # all three are further in
        if line > ends:
            return AFTER
        if line < begins:
            return BEFORE
        return BETWEEN
    return None


class RestPlaces:
    """Counts where the observed thread is while it rests."""

    def __init__(self, run: Observation) -> None:
        self._run = run
        self._thread = threading.Thread(target=self._look, name="observe-rest", daemon=True)
        self._stop = threading.Event()
        self.found: Counter[tuple[str | None, str]] = Counter()
        """(where in the loop, line of the user's own code) -> samples."""
        self.within: Counter[str] = Counter()
        """Lines of a model's own that no operation of torch goes on in."""
        self._since: Counter[tuple[str | None, str]] = Counter()
        """Of a step that is not over: what follows the last one, saving the model say, belongs to none."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _look(self) -> None:
        observed, phases, rounds = hooks.watch.thread, self._run.fold.phases, self._run.rounds
        try:
            for _ in range(LOOKS):
                if self._stop.wait(PAUSE_S) or hooks.watch.run is not self._run:
                    return
                if self._run.rounds != rounds:
                    self._keep()
                    rounds = self._run.rounds
                phase, clock = phases[-1], self._run.fold.clock
                calling = phase in (FORWARD, EVALUATION) and clock.own > 0
                if phase != REST and not calling:
                    continue
                simulating = clock.simulating
                stack = stack_of(sys._current_frames().get(observed))  # kept here, a frame would keep its tensors
                if stack and stack[-1][0].co_filename.startswith(_OWN):
                    continue  # a hook is at work
                if calling:
                    self._count_within(stack, simulating)
                elif stack and not (simulating and any(is_simulator(code) for code, _ in stack)):
                    self._count(stack)
                if self.found.total() + self.within.total() >= SAMPLES:
                    return
            self._keep()
        except Exception as error:
            self._run.problem(error)

    def _keep(self) -> None:
        self.found.update(self._since)
        self._since.clear()

    def _count(self, stack: Stack) -> None:
        own = [number for number, (code, _) in enumerate(stack) if is_own(code.co_filename)]
        if own:
            code, line = stack[own[-1]]
            where = relation(stack, self._run.forward_stack, self._run.optimizer_stack)
            if any(is_compiled(each) for each, _ in stack):
                where = COMPILED
            elif where == BEFORE and stack[-1][0].co_filename.endswith(_WAITS):
                where = WAITING
            self._since[where, line_text(code, line)] += 1

    def _count_within(self, stack: Stack, simulating: bool) -> None:
        """What is called within torch is an operation, or the module of one."""
        if stack and not simulating:
            code, line = stack[-1]
            if is_own(code.co_filename):
                self.within[line_text(code, line)] += 1


def is_simulator(code: Any) -> bool:
    """Whether this is where a virtual GPU works; what its emulation of CUDA passes on to the processor is the script's
    own work."""
    return _OPERATORS in code.co_filename


def is_compiled(code: Any) -> bool:
    """Whether what this code calls was compiled by torch."""
    return code.co_filename.endswith(_COMPILER) and not code.co_qualname.startswith(_NOT_COMPILED)


def whole_of(part: Any, frame: Any) -> Any:
    """The model of which a method calls this part: `training_step`, say; None: there is none."""
    whole = None
    while frame is not None:
        owner: Any = _first_argument(frame) if frame.f_code.co_argcount else None
        is_module = owner is not part and issubclass(type(owner), nn.Module)
        if is_module and any(module is part for module in nn.Module.modules(owner)):
            whole = owner
        frame = frame.f_back
    return whole


def _first_argument(frame: Any) -> Any:
    values = frame.f_locals
    value = values.get(frame.f_code.co_varnames[0])
    if type(values) is dict and sys.getrefcount(values) <= NOBODYS:
        values.clear()  # before Python 3.13 a copy, which the frame keeps with all that the script lets go
    return value


def is_own(path: str) -> bool:
    """Whether a file is the user's own code: neither Python's nor an installed package, nor ours."""
    return not path.startswith(("<frozen", *_FOREIGN))


def _foreign() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), hooks.OURS}
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders if folder)


_FOREIGN = _foreign()
