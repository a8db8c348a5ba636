"""What a script was doing when memory ran out, by the frames of its thread: forward of which module, backward, a step
of the optimizer, loading, …; and on which line. The thread on which it happened; no hooks are needed for it."""

from __future__ import annotations

import inspect
import linecache
import os
import re
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.observe.alive import variables
from devexplorer.core.observe.memory_report import CodeLine, Phase

_MODULE_FILE = inspect.getsourcefile(nn.Module) or ""
_EVALUATES = re.compile(r"(?i)(^|_)(eval|valid|test|infer|predict|generate|sample)")
_LOADS = ("load", "load_file", "load_state_dict", "load_checkpoint")
_LOADING_FILES = ("serialization.py", "safetensors", "optimizer.py")


class Moment(NamedTuple):
    """See above."""

    phase: Phase
    place: CodeLine | None
    root: nn.Module | None
    """The outermost module with parameters whose forward runs, or that is being moved."""
    layer: nn.Module | None
    """The innermost module whose forward runs."""
    optimizer: Optimizer | None
    records: bool
    """Operations are recorded for backward."""
    batch: int
    """The first dimension of what `root` was given; 0: not known."""
    length: int
    """Its second dimension where it is rows of whole numbers, such as tokens; 0: it is something else."""
    evaluates: bool
    """A function is at work that is called like an evaluation, and no function that is at work calls backward."""
    within_evaluation: bool
    """A function that is called like an evaluation is at work, and called, if at all, by one that calls backward."""
    trains: bool
    """A function that is at work calls backward."""
    differentiated: Sequence[torch.Tensor]
    """What the backward that runs began with; empty: not known."""
    inside: frozenset[tuple[str, str]]
    """File and name of the functions that are at work within the forward of `root`."""


def moment(frames: Sequence[FrameType], records: bool) -> Moment:
    """Of these frames, the innermost first."""
    phase: Phase = "script"
    root: Any = None
    layer: Any = None
    optimizer: Any = None
    differentiated: Sequence[torch.Tensor] = ()
    inside: frozenset[tuple[str, str]] = frozenset()
    batch = length = 0
    users = [frame for frame in frames if kind_of(frame.f_code.co_filename) == "user"]
    for number, frame in enumerate(frames):
        found = _phase_of(frame)
        if found is None:
            continue
        owner = variables(frame).get("self") if frame.f_code.co_name != "deepcopy" else None
        if phase == "script":
            phase = found
        if found == "backward" and not differentiated:
            outputs = variables(frame).get("t_outputs", ())
            if all(isinstance(one, torch.Tensor) for one in outputs):
                differentiated = outputs
        if found == "optimizer step" and phase == found and isinstance(owner, Optimizer):
            optimizer = owner
        if found == phase and isinstance(owner, nn.Module):
            if found == "forward" and layer is None:
                layer = owner
            if next(owner.parameters(), None) is not None or found != "forward":
                root = owner
                if found == "forward":
                    given = first_tensor(frame)
                    if given is not None:
                        batch, length = int(given.shape[0]), _length(given)
                    inside = frozenset((one.f_code.co_filename, one.f_code.co_name) for one in frames[:number])
        elif found == "loading" and phase == found and isinstance(owner, nn.Module):
            root = owner
    outer = [frame for frame in users if (frame.f_code.co_filename, frame.f_code.co_name) not in inside]
    trains = any("backward" in frame.f_code.co_names for frame in users)
    named = any(_EVALUATES.search(frame.f_code.co_name) for frame in users)
    first = next((frame for frame in outer if _decides(frame)), None)
    return Moment(
        phase=phase,
        place=next((_line(frame) for frame in (*users[:1], *frames[:1])), None),
        root=root,
        layer=layer,
        optimizer=optimizer,
        records=records,
        batch=batch,
        length=length,
        evaluates=named and not trains,
        within_evaluation=first is not None and "backward" not in first.f_code.co_names,
        trains=trains,
        differentiated=differentiated,
        inside=inside,
    )


def _phase_of(frame: FrameType) -> Phase | None:
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if name == "_engine_run_backward":
        return "backward"
    if name == "_call_impl" and file == _MODULE_FILE:
        return "forward"
    if name == "step" and isinstance(variables(frame).get("self"), Optimizer):
        return "optimizer step"
    if name in _LOADS and any(part in file for part in _LOADING_FILES):
        return "loading"
    if name in ("_apply", "to", "cuda") and file == _MODULE_FILE:
        return "moving"
    if name == "deepcopy" and os.path.basename(file) == "copy.py":
        return "copying"
    if name == "__init__" and isinstance(variables(frame).get("self"), nn.Module):
        return "building"
    return None


def _decides(frame: FrameType) -> bool:
    """Whether this function says if it is training or an evaluation."""
    return "backward" in frame.f_code.co_names or _EVALUATES.search(frame.f_code.co_name) is not None


def batch_of(frame: FrameType) -> int:
    """The first dimension of the first tensor that a model is called with; 0: there is none. `frame`: that of the
    call."""
    given = first_tensor(frame)
    return 0 if given is None else int(given.shape[0])


def first_tensor(frame: FrameType) -> torch.Tensor | None:
    """The first tensor with dimensions that a model is called with. `frame`: that of the call."""
    given = variables(frame)
    values = [*given.get("args", ()), *(given.get("kwargs") or {}).values()]
    for value in values:
        if isinstance(value, torch.Tensor) and value.dim():
            return value
    return None


def _length(given: torch.Tensor) -> int:
    return int(given.shape[1]) if given.dim() == 2 and not given.dtype.is_floating_point else 0


def _line(frame: FrameType) -> CodeLine:
    return code_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def code_line(file: str, line: int, function: str) -> CodeLine:
    """A line with its text, where the file can be read."""
    text = linecache.getline(file, line).strip() if os.path.isfile(file) else ""
    return CodeLine(file=file, line=line, function=function, text=text[:200])
