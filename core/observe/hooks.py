"""What is put in place of torch's functions so that a run is observed: marks only. The main thread of the script; all
others, and forked children, pass through untouched.

Installed once in a process, right after torch is imported, before `torch._dynamo` is and before CUDA is emulated.
Every function that is replaced is called as before and gives what it gave; our frames are taken out of tracebacks.
Between two runs a hook is one test of a flag.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, autograd, is_grad_enabled, nn

from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.observe.phases import (
    BACKWARD,
    COPIES,
    EVALUATION,
    FORWARD,
    INPUT,
    LONG_STEP_MARKS,
    OPTIMIZER,
    RANKS,
    READ,
    REST,
    WHOLE,
    Crossing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devexplorer.core.observe.observer import Observation
    from devexplorer.core.observe.phases import StepFold

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
ENOUGH_MARKS = 2 * LONG_STEP_MARKS
"""They are summed up where a model has returned, if no optimizer does that."""
READS = ("item", "tolist", "__float__", "__int__", "__bool__")
_TORCH = os.path.dirname(torch.__file__) + os.sep
OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_now: Any = None
_stamp: Any = None
_begins: Any = None
"""They leave marks in the run that is looked at (`mark_in`). CPython calls what is in a module's global quickest."""


def mark_in(fold: StepFold) -> None:
    """Marks go there from now on, with times of its clock."""
    global _now, _stamp, _begins
    _now, _stamp, _begins = fold.clock.now, fold.stamps.append, fold.phases.append


class _Watching:
    """What hooks look at and set. One for the process, so that a hook needs no more than an attribute of it."""

    __slots__ = ("base", "host_reads", "inside", "optimizers", "run", "silent", "thread")

    def __init__(self) -> None:
        self.run: Observation | None = None
        self.inside = True
        """Modules, backward and input are not looked at: a phase has begun that they are part of, or there is no
        run."""
        self.silent = True
        """Copies and reading back are not looked at."""
        self.base = REST
        """The phase that goes on when the one that begins now is over."""
        self.thread = 0
        self.host_reads = 0
        """Values that were read from tensors on the CPU; about, as other threads count, too."""
        self.optimizers: list[tuple[int, int, bool]] = []
        """Those that are at work: number, and `base` and `silent` before."""

    def begin(self, run: Observation) -> None:
        """Look for this run, on the calling thread."""
        self.run, self.thread, self.base = run, get_ident(), REST
        self.optimizers.clear()
        self.host_reads = 0
        mark_in(run.fold)
        self.inside = self.silent = False

    def end(self) -> None:
        """Look no more."""
        self.inside = self.silent = True
        self.run = None

    def mark(self, phase: int) -> None:
        """A phase begins."""
        _stamp(_now())
        _begins(phase)

    def crossed(self, run: Observation, begun: Any, phase: int, note: Any) -> None:
        """Something crossed from one device to another, since that time."""
        run.fold.notes.append((len(run.fold.phases), note))
        _stamp(begun)
        _begins(phase)

    def left_behind(self) -> None:
        """An optimizer failed on the way, and the script went on."""
        self.optimizers.clear()
        self.base, self.silent = REST, False


watch = _Watching()
_installed: list[bool] = []


def _begin_root(module: Any) -> int | None:
    """A model is called by the script itself: the phase before, or None where it is not looked at."""
    run = watch.run
    if run is None or get_ident() != watch.thread:
        return None
    if watch.optimizers and not _steps_at_work():
        watch.left_behind()
    before = watch.base
    try:
        root = run.known.get(id(module))
        if root is not None:
            root.calls += 1
        else:
            run.called(module)
            if run.batch_wanted:
                run.called_with(run.roots[id(module)], sys._getframe(1))
        watch.inside = True
        watch.base = phase = FORWARD if is_grad_enabled() else EVALUATION
        _stamp(_now())
        _begins(phase)
    except Exception as error:
        run.problem(error)
        watch.inside, watch.base = False, before
        return None
    return before


