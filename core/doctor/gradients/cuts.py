"""The lines at which values lose their history, each once, and what is said about them. Any thread."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import tree_of

EXPLICIT, IMPLICIT = 0, 1
"""Whether values without a history were asked for, or an operation has no derivative."""


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

    @property
    def weight(self) -> int:
        """`EXPLICIT` or `IMPLICIT`."""
        return IMPLICIT if self.kind == "step" else EXPLICIT


@dataclass(slots=True)
class Exit:
    """A line at which values leave PyTorch: autograd does not see what Python makes of them."""

    description: str
    """`item()`."""
    place: SourceLocation | None
    decides: bool
    """Whether they only decide a condition."""
    parameters: int = 0


_FREEZE = "what should not learn is frozen with requires_grad_(False)."
_SAID = {
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
"""What is wrong at a cut of each kind, and what would be right; of `detach` and `data` that depends on the line."""


def cut_message(cut: HistoryCut, which: str, them: str) -> tuple[str, str]:
    """What is wrong at a cut and what would be right; `which` are the parameters, `them` is `gets` or `get`."""
    wrong, fix = _taken(cut) if cut.kind in ("detach", "data") else _SAID[cut.kind]
    return (
        f"{wrong.replace('{words}', cut.description)}: {which} {them} no gradient.",
        fix,
    )  # source can contain braces


def _taken(cut: HistoryCut) -> tuple[str, str]:
    """The same where values are taken without their history: with the values' names, as the line has them."""
    written = _written(cut) or [cut.description]
    values = [item.removesuffix(cut.description) for item in written]
    fix = f"Use {' and '.join(values) if all(values) else 'the value'} directly; {_FREEZE}"
    if cut.description == ".detach_()":
        fix = f"Remove .detach_(); {_FREEZE}"
    return f"{' and '.join(written)} {'take' if len(written) > 1 else 'takes'} values without their history", fix


def exit_message(leaves: Exit, which: str, them: str) -> tuple[str, str]:
    """The same where values leave PyTorch."""
    if leaves.decides:
        fix = "Let the value itself take part in the result, for example as a weight."
        return f"This condition is all that depends on {which}, and it has no derivative: no gradient comes back.", fix
    fix = "Compute with the tensor itself, and ask for Python numbers after the backward."
    return f"Values leave PyTorch through {leaves.description} without their history: {which} {them} no gradient.", fix


def _written(cut: HistoryCut) -> list[str]:
    """`self.weight.data`, as the line has it; empty where it has no such thing."""
    tree = None if cut.place is None else tree_of(cut.place.file)
    if tree is None or cut.place is None:
        return []
    name = cut.description.strip(".()")
    found: list[str] = []
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.expr))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        value = node.func if isinstance(node, ast.Call) and name != "data" else node
        if isinstance(value, ast.Attribute) and value.attr == name:
            called = isinstance(node, ast.Call) or name == "data"
            if called and (node.end_lineno or node.lineno) >= cut.place.line >= node.lineno:
                text = ast.unparse(node)
                found += [text] if len(text) <= 60 and text not in found else []
    return found
