"""Memory that training does not need: graphs of models that no optimizer trains, copies of a model, models of earlier
trainings, and what failed attempts had.
Pure functions of what is in memory; any thread."""

from __future__ import annotations

from collections import Counter

import torch

from devexplorer.core.base import bytes_text
from devexplorer.core.observe.live_memory import LiveMemory, Root
from devexplorer.core.observe.memory_case import MemoryCase, make_cause, model_words
from devexplorer.core.observe.memory_report import MemoryCause

MUCH = 0.25
"""Of the device: what is worth naming."""
MOST = 0.5
"""Of the device: what decides."""
FEW = 3


def kept_error(case: MemoryCase) -> MemoryCause | None:
    """An exception whose traceback keeps the variables of an attempt that has failed."""
    held = case.live.errors
    if held is None or case.share(held.in_all) < MUCH:
        return None
    name, kind = case.name_of(held.thing), type(held.thing).__name__
    keeper = f"{name} keeps" if name else f"Python keeps {kind} while it is handled, and so"
    return make_cause(
        "tensors_in_container",
        f"An exception of an earlier attempt is kept: {keeper} the variables of the functions in its traceback,"
        f" {bytes_text(held.in_all)} on {case.live.card.spoken}.",
        [
            "Try again after the except block, not in it: until it ends, Python keeps the exception and its traceback.",
            "Keep str(error) rather than the exception, or call traceback.clear_frames(error.__traceback__).",
        ],
    )


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
        kind = type(found[0].module).__name__
        return make_cause(
            "second_model",
            f"Copies of a model: {_keeper(case, found)} keeps {len(found)} of {kind} on {live.card.spoken},"
            f" {bytes_text(size)}, beside the one that is trained.",
            [
                "Keep them in host memory (copy.deepcopy(model).cpu()), or in files (torch.save).",
                "Keep the best one only.",
            ],
        )
    return None


def _keeper(case: MemoryCase, found: list[Root]) -> str:
    """The variable that leads to most of these."""
    paths = Counter(case.path_of(root.module).partition("[")[0] for root in found)
    del paths[""]
    return paths.most_common(1)[0][0] if paths else "something"


def kept_trainings(case: MemoryCase) -> MemoryCause | None:
    """Models that were trained one after the other, as those of the folds of a cross-validation, while one is at
    work."""
    live, moment = case.live, case.moment
    trained = _trained(live)
    at_work: set[int] = set()
    if moment.optimizer is not None:
        at_work = {id(one) for group in moment.optimizer.param_groups for one in group["params"]}
    elif moment.root is not None:
        at_work = {id(one) for one in moment.root.parameters()}
    elif moment.differentiated:
        at_work = set(live.graphs.uses(live.graphs.behind(moment.differentiated)))
    if not at_work:
        return None
    kept: dict[type, list[Root]] = {}
    for root in live.roots:
        own = {id(parameter) for parameter in root.module.parameters()}
        if root.here and own & trained and not own & at_work:
            kept.setdefault(type(root.module), []).append(root)
    for kind, found in kept.items():
        size = sum(root.here + _training_bytes(live, root) for root in found)
        if len(found) < FEW or case.share(size) < MOST:
            continue
        keeper, adrift = f"{_keeper(case, found)} keeps", sum(case.adrift(root.module) for root in found)
        remedies = [
            "Keep their weights in host memory (model.cpu().state_dict()), or in files (torch.save).",
            "Let go of the optimizer with the training that it belongs to; zero_grad(set_to_none=True) frees the"
            " gradients.",
        ]
        if adrift >= FEW:  # the largest few are asked for their names
            keeper = "a cycle of references, which no variable leads to and Python has not freed yet, keeps"
            remedies = [
                "Call gc.collect() between two trainings.",
                "Or do without the cycle: two objects that refer to each other, where one can have a weakref.proxy.",
            ]
        return make_cause(
            "second_model",
            f"Models of other trainings: {keeper} {len(found)} of {kind.__name__} on {live.card.spoken}, with"
            f" gradients and optimizer state {bytes_text(size)}, beside the one at work.",
            remedies,
        )
    return None


def _training_bytes(live: LiveMemory, root: Root) -> int:
    """Gradients and optimizer state of a model, on the device."""
    own = list(root.module.parameters())
    tensors = [parameter.grad for parameter in own]
    for optimizer in live.optimizers:
        for parameter in own:
            state = optimizer.state.get(parameter)
            if isinstance(state, dict):
                tensors += state.values()
    return sum(one.nbytes for one in tensors if isinstance(one, torch.Tensor) and one.device == live.card.device)
