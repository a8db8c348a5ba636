"""One call of a torch function as the rules look at it, and the forward that it is part of. The thread that is
watched."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from devexplorer.core import virtual
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing.kinds import Kind
from devexplorer.core.doctor.tracing.operands import operands
from devexplorer.core.doctor.tracing.sources import Sources
from devexplorer.core.isolation.source_location import SourceLocation, place_of

OPS = torch._ops.__file__
BELOW = os.path.dirname(virtual.__file__) + os.sep
"""Virtual GPUs, which compute with torch themselves."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PASSED = (torch.overrides.__file__, torch._tensor.__file__, OPS)
"""Between a call and the function that is called."""
_PUBLIC = (torch.functional.__file__, torch._jit_internal.__file__)
"""Where functions that ask for dispatch are spread over several frames: `torch.unique`."""


class Run:
    """The run that is watched, which all rules share: who is at work, where everything should be, and where findings
    go."""

    def __init__(self, device: torch.device, collector: FindingCollector, sources: Sources) -> None:
        self.device = device
        """Where the model was moved."""
        self.collector = collector
        self.sources = sources
        self.irregular = False
        """Whether there are tensors that a virtual GPU cannot hold."""
        self.until: FrameType | None = None
        """The frame that watches: what is further out is none of the model's."""

    @property
    def path(self) -> str:
        """The module at work."""
        return self.collector.path


class Call:
    """A call that was made, or that failed."""

    __slots__ = ("_operands", "_place", "args", "frame", "kind", "kwargs", "run")

    def __init__(self, run: Run, kind: Kind, args: Any, kwargs: Any, frame: FrameType) -> None:
        self.run, self.kind, self.args, self.kwargs, self.frame = run, kind, args, kwargs, frame
        self._operands: list[Tensor] | None = None
        self._place: tuple[SourceLocation | None] | None = None

    @property
    def operands(self) -> list[Tensor]:
        """Its tensors, nested ones too."""
        if self._operands is None:
            self._operands = operands(self.args, self.kwargs)
        return self._operands

    @property
    def place(self) -> SourceLocation | None:
        """The user's line."""
        if self._place is None:
            self._place = (place_of(self.frame, self.run.until),)
        return self._place[0]

    @property
    def users_frame(self) -> FrameType | None:
        """The frame that is at the user's line."""
        place = self.place
        frame: FrameType | None = self.frame
        while place is not None and frame is not None:
            if frame.f_lineno == place.line and os.path.abspath(frame.f_code.co_filename) == place.file:
                return frame
            frame = frame.f_back
        return None

    def written(self, path: str) -> str | None:
        """A parameter or buffer of the model as the user's line could write it: `self.blocks[0].weight`; None where
        that line cannot."""
        frame = self.users_frame
        owner = None if frame is None else self.run.sources.paths.get(id(frame.f_locals.get("self")))
        if owner is None or (owner and not path.startswith(f"{owner}.")):
            return None
        below = path.removeprefix(f"{owner}.") if owner else path
        return "self." + re.sub(r"\.(\d+)(?=\.)", r"[\1]", below)

    @property
    def by_torch(self) -> bool:
        """Whether it is torch's own code that calls, below the user's line: `nn.Transformer` that looks at its mask."""
        frame: FrameType | None = self.frame
        dispatched = False
        while frame is not None and (frame.f_code.co_filename in _PASSED or frame.f_code.co_filename.startswith(BELOW)):
            dispatched = frame.f_code.co_filename == torch.overrides.__file__
            frame = frame.f_back
        if (
            frame is not None and dispatched and frame.f_code.co_name == self.kind.name
        ):  # the public function, which asked for dispatch
            frame = frame.f_back
        while dispatched and frame is not None and frame.f_code.co_filename in _PUBLIC:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


Rule = Callable[[Call, Any], None]
"""Looks at a call that was made, and at its result."""


class Repair(NamedTuple):
    """A call that failed for where its operands are, in a way that works."""

    args: Any
    kwargs: Any
    """With which the rules look at it."""
    repeated: Callable[[Any], Any]
    """Calls the function so."""
    note: Callable[[], None]
    """Reports what was wrong."""
    on_host: bool = False
    """Whether the call cannot be made on a virtual GPU at all."""


class Histories(Protocol):
    """Follows what autograd knows of tensors through a run: `doctor.gradients`."""

    def tracing(self, until: FrameType | None) -> AbstractContextManager[None]:
        """The run; `until` is the frame that watches."""
        ...

    def switch(self, on: bool, frame: FrameType) -> None:
        """Gradients are about to be switched on or off."""
        ...

    def after(self, call: Call, result: Any) -> None:
        """A call was made in forward."""
        ...

    def output(self, value: Any) -> None:
        """The model has returned this."""
        ...

    def backward(self, roots: Sequence[Tensor]) -> None:
        """A backward from these is about to begin."""
        ...

    def drop(self, *tensors: Tensor) -> None:
        """Nothing may refer to these weakly now."""
        ...
