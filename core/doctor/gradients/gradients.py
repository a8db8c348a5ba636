"""Follows histories through a forward and its backward, and says why each parameter without a gradient has none: one
finding and one entry of a table for each cause. The thread that is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._functorch import vmap

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.gradients.copies import copies
from devexplorer.core.doctor.gradients.cuts import Cut, Exit, cut_message, exit_message
from devexplorer.core.doctor.gradients.graph import Graph, Refusal
from devexplorer.core.doctor.gradients.lineage import Lineage
from devexplorer.core.doctor.static.model_context import MOST_LISTED, listed
from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation
from devexplorer.core.models import is_uninitialised
from devexplorer.core.records import NoGradient

_SILENT = ("frozen", "updated")
"""Reasons not worth reporting."""
_WITHOUT_LINE = {
    "unused": (
        "No operation of this forward uses {which}: {which_short} {them} no gradient.",
        "Use it in forward or remove it; DistributedDataParallel needs find_unused_parameters=True for it.",
    ),
    "output": (
        "What is computed from {which} is not part of what forward returns: {which_short} {them} no gradient.",
        "Return it or remove it; DistributedDataParallel needs find_unused_parameters=True for it.",
    ),
    "unknown": (
        "{which} {them} no gradient, and no line was found that would explain it.",
        "Check the operations that use it for one that gives no derivative.",
    ),
}


class _Cause(NamedTuple):
    """What keeps gradients from a parameter."""

    reason: str
    """See `NoGradient.reason`."""
    place: SourceLocation | None = None
    subject: Cut | Exit | None = None

    @property
    def key(self) -> tuple[str, object]:
        """What is one cause: a line, or a reason without one."""
        return self.reason, self.place if self.place is not None or self.subject is None else self.subject.description


def _enter(
    cause: _Cause, paths: list[str], line_of: Callable[[str], SourceLocation | None], collector: FindingCollector
) -> None:
    place, whole = cause.place, of_all(paths)
    if cause.subject is None and cause.reason not in _SILENT:
        place = (line_of(whole) if whole else None) or line_of(paths[0])
    at = place or NOWHERE
    code = "" if cause.subject is None else cause.subject.description
    collector.no_gradient.append(
        NoGradient(reason=cause.reason, parameters=tuple(paths), file=at.file, line=at.line, code=code)
    )
    if cause.reason in _SILENT:
        return
    which, them = some(paths), "gets" if len(paths) == 1 else "get"
    if cause.subject is None:
        message, fix = _WITHOUT_LINE[cause.reason]
        short = "it" if len(paths) == 1 else "they"
        collector.add(
            "no-gradient", message.format(which=which, which_short=short, them=them), fix, path=whole, place=place
        )
        return
    message, fix = (
        cut_message(cause.subject, which, them)
        if isinstance(cause.subject, Cut)
        else exit_message(cause.subject, which, them)
    )
    if cause.reason == "copy":
        fix = (
            "Freeze it with requires_grad_(False) if it is a target or a teacher; otherwise let it run with gradients."
        )
    collector.add(
        "cut-from-autograd",
        message,
        fix,
        path=whole,
        place=place,
        severity="error" if cause.reason == "cut" else "note",
    )


def some(paths: Sequence[str]) -> str:
    """`encoder.weight`, `encoder.weight and encoder.bias`, `12 parameters of encoder (encoder.0.weight and 11
    more)`."""
    if len(paths) <= MOST_LISTED:
        return listed(paths)
    whole = of_all(paths)
    return f"{len(paths)} parameters{f' of {whole}' if whole else ''} ({paths[0]} and {len(paths) - 1} more)"


def of_all(paths: Sequence[str]) -> str:
    """The module that all of them are part of, empty for the model; of one parameter its own path."""
    if len(paths) == 1:
        return paths[0]
    first, last = min(paths).split("."), max(paths).split(".")
    common = 0
    while common < min(len(first), len(last)) - 1 and first[common] == last[common]:
        common += 1
    return ".".join(first[:common])


def _of(subject: Cut | Exit) -> _Cause:
    place = subject.library or subject.place if isinstance(subject, Cut) else subject.place
    return _Cause("library" if place is not None and place.library else "cut", place, subject)


_BATCHED = ("_add_batch_dim", "_remove_batch_dim")


class Gradients(Lineage):
    """Of one run of one model; `OpTracer` tells it what happens."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor] = ()) -> None:
        """`inputs` are what its forward gets."""
        super().__init__(model, inputs)
        self._model = model
        self._graph: Graph | None = None

    @contextmanager
    def tracing(self, until: FrameType | None) -> Iterator[None]:
        """The run."""
        self.switches.until = until
        try:
            with self.switches.watching_inference(), self._through_vmap():
                yield
        finally:
            self.switches.until = None

    def _through_vmap(self) -> AbstractContextManager[Any]:
        """Within, what `vmap` makes of a tensor is known to be made of it: no call of torch's shows that."""

        def passing(function: Callable[..., Any]) -> Callable[..., Any]:
            def passed(tensor: Any, *rest: Any) -> Any:
                result = function(tensor, *rest)
                if isinstance(result, Tensor) and isinstance(tensor, Tensor):
                    with torch._C.DisableTorchFunction():
                        self.pass_on(result, tensor)
                return result

            return passed

        changed: dict[str, Any] = {name: passing(getattr(vmap, name)) for name in _BATCHED}
        changing: AbstractContextManager[Any] = patch.multiple(vmap, **changed)
        return changing

    def backward(self, roots: Sequence[Tensor]) -> None:
        """A backward from these is about to begin."""
        if self._graph is None:
            self._graph = Graph(roots)

    def explain(self, line_of: Callable[[str], SourceLocation | None], collector: FindingCollector) -> None:
        """Report every parameter without a gradient; before the optimizer's step, and once.

        `line_of` says which line set what is at a path of the model.
        """
        numbers = [
            number for number, item in enumerate(self.parameters) if not is_uninitialised(item) and item.grad is None
        ]
        refusals = [] if self._graph is None else self._graph.refusals()
        without = {id(self.parameters[number]) for number in numbers}
        meant: set[int] | None = None
        causes: dict[tuple[str, object], tuple[_Cause, list[str]]] = {}
        for number in numbers:
            cause = self._cause(refusals, number)
            taken = isinstance(cause.subject, Cut) and cause.subject.kind in ("switch", "detach", "data")
            if cause.reason == "cut" and taken:
                meant = copies(self._model, without) if meant is None else meant
                cause = cause._replace(reason="copy") if id(self.parameters[number]) in meant else cause
            causes.setdefault(cause.key, (cause, []))[1].append(self.paths[number])
        for cause, paths in causes.values():
            _enter(cause, paths, line_of, collector)

    def _cause(self, refusals: Sequence[Refusal], number: int) -> _Cause:
        bit, parameter = 1 << number, self.parameters[number]
        if self.frozen & bit:
            return _Cause("frozen")
        through = [cut for cut in self.cuts if cut.parameters & bit]
        freeze = next((cut for cut in through if cut.kind == "freeze"), None)
        if freeze is not None and not parameter.requires_grad:
            return _of(freeze)
        if self._graph is not None and id(parameter) in self._graph.reached:
            refused = next(
                (item for item in refusals if id(parameter) in item.reached and item.place is not None), None
            )
            if refused is None:
                return _Cause("unknown")
            return _of(Cut(-1, "refusal", f"{refused.name}.backward", refused.place))
        if self.written & bit:
            return _Cause("updated")
        arriving = [cut for cut in through if self.at_output >> cut.number & 1]
        if arriving:
            before = 0
            for cut in arriving:
                before |= cut.behind
            last = [cut for cut in arriving if not before >> cut.number & 1] or arriving
            return _of(min(last, key=lambda cut: (cut.library is not None, cut.weight, cut.number)))
        left = [item for item in self.exits.values() if item.parameters & bit]
        if left:
            return _of(min(left, key=lambda item: item.decides))
        if self.lost:
            return _of(through[0]) if through else _Cause("unknown")
        return _Cause("output" if self.used & bit else "unused")

    def close(self) -> None:
        """Let go of the model and of the graph."""
        if self._graph is not None:
            self._graph.close()