def _end_root(before: int) -> None:
    watch.base = before
    watch.inside = False
    run = watch.run
    if run is not None:
        _stamp(_now())
        _begins(before)
        if not run.settled or len(run.fold.phases) > ENOUGH_MARKS:
            run.returned()


# Takes the place of `nn.Module.__call__` under that function's own name, file and lines (`_under_identity_of`):
# tracebacks show it, and torch.compile leaves it out, as it does the original. So it is written as that one is, down to
# columns.
# fmt: off
def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
    before = None if watch.inside else _begin_root(self)
    try:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        else:  # noqa: RET505
            return self._call_impl(*args, **kwargs)
    finally:
        if before is not None:
            _end_root(before)
# fmt: on


CALL_LINE = 6
"""Of the function above, from its first one: where `_call_impl` is called."""


def _under_identity_of(original: Any, replacement: Any) -> Any:
    """The replacement, with the original's names; its calls are on the same lines of the same file."""
    code = original.__code__
    calls = [line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno]
    replacement.__code__ = replacement.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=max(calls, default=code.co_firstlineno) - CALL_LINE,
    )
    return functools.wraps(original)(replacement)


def _timed(owner: Any, name: str, phase: int) -> None:
    """Put a function in place that marks a phase around the original."""
    original, backward = getattr(owner, name), phase == BACKWARD

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        run = watch.run
        if watch.inside or run is None or get_ident() != watch.thread:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                _without_us(error)
                raise
        if backward:
            if run.asked:
                run.answer("backward")
        elif watch.optimizers and phase == INPUT:
            watch.left_behind()
        before, silent = watch.base, watch.silent
        watch.inside, watch.base = True, phase
        watch.silent = silent or not backward  # what is saved for it can be on the host
        _stamp(_now())
        _begins(phase)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            _without_us(error)
            raise
        finally:
            if watch.run is not None:
                if backward and not run.settled:
                    run.backward_ended()
                watch.inside, watch.silent, watch.base = False, silent, before
                _stamp(_now())
                _begins(before)

    setattr(owner, name, timed)


def _without_us(error: BaseException) -> None:
    """Take our frame out of the traceback; a bare `raise` after that does not put it in again."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def caller(frame: Any) -> Any:
    """The frame that called, torch's and ours left out."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_TORCH, OURS)):
        frame = frame.f_back
    return frame


def _origin(frame: Any) -> tuple[Any, int, tuple[Any, int] | None]:
    """The code that called, and its last instruction: the script's own where there is one. Where an installed package
    calls for it, the same of that package."""
    frame = caller(frame)
    here = frame.f_code, frame.f_lasti
    if kind_of(frame.f_code.co_filename) == "library":
        while frame is not None:
            if kind_of(frame.f_code.co_filename) == "user":
                return frame.f_code, frame.f_lasti, here
            frame = frame.f_back
    return *here, None


_PLAIN = (Tensor, nn.Parameter)
_modes = torch._C._len_torch_function_stack


def _asked(tensor: Any, name: str) -> Any:
    """An attribute of a tensor, without a word to `__torch_function__`: that of a class of the script's, or of a mode
    that is on, would count one more call, or raise."""
    if type(tensor) in _PLAIN and not _modes():
        return getattr(tensor, name)
    with torch._C.DisableTorchFunction():
        return getattr(tensor, name)


def _copied(owner: Any, name: str) -> None:
    """`Tensor.to` and its kind: a copy where the result is on another device."""
    original = getattr(owner, name)
    dtype = torch.dtype

    @functools.wraps(original)
    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watch.silent or get_ident() != watch.thread or (args and type(args[0]) is dtype):
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                _without_us(error)
                raise
        watch.silent = True
        begun = _now()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _without_us(error)
            raise
        finally:
            watch.silent = watch.run is None
        if result is self or _asked(result, "device") == _asked(self, "device"):
            if type(begun) is tuple and watch.run is not None:
                watch.run.fold.clock.release((begun,))
            return result
        _mark_copy(name, self, result, begun)
        return result

    setattr(owner, name, copied)


