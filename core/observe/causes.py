"""Why memory ran out, and what would have made it fit: judged by what is in memory, what was asked for, and what the
script was doing. Pure functions of these; any thread.

The rules are asked one after the other, the most certain first: where memory is free but in pieces, where a request is
larger than everything else, then what the script was doing (loading, moving, copying, a first step of the optimizer),
then what it keeps without need (graphs, containers), and then what is simply large.
"""

from __future__ import annotations

import dis
import os
import re
from collections import Counter
from collections.abc import Callable

import torch
from torch import nn

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.observe import needless, too_large
from devexplorer.core.observe.graph import grad_fn
from devexplorer.core.observe.live_memory import (
    BUFFERS,
    GRADIENTS,
    OTHERS,
    PARAMETERS,
    SAVED,
    STATE,
    TEMPORARY,
    Piece,
    TensorGroup,
    tensors_in,
)
from devexplorer.core.observe.memory_case import MemoryCase, make_cause, model_words
from devexplorer.core.observe.memory_report import MemoryCause
from devexplorer.core.observe.needless import FEW, MOST, MUCH

FRAGMENTED = 0.2
"""Of the device: so much is free beside the largest piece where fragmentation is the cause."""
WORTH = 0.1
"""Of the device: what a checkpoint or a second model takes, where it can be the cause."""
HISTORY = 4
"""Times the parameters: an optimizer whose state is larger keeps more than averages."""
ROUNDING = 2 << 20
"""Bytes by which a block can be larger than what was asked for."""
_COPIES = re.compile(r"clone\(|deepcopy\(|copy\(|state_dict\(")


def judge(case: MemoryCase) -> MemoryCause:
    """The first rule that fits."""
    for rule in _RULES:
        found = rule(case)
        if found is not None:
            return found
    return _largest_part(case)


def _fragmentation(case: MemoryCase) -> MemoryCause | None:
    card = case.live.card
    cached = card.reserved - card.allocated
    in_pieces = card.free - card.largest_free
    if not card.largest_free < case.requested <= card.free or case.share(in_pieces) < FRAGMENTED:
        return None
    remedies = [
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the script starts; the cache can then grow and"
        " shrink in place.",
        "Allocate the largest tensors first, or pad inputs to a few fixed sizes, so that freed pieces fit again.",
        "torch.cuda.empty_cache() helps only for segments in which nothing is left.",
    ]
    return make_cause(
        "fragmentation",
        f"The free memory is fragmented: {bytes_text(card.free)} are free, but the largest piece has"
        f" {bytes_text(card.largest_free)} and {bytes_text(case.requested)} were asked for.",
        remedies,
        f"{bytes_text(cached)} are reserved by PyTorch and not in use.",
    )


