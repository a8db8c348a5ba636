"""Which parameters each tensor of a forward is computed from, with a history and without; the lines at which values
lose their history, and what is said about them. The watched thread.

Sets of parameters are the bits of one integer. Results are referred to weakly, so that no activation lives longer than
it would.
"""

from __future__ import annotations

import ast
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import inference_mode

from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.tracing.call import WAITS, Call
from devexplorer.core.isolation.source_location import SourceLocation, frames, kind_of, library_of, place_at, place_of
from devexplorer.core.models import is_switch, tensors_in, tree_of


@dataclass(slots=True)
class HistoryCut:
    """A line behind which values have no history."""

    number: int
    kind: str
    """`detach`, `data`, `switch`, `copy`, `grad`, `freeze`, `step` (no derivative), of a Function `function` (its
    result is declared not differentiable), `inputs` (none of them has a history) and `refusal` (its backward returns
    None)."""
    description: str
    """The code there: `.detach()`, `torch.no_grad()`, `torch.argmax`."""
    place: SourceLocation | None
    """The user's line, or a library's where no user code is involved."""
    library: SourceLocation | None = None
    """The line of an installed package that does it, where it is not the user's own."""
    parameters: int = 0
    """Parameters with a history up to here, as a set of bits."""
    behind: int = 0
    """Numbers of the cuts on other paths to here, as bits: what went through those still had a history up to here."""


@dataclass(slots=True)
class Exit:
    """A line at which values leave PyTorch: autograd does not see what Python makes of them."""

    description: str
    """`item()`."""
    place: SourceLocation | None
    decides: bool
    """Whether they only decide a condition."""
    parameters: int = 0


_TAKEN = (
    "{words} takes values without their history",
    "Use the value itself; what should not learn is frozen with requires_grad_(False).",
)
_SAID = {
    "detach": _TAKEN,
    "data": _TAKEN,
    "switch": (
        "Nothing computed within {words} has a history",
        "Move what should learn out of the block, or freeze it: requires_grad_(False).",
    ),
    "copy": ("{words} copies values without their history", "Use the tensor itself, or x.clone() for a copy."),
    "grad": (
        "torch.autograd.grad without create_graph=True gives values without a history",
        "Give create_graph=True, so that the result can be differentiated.",
    ),
    "freeze": (
        "{words} in forward freezes parameters that require a gradient before",
        "Freeze parameters before training, if they should not learn; otherwise remove this line.",
    ),
    "function": (
        "A Function marks this result as not differentiable",
        (
            "Do not mark it as not differentiable, and return a gradient from backward: of a hard step, that of a soft"
            " one."
        ),
    ),
    "inputs": (
        "No tensor that {words} is applied to requires a gradient, so its result has no history",
        (
            "Make an input of it require a gradient, as x.requires_grad_() does; of torch's checkpoint, give"
            " use_reentrant=False."
        ),
    ),
    "refusal": (
        "{words} returns None for an input that needs a gradient",
        "Return a gradient for every input that needs one; ctx.needs_input_grad says which.",
    ),
    "step": (
        "{words} has no derivative",
        (
            "Give the gradient another way past it: softmax weights, gumbel_softmax(hard=True), or soft + (hard -"
            " soft).detach()."
        ),
    ),
}
"""What is wrong at a cut of each kind, and what would be right."""


def cut_message(cut: HistoryCut, which: str, them: str) -> tuple[str, str]:
    """What is wrong at a cut and what would be right; `which` are the parameters, `them` is `gets` or `get`."""
    wrong, fix = _SAID[cut.kind]
    wrong = wrong.replace("{words}", cut.description)  # source can contain braces
    return f"{wrong}: {which} {them} no gradient.", fix


def exit_message(leaves: Exit, which: str, them: str) -> tuple[str, str]:
    """The same where values leave PyTorch."""
    if leaves.decides:
        fix = "Let the value itself take part in the result, for example as a weight."
        return f"This condition is all that depends on {which}, and it has no derivative: no gradient comes back.", fix
    fix = "Compute with the tensor itself, and ask for Python numbers after the backward."
    return f"Values leave PyTorch through {leaves.description} without their history: {which} {them} no gradient.", fix


# Who has switched gradients off, and at which line: `no_grad`, `inference_mode`, `set_grad_enabled(False)`. The
# thread that is watched.

_DECORATED = torch.utils._contextlib.__file__


class Switched(NamedTuple):
    """Gradients are off since this line."""

    description: str
    place: SourceLocation | None
    library: SourceLocation | None


