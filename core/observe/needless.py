"""Memory that training does not need: graphs of models that no optimizer trains, and copies of a model that are kept.
Pure functions of what is in memory; any thread."""

from __future__ import annotations

from collections import Counter

from devexplorer.core.base import bytes_text
from devexplorer.core.observe.live_memory import LiveMemory, Root
from devexplorer.core.observe.memory_case import MemoryCase, make_cause, model_words
from devexplorer.core.observe.memory_report import MemoryCause

MUCH = 0.25
"""Of the device: what is worth naming."""
FEW = 3


def _trained(live: LiveMemory) -> set[int]:
    """`id` of what the optimizers have. Empty where something of it is in no model (master copies in float32): which
    models are trained cannot be told then."""
    trained = {
        id(parameter)
        for optimizer in live.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    return trained if trained <= live.owner.keys() else set()


def untrained_graph(case: MemoryCase) -> MemoryCause | None:
    """A teacher, or a part that is to be frozen, whose forward is recorded as if it were trained."""
    live = case.live
    trained = _trained(live)
    if not trained or case.moment.phase == "optimizer step":
        return None
    needed, idle = _nodes(live, trained)
    keys = {key for number in idle for key, _ in live.graphs.saved[number]}
    keys -= {key for number in needed for key, _ in live.graphs.saved[number]}
    size = live.saved_in(keys)
    if case.share(size) < MUCH:
        return None
    owners = Counter(
        {name: count for name, count in live.graphs.uses(idle).items() if name in live.owner and name not in trained}
    )
    if not owners:
        return None
    root = live.owner[owners.most_common(1)[0][0]]
    words, it = model_words(case, root), "it"
    own = {id(parameter) for parameter in root.module.parameters()}
    if own & trained:
        parts = Counter(live.names[number].split(".")[0] for number in owners if number in own)
        words = f"{parts.most_common(1)[0][0]} of {words}"
        it = "that part"
    return make_cause(
        "no_grad_missing",
        f"The forward pass of {words} is recorded, although no optimizer trains {it}: {bytes_text(size)} are saved for"
        " gradients that are not used.",
        [
            f"Call {it} in a block: with torch.no_grad(): …; that frees {bytes_text(size)}.",
            "Or call requires_grad_(False) on its parameters, where the input needs no gradients.",
        ],
    )


def _nodes(live: LiveMemory, trained: set[int]) -> tuple[set[int], set[int]]:
    """The nodes that lead to something that is trained (or to a leaf of the script's), and those that do not."""
    graphs = live.graphs
    needed: set[int] = set()
    for number in graphs.in_order():
        variable = graphs.variable[number]
        if variable is not None:
            leads = id(variable) in trained or id(variable) not in live.owner
        else:
            below = graphs.below[number]
            leads = not below or any(child in needed for child in below)
        if leads:
            needed.add(number)
    return needed, set(range(len(graphs.nodes))) - needed


def kept_copies(case: MemoryCase) -> MemoryCause | None:
    """Several models like one that is trained, as averages of each epoch."""
    live = case.live
    trained = _trained(live)
    like: Counter[tuple[object, ...]] = Counter()
    copies: dict[tuple[object, ...], list[Root]] = {}
    for root in live.roots:
        if any(id(parameter) in trained for parameter in root.module.parameters()):
            like[root.signature] += 1
        elif root.here:
            copies.setdefault(root.signature, []).append(root)
    for signature, found in copies.items():
        size = sum(root.here for root in found)
        if not like[signature] or len(found) < FEW or case.share(size) < MUCH:
            continue
        paths = Counter(case.path_of(root.module).partition("[")[0] for root in found)
        del paths[""]
        kind = type(found[0].module).__name__
        name = paths.most_common(1)[0][0] if paths else ""
        keeper = f"{name} keeps" if name else "Something keeps"
        return make_cause(
            "second_model",
            f"Copies of a model: {keeper} {len(found)} of {kind} on {live.card.spoken}, {bytes_text(size)}, beside the"
            " one that is trained.",
            [
                "Keep them in host memory (copy.deepcopy(model).cpu()), or in files (torch.save).",
                "Keep the best one only.",
            ],
        )
    return None
