"""Which lines the time is spent in: the script's own, and those within a phase. A thread of its own, `observe-rest`,
for three hundred samples at most.

It begins once a few steps are over, looks at the observed thread, and ends. Marks alone cannot tell what comes after
the optimizer from what prepares the next batch, nor a layer of torch's from a loop over the samples of a batch.
"""

from __future__ import annotations

import dis
import os
import site
import sys
import sysconfig
import threading
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from devexplorer.core.observe import clocks, hooks
from devexplorer.core.observe.clocks import PRINTS
from devexplorer.core.observe.phases import BACKWARD, EVALUATION, FORWARD, INPUT, OPTIMIZER, REST, line_text

if TYPE_CHECKING:
    from devexplorer.core.observe.observer import Observation

SAMPLES = 100
"""Of the script's own time."""
PHASE_SAMPLES = 200
"""Of what goes on within the phases: a second at least, as single steps differ."""
PAUSE_S = 0.005
SWITCH_S = 0.0001
"""How soon Python lets another thread look. By default the script's own loop goes on for 5 ms: what takes less would
never be seen, and what comes after it instead, as operations of torch let others run at once."""
LOOKS = 3_000
"""At the most, also where the script rests no more."""
DEEPEST = 60
BEFORE, BETWEEN, AFTER = "before forward", "between forward and optimizer", "after optimizer"
COMPILED = "in functions that torch.compile has compiled"
"""They hide the models that they call."""
WAITING = "waiting for another thread or process before forward"
"""A queue of batches is empty."""

_OWN = os.path.dirname(__file__) + os.sep
_PASSED = (hooks.__file__, clocks.__file__)
"""What the script's calls pass through."""
_WAITS = (threading.__file__, os.path.join("multiprocessing", "connection.py"))
"""Where Python's own code waits for others."""
_COMPILER = os.path.join("torch", "_dynamo", "eval_frame.py")
_OPERATORS = os.path.join("core", "virtual", "operators", "")
_NOT_COMPILED = "DisableContext."
"""What torch keeps from being compiled, `Optimizer.zero_grad` for one, goes through that file as well."""

_CALLS = "_wrapped_call_impl"
_ENTERED = {
    INPUT: ("__next__", os.path.join("data", "dataloader.py")),
    FORWARD: (_CALLS, os.path.join("nn", "modules", "module.py")),
    EVALUATION: (_CALLS, os.path.join("nn", "modules", "module.py")),
    BACKWARD: ("_engine_run_backward", os.path.join("autograd", "graph.py")),
    OPTIMIZER: ("wrapper", os.path.join("optim", "optimizer.py")),
}
"""The function of torch's that a phase goes on within, and the end of its file's name."""
_LOOPS = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")

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


class Within(NamedTuple):
    """Where the observed thread is within a phase."""

    phase: int
    line: str
    """The innermost of the user's own there; of an evaluation, or a backward that has none, the one that calls it.
    Empty: there is none, or it calls a layer."""
    looped: bool
    """It is in a loop there, or what calls it is."""


class RestPlaces:
    """Counts where the observed thread is."""

    def __init__(self, run: Observation) -> None:
        self._run = run
        self._thread = threading.Thread(target=self._look, name="observe-rest", daemon=True)
        self._stop = threading.Event()
        self.rests = False
        """Whether the script's own time is a large part of a step."""
        self.found: Counter[tuple[str | None, str]] = Counter()
        """(where in the loop, line of the user's own code) -> samples."""
        self.within: Counter[str] = Counter()
        """Lines of a model's own that no operation of torch goes on in."""
        self.phases: Counter[Within] = Counter()
        self._since: Counter[tuple[str | None, str]] = Counter()
        """Of a step that is not over: what follows the last one, saving the model say, belongs to none."""

    def start(self) -> None:
        """Begin to look, or look again."""
        if self._thread.ident is not None and not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, name="observe-rest", daemon=True)
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _look(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        within = sys.getswitchinterval()  # in whole microseconds
        try:
            self._look_often()
        except Exception as error:
            self._run.problem(error)
        finally:
            if sys.getswitchinterval() == within:  # else the script has set its own
                sys.setswitchinterval(before)

    def _look_often(self) -> None:
        observed, phases, rounds = hooks.watch.thread, self._run.fold.phases, self._run.rounds
        for _ in range(LOOKS):
            if self._stop.wait(PAUSE_S) or hooks.watch.run is not self._run:
                return
            if self._run.rounds != rounds:
                self._keep()
                rounds = self._run.rounds
            rests = self.rests and self.found.total() + self.within.total() < SAMPLES
            works = self.phases.total() < PHASE_SAMPLES
            if not rests and not works:
                return
            phase, clock = phases[-1], self._run.fold.clock
            calling = phase in (FORWARD, EVALUATION) and clock.own > 0
            if not (works and phase in _ENTERED) and not (rests and (phase == REST or calling)):
                continue
            simulating = clock.simulating
            stack = stack_of(sys._current_frames().get(observed))  # kept here, a frame would keep its tensors
            while stack and stack[-1][0].co_filename in _PASSED:
                stack.pop()  # Python looks whether others want to run where a function begins: often in a hook
            if not stack or stack[-1][0].co_filename.startswith(_OWN):
                continue  # observing itself is at work
            if works and phase in _ENTERED:
                self._count_phase(stack, phase)
            if not rests:
                continue
            if calling:
                self._count_within(stack, simulating)
            elif phase == REST and not (simulating and is_simulator(stack)):
                self._count(stack)
        self._keep()

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

    def _count_phase(self, stack: Stack, phase: int) -> None:
        """What the script's own lines do themselves, rather than the layers and the loader that they call."""
        name, file = _ENTERED[phase]
        entries = [number for number, (code, _) in enumerate(stack) if code.co_name == name]
        entries = [number for number in entries if stack[number][0].co_filename.endswith(file)]
        if not entries:
            return
        entry = entries[-1] if phase == OPTIMIZER else entries[0]  # closures are called within an optimizer
        own = [number for number, (code, _) in enumerate(stack) if is_own(code.co_filename)]
        inner = [number for number in own if number > entry]
        found = Within(phase, "", False)
        if phase == EVALUATION or (phase == BACKWARD and not inner):
            calling = [number for number in own if number < entry]
            if calling:
                found = Within(phase, line_text(*stack[calling[-1]]), False)
        elif inner and (phase != FORWARD or inner[-1] > entries[-1]):
            begins = entries[-1] if phase == FORWARD else entry  # a loop over layers is none over operations
            looped = any(is_looped(*stack[number]) for number in inner if number > begins)
            found = Within(phase, line_text(*stack[inner[-1]]), looped)
        self.phases[found] += 1


@cache
def is_looped(code: Any, line: int) -> bool:
    """Whether this line of a code object is in a loop there."""
    if code.co_name in _LOOPS:
        return True
    steps = list(dis.get_instructions(code))
    starts = [begin for begin, _, each in code.co_lines() if each == line]
    for step in steps:
        if "JUMP_BACKWARD" in step.opname and any(step.argval <= start <= step.offset for start in starts):
            return True
    return False


def is_simulator(stack: Stack) -> bool:
    """Whether this is where a virtual GPU works; what its emulation of CUDA passes on to the processor is the script's
    own work, and so are the digits of what it prints."""
    names = [code.co_name for code, _ in stack if _OPERATORS in code.co_filename]
    if any(name in PRINTS for name in names):
        return "__torch_dispatch__" in names
    return bool(names)


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