class Switches:
    """Knows the switch that is in force, from the calls of torch that are traced (`switch`); `inference_mode` makes
    none that is seen."""

    def __init__(self) -> None:
        self.until: FrameType | None = None
        """The frame that watches: what is further out is none of the model's."""
        self._off: Switched | None = None
        self._inference: list[Switched] = []

    @property
    def off(self) -> Switched | None:
        """None where they are on; autograd itself does that within a Function's forward."""
        return self._inference[-1] if self._inference else self._off

    def switch(self, on: bool, frame: FrameType) -> None:
        """Gradients are about to be switched."""
        if on:
            self._off = None
        elif torch.is_grad_enabled():
            self._off = _found(frame, self.until)

    def watching_inference(self) -> AbstractContextManager[Any]:
        """Within, `inference_mode` tells where it was entered."""
        before_enter: Callable[..., Any] = inference_mode.__enter__
        before_exit: Callable[..., Any] = inference_mode.__exit__

        def enter(switch: inference_mode) -> None:
            if switch.mode:
                self._inference.append(_found(sys._getframe(1), self.until, "torch.inference_mode()"))
            before_enter(switch)

        def leave(switch: inference_mode, *raised: Any) -> None:
            if switch.mode and self._inference:
                self._inference.pop()
            before_exit(switch, *raised)

        return patch.multiple(inference_mode, __enter__=enter, __exit__=leave)


def _found(frame: FrameType, until: FrameType | None, description: str = "torch.set_grad_enabled(False)") -> Switched:
    for outer in frames(frame, until):
        file = outer.f_code.co_filename
        if file == torch.autograd.grad_mode.__file__ and type(outer.f_locals.get("self")) is torch.no_grad:
            description = "torch.no_grad()"
        elif file == _DECORATED:
            decorated = _decorator(outer.f_locals.get("func"))
            if decorated is not None:
                return decorated
        if kind_of(file) != "skipped":
            break
    return Switched(description, place_of(frame, until), library_of(frame, until))


def _decorator(function: Any) -> Switched | None:
    """The line of `@torch.no_grad()` where the switch is one over a whole function."""
    code = getattr(function, "__code__", None)
    place = None if code is None else place_at(code.co_filename, code.co_firstlineno, code.co_name)
    if place is None:
        return None
    description = "a decorator that switches gradients off"
    begins = place.line
    for node in nodes(tree_of(place.file), ast.stmt):
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        if decorators and decorators[0].lineno == begins:
            for item in filter(is_switch, decorators):
                place, description = place._replace(line=item.lineno), f"@{ast.unparse(item)}"
    return Switched(description, place, place if place.library else None)


