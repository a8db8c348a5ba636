"""The list of everything that the doctor can find, and what it found in a few words. No torch, no thread: the window
and the command line read it too.

Each rule has a page in docs/doctor/ with an example of the defect and the fix.
"""

from __future__ import annotations

from dataclasses import dataclass

from devexplorer.core.base import count_text
from devexplorer.core.records import Diagnosis


@dataclass(frozen=True, slots=True)
class FindingRule:
    """One kind of finding."""

    key: str
    """`unregistered-module`; also the name of its page."""
    title: str
    """A few words for a heading: `Module that is not registered`."""
    severity: str
    """What a finding of it usually is: `error`, `warning` or `note`."""
    summary: str
    """One sentence: what it is about and why it matters."""


_ALL = (
    # found by looking at the model
    FindingRule(
        "unregistered-module",
        "Module that is not registered",
        "error",
        "A module in a plain list, tuple, dict, set or closure has no parameters as far as PyTorch knows, and no move"
        " reaches it.",
    ),
    FindingRule(
        "unregistered-parameter",
        "Parameter that is not registered",
        "error",
        "A Parameter in a plain container is not trained, not saved and not moved.",
    ),
    FindingRule(
        "unregistered-tensor",
        "Tensor that is not registered",
        "error",
        "A tensor that is a plain attribute stays where it was made when the model moves; a buffer follows.",
    ),
    FindingRule(
        "parameter-not-leaf",
        "Parameter that a move made into a plain tensor",
        "error",
        "`nn.Parameter(x).to(device)` gives a tensor that is no leaf and no Parameter: it is not registered and gets no"
        " gradient.",
    ),
    FindingRule(
        "stale-alias",
        "Alias that stays behind",
        "error",
        "An attribute that shares memory with a parameter or buffer goes on pointing at the old memory when the model"
        " has moved.",
    ),
    FindingRule(
        "tie-lost",
        "Tied weights that a move unties",
        "error",
        "Two Parameters over one memory are two tensors after a move; one Parameter under two names stays one.",
    ),
    FindingRule(
        "optimizer-before-move",
        "Optimizer that does not follow",
        "error",
        "An optimizer keeps the tensors it was given, and its state where that was made.",
    ),
    FindingRule(
        "lazy-parameter",
        "Lazy parameter that never gets its shape",
        "warning",
        "Until a forward reaches its layer, a lazy parameter can be neither counted nor trained, and its checkpoint is"
        " refused.",
    ),
    FindingRule(
        "offload-hooks",
        "Hooks of accelerate",
        "warning",
        "A model that accelerate has dispatched is placed by its hooks; `.to()` works against them.",
    ),
    FindingRule(
        "unsaved-buffer",
        "Buffer that a checkpoint misses",
        "warning",
        "A non-persistent buffer is not in the state_dict: what was drawn or learned in it is lost.",
    ),
    # found by watching a forward (and backward)
    FindingRule(
        "mixed-devices", "Operands on different devices", "error", "PyTorch computes with tensors of one device only."
    ),
    FindingRule(
        "default-device",
        "Tensor made on the default device",
        "error",
        "A tensor that forward makes without naming a device is on the CPU, wherever the model is.",
    ),
    FindingRule(
        "hidden-sync",
        "Hidden synchronisation",
        "warning",
        "`.item()`, `.tolist()`, `.cpu()`, `.numpy()` and a condition on a tensor wait until the device has done all"
        " its work.",
    ),
    FindingRule(
        "device-hop",
        "Copy between devices in forward",
        "warning",
        "What forward copies between devices it copies at every call, over a link that is far slower than the device's"
        " memory.",
    ),
    FindingRule(
        "hard-coded-device",
        "Device written into the code",
        "error",
        '`.cuda()` and `"cuda:0"` in a model work on one machine and one card only.',
    ),
    FindingRule(
        "dtype-promotion",
        "Result that doubles its memory",
        "warning",
        "An operand of a wider dtype makes the result as wide: twice the memory, and slower products.",
    ),
    FindingRule(
        "mixed-dtypes",
        "Operands of different dtypes",
        "error",
        "Layers and products take one dtype: a float32 input into a bfloat16 model fails on every device.",
    ),
    FindingRule(
        "differs-on-device",
        "Result that differs on the device",
        "error",
        "Code that asks where it runs can compute one thing on the CPU and another on a card, without an error.",
    ),
    FindingRule(
        "growing-graph",
        "Graph that grows with every call",
        "error",
        "What forward keeps with its history keeps the graphs of all calls before it, until memory runs out.",
    ),
    FindingRule(
        "cut-from-autograd",
        "Values without their history",
        "error",
        "`.data`, `.detach()`, `no_grad`, `.item()` and operations without a derivative keep gradients from the"
        " parameters before them.",
    ),
    FindingRule(
        "no-gradient",
        "Parameter that gets no gradient",
        "note",
        "Forward does not use it, or what is computed from it is not part of the result: it keeps its initial values.",
    ),
    FindingRule(
        "fails-on-device",
        "Works on the CPU, fails there",
        "error",
        "The forward or the backward fails on this device and not on the CPU.",
    ),
)

DEVICES_MEET = ("mixed-devices", "default-device")
"""Rules whose findings say why an operation failed: its operands were on several devices."""
RULES = {rule.key: rule for rule in _ALL}
"""Every rule by its key, those found by looking at the model first."""


def verdict(diagnosis: Diagnosis) -> str:
    """`1 error, 2 warnings, 1 note`, `no problem`, `no problem found; not checked: the forward`."""
    errors = sum(item.severity == "error" for item in diagnosis.problems)
    counts = ((errors, "error"), (len(diagnosis.problems) - errors, "warning"), (len(diagnosis.notes), "note"))
    found = [count_text(number, noun) for number, noun in counts if number]
    unchecked = list(dict.fromkeys(item.what for item in diagnosis.unchecked))
    if not diagnosis.problems:
        found.insert(0, "no problem found" if unchecked else "no problem")
    words = ", ".join(found)
    if len(unchecked) == 1:
        words += f"; not checked: {unchecked[0]}"
    elif unchecked:
        words += f"; {len(unchecked)} items not checked"
    return words


def passes(diagnosis: Diagnosis) -> str:
    """`forward in evaluation and training mode`, `forward and backward in training mode, forward in evaluation
    mode`."""
    if not diagnosis.modes:
        return "forward and backward" if diagnosis.train else "forward"
    if not diagnosis.train:
        return f"forward in {' and '.join(diagnosis.modes)} mode"
    more = f", forward in {diagnosis.modes[1]} mode" if len(diagnosis.modes) > 1 else ""
    return f"forward and backward in training mode{more}"


REASONS = {
    "cut": "cut off",
    "library": "cut off in a library",
    "copy": "in a copy",
    "updated": "updated by forward",
    "frozen": "frozen",
    "unused": "unused",
    "output": "not part of the output",
    "unknown": "unexplained",
}
"""`NoGradient.reason` in words."""


def without_gradient(diagnosis: Diagnosis) -> str:
    """`6 parameters (4 cut off, 2 frozen)`: those that a backward gave no gradient; empty where all have one, or it is
    unknown."""
    counts: dict[str, int] = {}
    for item in diagnosis.no_gradient:
        counts[item.reason] = counts.get(item.reason, 0) + len(item.parameters)
    if not counts:
        return ""
    listed = ", ".join(f"{counts[reason]:,} {words}" for reason, words in REASONS.items() if reason in counts)
    return f"{count_text(sum(counts.values()), 'parameter')} ({listed})"