def _mark_copy(name: str, source: Any, result: Any, begun: Any) -> None:
    run, base = watch.run, watch.base
    if run is None:
        return
    try:
        ended = _now()
        to = "between"
        if _asked(result, "device").type == "cpu":
            to = "host"
        elif _asked(source, "device").type == "cpu":
            to = "device"
        graph = bool(_asked(result, "requires_grad"))
        within = graph or base in (FORWARD, EVALUATION, BACKWARD)
        note = Crossing(f".{name}()", True, to, within, graph, *_origin(sys._getframe(2)), base == BACKWARD)
        watch.crossed(run, begun, READ if to == "host" else COPIES, note)
        _stamp(ended)
        _begins(base)
    except Exception as error:
        run.problem(error)


def _read(name: str) -> None:
    """`.item()` and its kind: the host asks for a value, and waits until it is there."""
    original = getattr(Tensor, name)
    what = {"__float__": "float()", "__int__": "int()", "__bool__": "bool()"}.get(name, f".{name}()")
    converted = name in ("__float__", "__int__")

    @functools.wraps(original)
    def read(self: Any) -> Any:
        if converted and not _warned and _asked(self, "requires_grad") and is_grad_enabled():
            return _warned_once(original, self)
        waits = not watch.silent and get_ident() == watch.thread
        if waits and _asked(self, "is_cpu"):
            watch.host_reads, waits = watch.host_reads + 1, False  # a count is enough, and costs next to nothing
        if not waits:
            try:
                return original(self)
            except BaseException as error:
                _without_us(error)
                raise
        watch.silent = True
        begun = _now()
        try:
            return original(self)
        except BaseException as error:
            _without_us(error)
            raise
        finally:
            if watch.run is not None:
                base = watch.base
                watch.silent = False
                watch.crossed(watch.run, begun, READ, (what, base, *_origin(sys._getframe(1))))
                watch.mark(base)

    setattr(Tensor, name, read)


_warned: list[bool] = []


def _warned_once(original: Any, tensor: Any) -> Any:
    """The value. torch warns once of a scalar that has a graph, and says where: at the script's line, not at one of
    ours."""
    with warnings.catch_warnings(record=True) as caught:
        value = original(tensor)
    if caught:
        _warned.append(True)
    frame = caller(sys._getframe(2))
    for warning in caught:
        warnings.warn_explicit(
            message=warning.message,
            category=warning.category,
            filename=frame.f_code.co_filename,
            lineno=frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )
    return value


