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
from devexplorer.core.observe import needless
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
)
from devexplorer.core.observe.memory_case import MemoryCase, make_cause, model_words, place_words
from devexplorer.core.observe.memory_report import MemoryCause
from devexplorer.core.observe.needless import FEW, MOST, MUCH

FRAGMENTED = 0.2
"""Of the device: so much is free beside the largest piece where fragmentation is the cause."""
WORTH = 0.1
"""Of the device: what a checkpoint or a second model takes, where it can be the cause."""
ROUNDING = 2 << 20
"""Bytes by which a block can be larger than what was asked for."""
_COPIES = re.compile(r"clone\(|deepcopy\(|copy\(|state_dict\(")
LONG = 512
"""Tokens from which on an attention matrix is looked for."""


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
        beside = f" beside {model_words(case, models[0])}" if models else ""
        return make_cause(
            "checkpoint",
            f"A checkpoint is loaded onto {live.card.spoken}{beside}: each of its tensors is there a second time.",
            _checkpoint_remedies(),
        )
    for held in live.containers:
        keys = _text_keys(held)
        fits = any(len(keys & root.names) >= max(1, len(root.names) // 2) for root in live.roots)
        if fits and not held.with_graph and case.share(held.bytes) >= WORTH and held.bytes >= case.requested:
            return make_cause(
                "checkpoint",
                f"A checkpoint is kept on {live.card.spoken} beside the model: {case.name_of(held.thing)} holds"
                f" {bytes_text(held.bytes)}.",
                [f"Delete it once it is loaded: del {case.path_of(held.thing)}", *_checkpoint_remedies()],
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
    keys = {key for key in held.thing if isinstance(key, str)}
    for value in held.thing.values():  # {"model": {…}, "optimizer": {…}}
        if isinstance(value, dict):
            keys |= {key for key in value if isinstance(key, str)}
    return keys


def _second_model(case: MemoryCase) -> MemoryCause | None:
    models = [root for root in case.live.roots if case.share(root.here) >= WORTH]
    moment = case.moment
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
    if moment.trains or not (in_eval or moment.evaluates or no_training):
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
        many = many and not looping
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
    if in_backward and _as_large_as_a_parameter(case) and parameters >= saved:
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


def _one_tensor(case: MemoryCase) -> MemoryCause | None:
    moment = case.moment
    if moment.phase not in ("script", "forward") or case.share(case.requested) < MOST:
        return None
    largest = max((piece.bytes for piece in case.live.pieces.values()), default=0)
    if _matrix(case)[0] or case.requested < 2 * largest:
        return None
    of_a_batch = moment.phase == "forward" and moment.batch >= 8 and moment.root is not None
    if of_a_batch and case.share(case.requested // moment.batch) < 0.02:
        return None
    place = place_words(case)
    return make_cause(
        "one_tensor",
        f"One tensor of {bytes_text(case.requested)} is asked for, {case.share(case.requested):.0%} of what"
        f" {case.live.card.spoken} has{': ' + place if place else '.'}",
        [
            "Check its shape: a one-hot vector over a vocabulary, or (N, 1) against (N,) that becomes N×N?",
            "Class numbers instead of one-hot vectors (cross_entropy takes them), or work on it in chunks.",
            "bool or int8 take an eighth of int64, a quarter of float32.",
        ],
    )


def _matrix(case: MemoryCase) -> tuple[int, int]:
    """Length and bytes of saved tensors (or of what is asked for) whose last two dimensions are one long length."""
    sizes: Counter[int] = Counter()
    for piece in case.live.pieces.values():
        shape = piece.largest.shape
        if piece.part in (SAVED, OTHERS) and len(shape) >= 3 and shape[-1] == shape[-2] >= LONG:
            sizes[int(shape[-1])] += piece.bytes
    if not sizes:
        return (0, 0)
    return sizes.most_common(1)[0]


def _sequence(case: MemoryCase) -> MemoryCause | None:
    length, size = _matrix(case)
    if not length or case.share(size) < 0.15 or size + case.requested < MOST * (_graph_bytes(case) + case.requested):
        return None
    fits = int(length * (case.usable * 0.9 / (case.live.card.allocated + case.requested)) ** 0.5)
    return make_cause(
        "long_sequence",
        f"The sequence is long: attention holds matrices of {length:,}×{length:,}, {bytes_text(size)} so far.",
        [
            "functional.scaled_dot_product_attention computes attention without that matrix.",
            f"Shorter sequences: memory grows with the square of the length; about {fits:,} would pass this point.",
            "Recompute attention in backward: torch.utils.checkpoint.",
        ],
    )


def _activations(case: MemoryCase) -> MemoryCause | None:
    live, moment = case.live, case.moment
    saved = _graph_bytes(case)
    kept = sum(
        piece.bytes
        for piece in live.pieces.values()
        if piece.part != SAVED and (piece.part != OTHERS or case.outside(piece.largest))
    )
    passing = max(live.card.allocated - kept, saved)
    if moment.phase not in ("forward", "backward", "script") or passing + case.requested < kept:
        return None
    if moment.phase == "script" and not saved:
        return None
    size = moment.batch or _leading(case)
    if size <= 1:
        return make_cause(
            "activations",
            f"One sample is too large: its activations take {bytes_text(passing + case.requested)} and more.",
            _without_batch(case),
        )
    each = (passing + case.requested) / size
    fits = int((case.usable - kept) / each)
    fits = min(fits, size - 1)  # it did not fit, whatever the estimate says
    remedies = [
        f"A batch of at most {max(fits, 1):,} would have passed this point, by a linear estimate from {size:,}; later"
        " layers can need more."
    ]
    if fits >= 1:
        remedies.append(f"The same result: {-(-size // max(fits, 1))} smaller batches, one optimizer step for all.")
    return make_cause(
        "batch",
        f"The batch of {size:,} is too large: its activations take {bytes_text(passing + case.requested)} and more,"
        f" {bytes_text(each)} for each sample.",
        remedies + _without_batch(case),
    )


def _without_batch(case: MemoryCase) -> list[str]:
    remedies = []
    if case.moment.records:
        remedies.append("torch.utils.checkpoint keeps a layer's input only and runs its forward again in backward.")
    remedies.append("torch.autocast in bfloat16 halves most activations.")
    return remedies


def _leading(case: MemoryCase) -> int:
    sizes: Counter[int] = Counter()
    for piece in case.live.pieces.values():
        shapes = [one.shape for one in piece.tensors if one.dim() >= 2 and one.numel() == piece.largest.numel()]
        if piece.part in (SAVED, OTHERS) and shapes:
            sizes[min(int(shape[0]) for shape in shapes)] += piece.bytes
    return sizes.most_common(1)[0][0] if sizes else 0


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
    _optimizer,
    _fragmentation,
    _others,
    _no_grad,
    _kept_graphs,
    needless.untrained_graph,
    needless.kept_copies,
    _second_model,
    _one_tensor,
    _gradients,
    _too_large_model,
    _containers,
    _sequence,
    _activations,
)