SWEEP_AT = 20_000
_COPIES = frozenset({"tensor", "new_tensor"})
_NO_VALUES = frozenset({
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_empty",
    "new_full", "new_empty_strided", "register_hook", "retain_grad", "is_floating_point", "is_complex", "backward",
})  # fmt: skip
"""What is made has the shape, the dtype and the device of its operand, and nothing of its values."""
_DECIDES = frozenset({"__bool__", "is_nonzero", "__contains__", "equal", "allclose"})
_PRINTS = frozenset({"__format__", "__repr__"})
_WITH_INDICES = frozenset({"sort", "topk", "max", "min", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin"})
"""They give values, which have a derivative, and where those were, which has none."""


class _Pending(NamedTuple):
    """Why what is computed within a Function's forward will have no history outside, if it has none there; see
    `HistoryCut`."""

    kind: str
    description: str
    place: SourceLocation | None


class _Known(NamedTuple):
    tensor: weakref.ref[Tensor]
    live: int
    """Parameters that a gradient would reach from here."""
    cut: int
    """Numbers of the cuts on the path to here, as bits."""
    pending: _Pending | None = None
    """Computed within a Function's forward, where nothing has a history yet."""


class Lineage:
    """What is known of the tensors of one forward."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        named = list(model.named_parameters())
        self.paths = [path for path, _ in named]
        self.parameters = [item for _, item in named]
        """Held, so that no other tensor gets the `id()` of one."""
        self.frozen = sum(1 << number for number, item in enumerate(self.parameters) if not item.requires_grad)
        """Those that require no gradient when forward begins."""
        self.used = 0
        """Those that an operation has had as an operand."""
        self.written = 0
        """Those whose values forward itself has changed."""
        self.cuts: list[HistoryCut] = []
        self.exits: dict[object, Exit] = {}
        self.at_output = 0
        """Cuts on the way to what the model has returned."""
        self.lost = False
        """Whether nothing is known of something that the model has returned (`vmap` gives other tensors back than it
        computes)."""
        self.switches = Switches()
        self._inputs = {id(item): item for item in inputs}
        """What forward gets: nothing is lost where it returns that, as a VAE does for its loss."""
        self._numbers = {id(item): number for number, item in enumerate(self.parameters)}
        self._known: dict[int, _Known] = {}
        self._by_place: dict[tuple[str, str, object], HistoryCut] = {}
        self._sweep_at = SWEEP_AT

    # --- events of the tracer

    def drop(self, *tensors: Tensor) -> None:
        """Forget these: nothing may refer to them weakly now."""
        for tensor in tensors:
            self._known.pop(id(tensor), None)

    def pass_on(self, tensor: Tensor, source: Tensor) -> None:
        """One is the other in another form: what `vmap` makes of its operands and of its results."""
        live, cut = self._of(source)
        if live or cut:
            self._remember(tensor, live, cut)

    def output(self, value: Any) -> None:
        """The model has returned this."""
        for tensor in tensors_in(value):
            live, cut = self._of(tensor)
            if live and not needs_gradient(tensor):
                if torch.is_grad_enabled():
                    cut |= self._lost_in_function(tensor, None, live)
                else:
                    before = "torch.set_grad_enabled(False), called before forward,"
                    cut |= self._cut("switch", before, None, live)
            self.at_output |= cut
            self.lost |= not live and not cut and tensor.is_floating_point() and id(tensor) not in self._inputs

    def after(self, call: Call, result: Any) -> None:
        """A call of torch's was made in forward."""
        name, first = call.kind.name, call.first
        if name in _NO_VALUES:
            return
        if name == "requires_grad_":
            self._frozen_here(call)
            return
        live, cut = self._operands(call, call.operands)
        if not live and not cut:
            return
        if call.kind.writes and isinstance(first, Tensor) and isinstance(result, Tensor | tuple | list | None):
            self._write(call, first)
        else:
            first = None
        for tensor in tensors_in(result) if isinstance(result, Tensor | tuple | list) else ():
            if tensor is not first and id(tensor) not in self._numbers:
                self._note(call, tensor, live, cut)
        if not isinstance(result, Tensor) and name in WAITS and name not in _PRINTS:
            self._leaves(call, live, cut)

    # --- what an operand is

    def _of(self, tensor: Tensor) -> tuple[int, int]:
        """Parameters behind it that a gradient would reach, and cuts on the way."""
        number = self._numbers.get(id(tensor))
        if number is not None:
            return (1 << number) & ~self.frozen if tensor.requires_grad else 0, 0
        live = cut = 0
        for item in (tensor, tensor._base):
            known = self._known.get(id(item))
            if known is not None and known.tensor() is item:
                live, cut = live | known.live, cut | known.cut
        return live, cut

    def _operands(self, call: Call, tensors: list[Tensor]) -> tuple[int, int]:
        """The same of all operands of a call."""
        live = cut = 0
        for tensor in tensors:
            number = self._numbers.get(id(tensor))
            if number is not None:
                self.used |= 1 << number
            its, its_cuts = self._of(tensor)
            if its and number is None and not needs_gradient(tensor) and self._has_history():
                its_cuts |= self._lost_in_function(tensor, call.place, its)
                its = 0
            live, cut = live | its, cut | its_cuts
        return live, cut

    def _has_history(self) -> bool:
        """Whether what is computed now gets a history, unless that is switched off."""
        return torch.is_grad_enabled() or self.switches.off is not None

    # --- what becomes of it

    def _note(self, call: Call, tensor: Tensor, live: int, cut: int) -> None:
        pending = None
        if live and not needs_gradient(tensor):
            if self._has_history():
                cut |= self._lost(call, tensor, live, cut)
                live = 0
            else:
                pending = _pending(call)
        self._remember(tensor, live, cut, pending)

    def _remember(self, tensor: Tensor, live: int, cut: int, pending: _Pending | None = None) -> None:
        if len(self._known) >= self._sweep_at:
            self._known = {key: known for key, known in self._known.items() if known.tensor() is not None}
            self._sweep_at = max(SWEEP_AT, 2 * len(self._known))
        self._known[id(tensor)] = _Known(weakref.ref(tensor), live, cut, pending)

    def _write(self, call: Call, target: Tensor) -> None:
        """The first operand has been changed in place, and whatever it is a view of."""
        own_live, own_cut = self._of(target)
        live, cut = self._operands(call, [item for item in call.operands if item is not target])
        number = self._numbers.get(id(target))
        if number is not None:
            self.written |= 1 << number
            return
        if not own_live:
            for item in bits(own_cut):
                if self.cuts[item].kind in ("data", "detach"):
                    self.written |= self.cuts[item].parameters
        if call.kind.name == "detach_" and own_live:
            cut |= self._lost(call, target, own_live, own_cut)
            own_live = 0
        elif live and (not needs_gradient(target) or self.switches.off is not None) and self._has_history():
            cut |= self._lost(call, target, live, cut)
            live = 0
        for tensor in (target, target._base):
            if tensor is not None and id(tensor) not in self._numbers:
                self._remember(tensor, own_live | live, own_cut | cut)

    def _lost(self, call: Call, tensor: Tensor, live: int, behind: int) -> int:
        """A call gives values without the history that its operands had; returns the bit of the cut."""
        cut = self._number(call, tensor, live)
        self.cuts[cut.bit_length() - 1].behind |= behind & ~cut
        return cut

    def _number(self, call: Call, tensor: Tensor, live: int) -> int:
        name, off = call.kind.name, self.switches.off
        if name in ("detach", "detach_", "data"):
            kind, description = "detach", f".{name}()"
            if name == "data":
                kind, description = "data", ".data"
        elif off is not None:
            return self._cut("switch", off.description, off.place, live, off.library)
        elif name in _COPIES:
            kind, description = "copy", call.kind.description
        elif name == "grad":
            kind, description = "grad", "torch.autograd.grad"
        else:
            kind, description = "step", call.kind.sentence
            if tensor.is_floating_point() or tensor.is_complex():
                pass
            elif call.kind.casts:
                description = f"A conversion to {str(tensor.dtype).removeprefix('torch.')}"
            elif name in _WITH_INDICES:
                description = f"What {call.kind.description} gives as indices"
        return self._cut(kind, description, call.place, live, call.library)

    def _lost_in_function(self, tensor: Tensor, place: SourceLocation | None, live: int) -> int:
        """Computed in the forward of a Function, whose result has no history."""
        known = self._known.get(id(tensor))
        pending = _Pending("function", "a Function", place)
        if known is not None and known.pending is not None:
            pending = known.pending
        return self._cut(pending.kind, pending.description, pending.place or place, live)

    def _cut(
        self,
        kind: str,
        description: str,
        place: SourceLocation | None,
        live: int,
        library: SourceLocation | None = None,
    ) -> int:
        """The bit of the cut of this kind at this place, through which these parameters lose their history."""
        cut = self._by_place.get((kind, description, place))
        if cut is None:
            cut = HistoryCut(len(self.cuts), kind, description, place, library)
            self._by_place[kind, description, place] = cut
            self.cuts.append(cut)
        cut.parameters |= live
        return 1 << cut.number

    def _leaves(self, call: Call, live: int, cut: int) -> None:
        """Values go to Python, which keeps no history."""
        decides = call.kind.name in _DECIDES
        leaves = self.exits.setdefault((call.place, decides), Exit(WAITS[call.kind.name], call.place, decides))
        leaves.parameters |= live
        for item in bits(cut):
            leaves.parameters |= self.cuts[item].parameters

    def _frozen_here(self, call: Call) -> None:
        number = self._numbers.get(id(call.first))
        if number is not None and not call.argument(1, "requires_grad", True) and not (self.frozen >> number) & 1:
            self.at_output |= self._cut("freeze", ".requires_grad_(False)", call.place, 1 << number, call.library)


def _pending(call: Call) -> _Pending:
    """Autograd gives a Function's result a history only where one of the tensors that it is applied to has one."""
    functions = _functions_by_forward()
    applied = None
    for frame in frames(call.frame, call.run.until):
        if frame.f_code in functions:
            applied = frame
    pending = _Pending("function", "a Function", call.place)
    if applied is None:
        return pending
    names = inspect.getargs(applied.f_code)
    arguments = [applied.f_locals.get(name) for name in (*names.args, names.varargs) if name]
    context = next(iter(arguments), None)  # in Functions without `setup_context`
    if any(getattr(context, "needs_input_grad", ())) or any(map(needs_gradient, tensors_in(arguments))):
        return pending
    function = getattr(context, "_forward_cls", functions[applied.f_code])
    return _Pending("inputs", function.__name__, place_of(applied.f_back, call.run.until))


def _functions_by_forward() -> dict[CodeType, type]:
    """Every Function there is, by the code of its forward: `apply` itself has no frame since torch 2.15."""
    found: dict[CodeType, type] = {}
    waiting: list[type] = [torch.autograd.Function]
    while waiting:
        function = waiting.pop()
        waiting += function.__subclasses__()
        code = getattr(inspect.unwrap(function.forward), "__code__", None)  # type: ignore[attr-defined]
        if code is not None:
            found.setdefault(code, function)
    return found


def needs_gradient(tensor: Tensor) -> bool:
    """Whether it has a history, also that of the tensor within one of `vmap`'s and `torch.func`'s."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def bits(number: int) -> Iterator[int]:
    """The places of the ones."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