def first_parameter(module: Any) -> Any:
    """Without the module's own methods, which can be the script's."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for child in module._modules.values():
        found = None if child is None else first_parameter(child)
        if found is not None:
            return found
    return None


def _model_moved() -> None:
    """`Module.to`, `cuda`, `cpu`: parameters are copied in `_apply`, whole models at a time."""
    original: Any = nn.Module._apply

    @functools.wraps(original)
    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watch.silent or get_ident() != watch.thread:
            return original(self, *args, **kwargs)
        run, base = watch.run, watch.base
        first = first_parameter(self)
        source = None if first is None else _asked(first, "device")
        begun = _now()
        watch.silent = True
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            _without_us(error)
            raise
        finally:
            watch.silent = watch.run is None
            if run is not None and watch.run is run:
                now_first, to = first_parameter(self), "between"
                target = None if now_first is None else _asked(now_first, "device")
                if target is not None and source is not None and target != source:
                    to = "host" if target.type == "cpu" else "device"
                    whole = Crossing(WHOLE, True, to, True, False, *_origin(sys._getframe(1)))
                    watch.crossed(run, begun, COPIES, whole)
                    watch.mark(base)

    nn.Module._apply = applied  # type: ignore[method-assign]


def _steps_at_work() -> int:
    """How many `Optimizer.step` are on the stack. One that failed is not, though it was never said to be done."""
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_qualname.startswith("Optimizer.profile_hook_step"):
            count += 1
        frame = frame.f_back
    return count


def before_optimizer(optimizer: Any, args: Any = (), kwargs: Any = None) -> None:
    """An optimizer begins; one that comes round again ends the step before."""
    run = watch.run
    if run is None or get_ident() != watch.thread:
        return
    number = id(optimizer)
    try:
        if watch.optimizers:
            if run.scaling and watch.optimizers[-1][0] == number:
                return  # `GradScaler.step`, which was seen already, calls it now
            if not run.scaling and _steps_at_work() < 2:
                watch.left_behind()
        run.optimizing(number)
        watch.optimizers.append((number, watch.base, watch.silent))
        watch.base, watch.silent = OPTIMIZER, True
        _stamp(_now())
        _begins(OPTIMIZER)
    except Exception as error:
        run.problem(error)


def after_optimizer(optimizer: Any, args: Any = (), kwargs: Any = None) -> None:
    """It is done."""
    run = watch.run
    if run is None or run.scaling or get_ident() != watch.thread or not watch.optimizers:
        return
    try:
        number, watch.base, watch.silent = watch.optimizers.pop()
        fold, ended = run.fold, _now()
        fold.split = len(fold.phases)
        _stamp(ended)
        _begins(watch.base)
        if type(ended) is tuple:
            ended = ended[0]
        if run.asked or ended >= run.memory.due_ns or number not in run.stepped_with:
            run.optimized(optimizer, number)
    except Exception as error:
        run.problem(error)


def _scaled() -> None:
    """`GradScaler.step` leaves the optimizer out where gradients are infinite: the step is one all the same."""
    from torch.amp.grad_scaler import GradScaler

    original: Any = GradScaler.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        run = watch.run
        if run is None or watch.inside or run.scaling or get_ident() != watch.thread:
            return original(self, optimizer, *args, **kwargs)
        before_optimizer(optimizer)
        run.scaling = True
        try:
            return original(self, optimizer, *args, **kwargs)
        except BaseException as error:
            _without_us(error)
            raise
        finally:
            run.scaling = False
            after_optimizer(optimizer)

    GradScaler.step = step  # type: ignore[method-assign]


def _collectives() -> None:
    """Waiting for other ranks; what DistributedDataParallel does within backward is asked of itself (`observer`)."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in COLLECTIVES:
        original = getattr(distributed_c10d, name, None)
        if original is not None:
            _timed(distributed_c10d, name, RANKS)
            if getattr(torch.distributed, name, None) is original:
                setattr(torch.distributed, name, getattr(distributed_c10d, name))


def _never_compiled() -> None:
    """Where torch.compile leaves a graph for `.item()`, say, it would go on to compile our functions: let it run them
    as they are. The switch is the one behind `torch.compiler.disable`, without importing the compiler."""
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        leave_out = functools.partial(_set_strategy, frames.set_code_exec_strategy, skip)
    elif hasattr(frames, "skip_code"):  # torch 2.10
        leave_out = frames.skip_code
    else:
        return
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for code in _codes_of(module):
                leave_out(code)


def _set_strategy(setter: Any, strategy: Any, code: Any) -> None:
    setter(code, strategy)


def _codes_of(module: Any) -> Iterator[Any]:
    """Of all functions and classes that a module defines, and of functions within them."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for member in members:
            function = getattr(member, "__func__", getattr(member, "fget", member))
            code = getattr(function, "__code__", None)
            if code is not None:
                yield from _nested(code)


def _nested(code: Any) -> Iterator[Any]:
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _nested(constant)


def _quiet_in_child() -> None:
    watch.end()


def install() -> None:
    """Put everything in place, once in this process."""
    if _installed:
        return
    _installed.append(True)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils.data import DataLoader, dataloader

    module: Any = nn.Module
    module.__call__ = _under_identity_of(module.__call__, _wrapped_call_impl)
    _timed(DataLoader, "__iter__", INPUT)
    _timed(dataloader._BaseDataLoaderIter, "__next__", INPUT)
    _timed(autograd, "backward", BACKWARD)
    _timed(autograd, "grad", BACKWARD)
    for name in ("to", "cuda", "cpu"):
        _copied(Tensor, name)
    for name in READS:
        _read(name)
    _model_moved()
    _scaled()
    _collectives()
    register_optimizer_step_pre_hook(before_optimizer)
    register_optimizer_step_post_hook(after_optimizer)
    _never_compiled()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_quiet_in_child)