def _checkpoint(case: MemoryCase) -> MemoryCause | None:
    live = case.live
    models = [root for root in live.roots if root.here]
    if case.moment.phase == "loading":
        there = live.bytes_of(OTHERS)
        text = f"A checkpoint is loaded onto {live.card.spoken}."
        if models:
            text = (
                f"A checkpoint is loaded onto {live.card.spoken} beside {model_words(case, models[0])}: each of its"
                " tensors is there a second time."
            )
        elif case.share(there) >= MUCH:
            text = (
                f"A checkpoint is loaded onto {live.card.spoken}, where what was loaded before it is still:"
                f" {bytes_text(there)}."
            )
        return make_cause("checkpoint", text, _checkpoint_remedies())
    for held in live.containers:
        keys = _text_keys(held)
        fits = any(len(keys & root.names) >= max(1, len(root.names) // 2) for root in live.roots)
        if fits and not held.with_graph and case.share(held.bytes) >= WORTH and held.bytes >= case.requested:
            flat = any(isinstance(value, torch.Tensor) for value in held.thing.values())
            what = "A tensor for each parameter, such as a copy of the weights," if flat else "A checkpoint"
            in_host = "Keep it in host memory: {name: value.cpu() for name, value in model.state_dict().items()}."
            return make_cause(
                "checkpoint",
                f"{what} is kept on {live.card.spoken} beside the model: {case.name_of(held.thing)} holds"
                f" {bytes_text(held.bytes)}.",
                [
                    *([in_host] if flat else []),
                    f"Delete it once it is loaded: del {case.path_of(held.thing)}",
                    *_checkpoint_remedies(),
                ],
            )
    return None


def _checkpoint_remedies() -> list[str]:
    return [
        'torch.load(path, map_location="cpu"): load_state_dict then copies each tensor into the one that is there.',
        "torch.load(path, mmap=True) does not even read what is not used; delete the checkpoint afterwards.",
    ]


def _text_keys(held: TensorGroup) -> set[str]:
    if not isinstance(held.thing, dict):
        return set()
    keys = set()
    for state in (held.thing, *held.thing.values()):  # {"model": {…}, "optimizer": {…}}
        if isinstance(state, dict):
            keys |= {key for key, value in state.items() if isinstance(key, str) and isinstance(value, torch.Tensor)}
    return keys


def _second_model(case: MemoryCase) -> MemoryCause | None:
    models = [root for root in case.live.roots if case.share(root.here) >= WORTH]
    moment = case.moment
    if moment.phase == "building" and not any(type(root.module) is type(moment.root) for root in models):
        return None  # its parts are no models yet
    copied = bool(models) and (moment.phase == "copying" or _copies_parameters(case))
    if copied:
        needs = models[0].in_all
        what = f"a copy of {model_words(case, models[0])} needs another {bytes_text(needs)}"
    else:
        if moment.phase == "moving" and moment.root is not None:
            others = [root for root in case.live.roots if root.module is moment.root]
            models = [root for root in models if root.module is not moment.root]
            if _whole_bytes(moment.root) > case.usable:
                return None
        else:
            whole = [root for root in models if root.module._modules]  # layers in a list are no models
            others = [root for root in whole[1:] if root.signature == whole[0].signature]
            models = whole
        if not others or not models:
            return None
        needs = sum(root.in_all for root in others)
        if case.share(needs) < WORTH:
            return None
        what = (
            f"{model_words(case, others[0])} needs {bytes_text(others[0].in_all)} beside"
            f" {model_words(case, models[0])} with {bytes_text(models[0].here)}"
        )
    frozen = "; it needs no gradients and no optimizer" if copied else ""
    remedies = [
        "Keep the second model on the CPU, or on another device, and move it only while it is used.",
        f"Hold it in half precision: copy.deepcopy(model).half() needs {bytes_text(needs // 2)}{frozen}.",
        "Use one model with adapters, or compute the teacher's outputs beforehand.",
    ]
    return make_cause("second_model", f"A second model is on {case.live.card.spoken}: {what}.", remedies)


def _copies_parameters(case: MemoryCase) -> bool:
    """Whether the line copies tensors one by one, and what was asked for is as large as a parameter."""
    place = case.moment.place
    if case.moment.phase != "script" or place is None or not _COPIES.search(place.text):
        return False
    return _as_large_as_a_parameter(case)


def _as_large_as_a_parameter(case: MemoryCase) -> bool:
    sizes = [piece.bytes for piece in case.live.pieces.values() if piece.part == PARAMETERS]
    return any(abs(size - case.requested) < (ROUNDING if size > ROUNDING else 512) for size in sizes)


def _whole_bytes(module: nn.Module) -> int:
    tensors = {id(one): one for one in (*module.parameters(), *module.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def _too_large_model(case: MemoryCase) -> MemoryCause | None:
    live, moment = case.live, case.moment
    largest = live.roots[0] if live.roots else None
    parameters = live.bytes_of(PARAMETERS)
    if moment.phase == "moving" and moment.root is not None:
        whole, dtype = _whole_bytes(moment.root), _dtype(moment.root)
        if whole <= MOST * case.usable:
            return None
        words = f"{type(moment.root).__name__} needs {bytes_text(whole)}"
    elif moment.phase in ("building", "script") and not moment.optimizer and case.share(parameters) >= 0.7:
        whole, dtype = parameters + case.requested, "float32" if largest is None else largest.dtype
        words = f"its parameters have {bytes_text(whole)} so far, and more may come"
    elif largest is not None and case.share(largest.here) >= 0.7:
        whole, dtype = largest.here, largest.dtype
        words = f"{model_words(case, largest)} takes {bytes_text(whole)}"
    else:
        return None
    remedies = []
    if dtype == "float32":
        half = whole // 2
        fits = "would fit" if half < 0.9 * case.usable else "is still too much"
        remedies.append(f'In bfloat16 (model.to("cuda", torch.bfloat16)) it needs {bytes_text(half)}, which {fits}.')
    remedies += [
        f"Quantised to 8 or 4 bits it needs {bytes_text(whole * _ITEM.get(dtype, 1) // 4)} or half of that.",
        'Split it over devices, or keep parts on the CPU (accelerate: device_map="auto").',
    ]
    return make_cause(
        "model_too_large",
        f"The model in {dtype} is too large for {live.card.name}: {words}, and {bytes_text(case.usable)} can be used.",
        remedies,
    )


_ITEM = {"float32": 1, "float64": 1, "float16": 2, "bfloat16": 2}


def _dtype(module: nn.Module) -> str:
    sizes: Counter[str] = Counter()
    for parameter in module.parameters():
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return sizes.most_common(1)[0][0] if sizes else "float32"


def _optimizer(case: MemoryCase) -> MemoryCause | None:
    optimizer = case.moment.optimizer
    if optimizer is None:
        return None
    trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    steps = [state.get("step", 0) for state in optimizer.state.values() if isinstance(state, dict)]
    taken = [step for step in steps if not isinstance(step, torch.Tensor) or step.device.type == "cpu"]
    first = len(optimizer.state) < len(trained) or all(int(step) <= 1 for step in taken)
    if not first:
        return None
    name = type(optimizer).__name__
    parameters = sum(p.numel() * p.element_size() for p in trained)
    state = case.live.bytes_of(STATE)
    tensors = {"SGD": 1, "Adagrad": 1, "RMSprop": 1, "Lion": 1}.get(name, 2)
    remedies = [f"torch.optim.SGD without momentum keeps no state; 8-bit {name} (bitsandbytes) keeps a quarter of it."]
    remedies += [
        f"Train fewer parameters ({bytes_text(parameters)} are trained now): freeze some, or use adapters (LoRA).",
        "Shard the state over devices: ZeroRedundancyOptimizer, FSDP.",
    ]
    return make_cause(
        "optimizer_state",
        f"The first step of {name} makes its state, about {bytes_text(tensors * parameters)} beside"
        f" {bytes_text(parameters)} of parameters and as much of gradients.",
        remedies,
        f"{bytes_text(state)} of the state were there already.",
    )


def _optimizer_history(case: MemoryCase) -> MemoryCause | None:
    """An optimizer that keeps many times its parameters, as LBFGS does."""
    for optimizer in case.live.optimizers:
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        parameters = sum(p.nbytes for p in trained)
        state = sum(
            tensor.nbytes for _, tensor in tensors_in(dict(optimizer.state)) if tensor.device == case.live.card.device
        )
        if case.share(state) < MUCH or state <= HISTORY * parameters:
            continue
        size = max((group.get("history_size", 0) for group in optimizer.param_groups), default=0)
        of = f", for up to {size} earlier steps (history_size)" if size else ""
        fewer = (
            "A smaller history_size keeps fewer of them."
            if size
            else "Have it keep less, if it has an option for that."
        )
        return make_cause(
            "optimizer_state",
            f"The state of {type(optimizer).__name__} has grown to {bytes_text(state)}, beside"
            f" {bytes_text(parameters)} of parameters{of}.",
            [fewer, "Another optimizer, such as Adam, keeps twice the parameters at most."],
        )
    return None


def _graph_bytes(case: MemoryCase) -> int:
    return case.live.bytes_of(SAVED)


def _no_grad(case: MemoryCase) -> MemoryCause | None:
    live, moment = case.live, case.moment
    if moment.phase in ("backward", "optimizer step") or not (moment.records or live.passes):
        return None
    kept = _graph_bytes(case)
    if case.share(kept) < MUCH:
        return None
    models = [moment.root] if moment.root is not None else []
    if not models:
        users = {id(live.owner[key].module): live.owner[key].module for key in live.graphs.into if key in live.owner}
        models = list(users.values())
    in_eval = bool(models) and not any(module.training for module in models)
    no_training = not live.optimizers and not live.bytes_of(GRADIENTS) and not moment.trains and bool(models)
    evaluates = in_eval and moment.within_evaluation
    if not evaluates and (moment.trains or not (in_eval or moment.evaluates or no_training)):
        return None
    held = _graph_container(case)
    of = f"; {case.name_of(held.thing)} keeps them" if held is not None else ""
    why = "the model is in eval mode" if in_eval else "nothing here calls backward"
    return make_cause(
        "no_grad_missing",
        f"An evaluation without torch.no_grad(): {bytes_text(kept)} are saved for a backward that does not come{of}.",
        [
            f"Put it in a block: with torch.inference_mode(): … (or torch.no_grad()); that frees {bytes_text(kept)}.",
            "Move results that are collected to the CPU: outputs.append(output.cpu()).",
        ],
        f"Operations are recorded, and {why}.",
    )


def _graph_container(case: MemoryCase) -> TensorGroup | None:
    """What holds most of the graphs, where several tensors in one container do."""
    for held in case.live.containers:
        if not case.path_of(held.thing) or not case.outside(held.thing):
            continue
        if held.with_graph >= FEW and held.graph_bytes + held.bytes >= 0.4 * max(_graph_bytes(case), 1):
            return held
    return None


def _kept_graphs(case: MemoryCase) -> MemoryCause | None:
    live = case.live
    kept = _graph_bytes(case)
    if case.share(kept) < MUCH:
        return None
    held = _graph_container(case)
    if held is not None and held.with_graph >= FEW and case.share(held.graph_bytes) >= MUCH:
        name = case.path_of(held.thing) or "them"
        return make_cause(
            "graphs_in_container",
            f"{case.name_of(held.thing)} holds {count_text(held.with_graph, 'tensor')} with the graph of each:"
            f" {bytes_text(held.graph_bytes)} are saved for their backward.",
            [
                f"Keep values, not tensors: {name}.append(loss.item()) or .append(loss.detach()).",
                "For one step over many batches call backward for each of them; gradients add up.",
                "Where nothing is trained with them (an evaluation, a rendered picture): with torch.no_grad(): …",
            ],
        )
    old = case.share(live.earlier_bytes) >= MUCH and len(live.optimizers) < 2  # a GAN's steps lie between its passes
    found = _graph_holder(case)
    if found is None or (old and found[0] < MOST * live.earlier_bytes):
        return _unknown_holder(case) if old else None
    size, passes, tensor = found
    many = passes >= FEW and case.share(size) >= MUCH
    looping = any(_loops(root.module) for root in live.roots)
    if case.moment.phase != "forward":  # a model that uses its weights again and again looks the same
        many = many and (not looping or _apart(case, tensor))
    if not old and not many:
        return None
    name, words = case.path_of(tensor), case.name_of(tensor)
    through = " of earlier steps" if live.earlier_bytes else " of earlier forward passes"
    if passes >= 2 and not looping:
        through = f" of {passes} forward passes"
    return make_cause(
        "kept_graph",
        f"{words} keeps the graph{through}: {bytes_text(max(live.earlier_bytes, size))} are saved for backward.",
        [
            f"Cut it off from earlier steps: {name} = {name}.detach(), or .item() for a number.",
            "Where it is a sum of losses, call backward for each of them; gradients add up.",
            "Leave out retain_graph=True: backward then frees what it has used.",
        ],
        f"{bytes_text(live.earlier_bytes)} were saved before the last step of the optimizer."
        if live.earlier_bytes
        else "",
    )


def _apart(case: MemoryCase, tensor: torch.Tensor) -> bool:
    """Whether most of what this tensor's graph has saved is no part of the backward that runs."""
    graphs = case.live.graphs
    behind = graphs.reach([tensor])
    used = graphs.reach(case.moment.differentiated)
    return case.live.saved_in(behind - used) >= MOST * case.live.saved_in(behind)


def _unknown_holder(case: MemoryCase) -> MemoryCause:
    kept = bytes_text(case.live.earlier_bytes)
    return make_cause(
        "kept_graph",
        f"Graphs of earlier steps are kept: {kept} were saved for backward before the last step of the optimizer. Not"
        " sure: the variable that keeps them was not found.",
        [
            "Look for a list or an attribute that gets a tensor at every step: keep tensor.item() or tensor.detach().",
            "Leave out retain_graph=True: backward then frees what it has used.",
        ],
    )


def _graph_holder(case: MemoryCase) -> tuple[int, int, torch.Tensor] | None:
    """The variable outside of the forward that runs whose graph has saved most: its bytes, the forward passes that it
    leads through, and the tensor."""
    live = case.live
    candidates = [
        one
        for piece in live.pieces.values()
        if piece.part in (OTHERS, SAVED)
        for one in piece.tensors
        if grad_fn(one) in live.graphs.number and case.path_of(one) and case.outside(one)
    ]
    found: list[tuple[int, int, torch.Tensor]] = []
    for tensor in candidates:
        nodes = live.graphs.behind([tensor])
        size = live.saved_in({key for node in nodes for key, _ in live.graphs.saved[node]})
        found.append((size, live.passes_in(live.graphs.uses(nodes)), tensor))
    most = max((size for size, _, _ in found), default=0)
    large = [one for one in found if one[0] >= 0.9 * most]
    # of several that hold about the same, what was made first is what the others are made of
    return max(large, default=None, key=lambda one: (one[1], -int(grad_fn(one[2])._sequence_nr())))


def _loops(module: nn.Module) -> bool:
    """Whether code of the user's in a model has a loop in its forward."""
    codes = (getattr(getattr(kind, "forward", None), "__code__", None) for kind in set(map(type, module.modules())))
    own = (code for code in codes if code is not None and kind_of(code.co_filename) != "skipped")
    return any(instruction.opname == "FOR_ITER" for code in own for instruction in dis.get_instructions(code))


def _containers(case: MemoryCase) -> MemoryCause | None:
    for held in case.live.containers:
        if len(held.tensors) < FEW + 1 or held.graph_bytes > held.bytes or case.share(held.bytes) < MUCH:
            continue
        if held.bytes < _graph_bytes(case):
            continue
        words, name = case.name_of(held.thing), case.path_of(held.thing)
        if not name:
            if type(held.thing) is tuple:
                continue
            name = "it"
            words = f"A {type(held.thing).__name__} (no variable that leads to it was found{_made_at(case, held)})"
        remedies = [
            "Keep them in host memory: append(x.cpu()), and bring back what is used.",
            f"Keep fewer: clear {name} when its contents have been used, or give it a limit.",
            f"In float16 they take half: {bytes_text(held.bytes // 2)} less would be in use.",
        ]
        seen = sum(tensor.nbytes for tensor in held.tensors.values())
        views = ""
        if seen < MOST * held.bytes:
            views = f"They are views with {bytes_text(seen)}, and each keeps all of the tensor that it is a part of."
            remedies.insert(0, f"Keep copies of the parts: x.clone() instead of x; that leaves {bytes_text(seen)}.")
        return make_cause(
            "tensors_in_container",
            f"{words} has kept {count_text(len(held.tensors), 'tensor')} on"
            f" {case.live.card.spoken}, {bytes_text(held.bytes)}.",
            remedies,
            views,
        )
    return None


def _made_at(case: MemoryCase, held: TensorGroup) -> str:
    lines: Counter[str] = Counter()
    for piece in case.live.pieces.values():
        if piece.line is not None and any(id(tensor) in held.tensors for tensor in piece.tensors):
            lines[f"{os.path.basename(piece.line[0])}, line {piece.line[1]}"] += piece.bytes
    return f"; its tensors were made at {lines.most_common(1)[0][0]}" if lines else ""


def _gradients(case: MemoryCase) -> MemoryCause | None:
    live = case.live
    gradients, parameters = live.bytes_of(GRADIENTS), live.bytes_of(PARAMETERS)
    in_backward = case.moment.phase == "backward"
    saved = _graph_bytes(case)
    weighty = case.share(parameters + gradients) >= MUCH and parameters >= saved
    if in_backward and weighty and _as_large_as_a_parameter(case):
        return make_cause(
            "gradients",
            f"The gradients do not fit: backward makes one of {bytes_text(case.requested)} for a parameter, and"
            f" {bytes_text(parameters)} of parameters are there.",
            [
                "Train fewer parameters: requires_grad_(False) on the others, adapters (LoRA).",
                "Hold parameters and gradients in bfloat16, which halves both.",
                "For a large nn.Embedding: sparse=True gives gradients of the rows that were used only.",
            ],
            f"{bytes_text(gradients)} of gradients are there already.",
        )
    waits = not case.moment.records and case.moment.phase in ("forward", "script")
    if waits and gradients >= max(case.requested, saved) and case.share(gradients) >= 0.1:
        return make_cause(
            "gradients",
            f"The gradients of the last step are still there: {bytes_text(gradients)} that this part of the script"
            " does not need.",
            ["optimizer.zero_grad(set_to_none=True) after the step frees them."],
        )
    return None


def _others(case: MemoryCase) -> MemoryCause | None:
    card = case.live.card
    if case.others < 0.4 * card.capacity or card.limit < card.capacity - card.context:
        return None
    return make_cause(
        "other_processes",
        f"Other processes use {bytes_text(case.others)} of {card.spoken}.",
        ["nvidia-smi lists them; end what is no longer used, or choose another device."],
    )


def _largest_part(case: MemoryCase) -> MemoryCause:
    live = case.live
    sizes = {part: live.bytes_of(part) for part in (PARAMETERS, BUFFERS, GRADIENTS, STATE, SAVED, OTHERS)}
    sizes[TEMPORARY] = max(0, live.card.allocated - sum(sizes.values()))
    part = max(sizes, key=lambda one: sizes[one])
    named = _largest_named(case) if part == OTHERS else ""
    return make_cause(
        "largest_part",
        f"Most of {live.card.spoken} is taken by {part}: {bytes_text(sizes[part])} of"
        f" {bytes_text(case.usable)}{named}.",
        ["Keep on the device what is used now only, and the rest on the CPU."],
    )


def _largest_named(case: MemoryCase) -> str:
    pieces: list[Piece] = [piece for piece in case.live.pieces.values() if piece.part == OTHERS]
    largest = max(pieces, key=lambda piece: piece.bytes, default=None)
    name = "" if largest is None else case.name_of(largest.largest)
    return f", of it {bytes_text(largest.bytes)} in {name}" if largest is not None and name else ""


_RULES: tuple[Callable[[MemoryCase], MemoryCause | None], ...] = (
    needless.kept_error,
    _checkpoint,
    needless.kept_trainings,
    _optimizer_history,
    _optimizer,
    _fragmentation,
    _others,
    _no_grad,
    _kept_graphs,
    needless.untrained_graph,
    needless.kept_copies,
    _second_model,
    too_large.one_tensor,
    _gradients,
    _too_large_model,
    _containers,
    too_large.sequence,
    too_large.pairs,
    too_large.activations,
)
