"""What is simply too large: one tensor, a sequence, a batch, a sample. Pure functions of what is in memory; any
thread."""

from __future__ import annotations

from collections import Counter

from torch import nn

from devexplorer.core.base import bytes_text
from devexplorer.core.observe.graph import grad_fn
from devexplorer.core.observe.live_memory import OTHERS, SAVED, Piece
from devexplorer.core.observe.memory_case import MemoryCase, make_cause, place_words
from devexplorer.core.observe.memory_report import MemoryCause
from devexplorer.core.observe.needless import MOST, MUCH

LONG = 512
"""Tokens from which on an attention matrix is looked for."""
ROWS = 1000
"""From so many on, what a model is given can be one thing of many rows, such as a graph, rather than a batch."""


def one_tensor(case: MemoryCase) -> MemoryCause | None:
    """A request for most of the device, or for more than it has."""
    moment = case.moment
    if moment.phase not in ("script", "forward", "building") or case.share(case.requested) < MOST:
        return None
    rest = [piece.bytes for piece in case.live.pieces.values() if not _made_along(case, piece)]
    if case.requested <= case.usable and (_matrix(case)[0] or case.requested < 2 * max(rest, default=0)):
        return None
    of_a_batch = moment.phase == "forward" and moment.batch >= 8 and moment.root is not None
    if of_a_batch and case.share(case.requested // moment.batch) < 0.02:
        return None
    place = place_words(case)
    remedies = [
        "Check its shape: a one-hot vector over a vocabulary, or (N, 1) against (N,) that becomes N×N?",
        "Class numbers instead of one-hot vectors (cross_entropy takes them), or work on it in chunks.",
        "bool or int8 take an eighth of int64, a quarter of float32.",
    ]
    if moment.phase == "building":
        remedies = [
            "A large embedding table: keep it on the CPU, split it over devices, or let several ids share a row.",
            "In float16 or bfloat16 it takes half.",
        ]
    return make_cause(
        "one_tensor",
        f"One tensor of {bytes_text(case.requested)} is asked for, {case.share(case.requested):.0%} of what"
        f" {case.live.card.spoken} has{': ' + place if place else '.'}",
        remedies,
    )


def _made_along(case: MemoryCase, piece: Piece) -> bool:
    """Whether the function that asks for a tensor has made this one before, for itself: a step of the same
    calculation, outside of any graph."""
    place = case.moment.place
    if case.moment.phase != "script" or place is None or piece.line is None or piece.part != OTHERS:
        return False
    recorded = any(grad_fn(tensor) is not None for tensor in piece.tensors)
    return not recorded and (piece.line[0], piece.line[2]) == (place.file, place.function)


def _matrix(case: MemoryCase) -> tuple[int, int]:
    """Length and bytes of tensors whose last two dimensions are one long length, and that are no pictures; zeros: they
    are few."""
    widths = _widths(case)
    sizes: Counter[int] = Counter()
    for piece in case.live.pieces.values():
        shape = piece.largest.shape
        if piece.part in (SAVED, OTHERS) and len(shape) >= 3 and shape[-1] == shape[-2] >= LONG:
            sizes[int(shape[-1])] += piece.bytes
    for width in widths:
        del sizes[width]
    length, size = sizes.most_common(1)[0] if sizes else (0, 0)
    return (length, size) if case.share(size) >= 0.15 else (0, 0)


def _widths(case: MemoryCase) -> set[int]:
    """Of pictures: what convolutions are given, and without a graph what has as many channels as one of them makes."""
    graphs = case.live.graphs
    widths: set[int] = set()
    root = case.moment.root
    layers = [] if root is None else [one for one in root.modules() if isinstance(one, (nn.Conv2d, nn.ConvTranspose2d))]
    channels = {layer.out_channels for layer in layers if max(layer.kernel_size) > 1}
    for piece in case.live.pieces.values():
        shape = piece.largest.shape
        if len(shape) == 4 and shape[1] in channels:
            widths.add(int(shape[-1]))
    for node, saved in zip(graphs.nodes, graphs.saved, strict=True):
        if "Convolution" in node.name():
            widths.update(int(tensor.shape[-1]) for _, tensor in saved if tensor.dim() >= 4)
    return widths


def sequence(case: MemoryCase) -> MemoryCause | None:
    """Attention that holds its matrices."""
    length, size = _matrix(case)
    saved = case.live.bytes_of(SAVED)
    if not length or size + case.requested < MOST * (saved + case.requested):
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


def pairs(case: MemoryCase) -> MemoryCause | None:
    """A matrix of each row with every other, as those of contrastive losses and of distances."""
    sizes: Counter[int] = Counter()
    for piece in case.live.pieces.values():
        shape = piece.largest.shape
        if piece.part in (SAVED, OTHERS) and len(shape) == 2 and shape[0] == shape[1] >= ROWS:
            sizes[int(shape[0])] += piece.bytes
    rows, size = sizes.most_common(1)[0] if sizes else (0, 0)
    if case.share(size) < MUCH or 2 * size < case.live.card.allocated:
        return None
    fits = int(rows * (case.usable * 0.9 / (case.live.card.allocated + case.requested)) ** 0.5)
    return make_cause(
        "one_tensor",
        f"A matrix of {rows:,}×{rows:,}, each row against every other, is too large: {bytes_text(size)} so far, and"
        f" {bytes_text(case.requested)} are asked for.",
        [
            f"Fewer rows: memory grows with the square of their number; about {fits:,} would pass this point.",
            "Work on some rows at a time, each block against all.",
        ],
    )


def activations(case: MemoryCase) -> MemoryCause | None:
    """A batch, or a single sample, whose activations do not fit."""
    live, moment = case.live, case.moment
    saved = live.bytes_of(SAVED)
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
            f"One sample is too large: its activations take {bytes_text(passing + case.requested)} and more"
            f"{_most_of_it(case, passing + case.requested)}.",
            _without_batch(case),
        )
    rows = _other_rows(case, size)
    if rows:
        return make_cause(
            "activations",
            f"One forward pass is too large: its activations take {bytes_text(passing + case.requested)} and more, most"
            f" of it in tensors of {rows:,} rows (of edges, points, boxes or the like; the input has {size:,}).",
            [
                "Work on fewer rows at a time: samples of neighbours of a graph, chunks of points.",
                *_without_batch(case),
            ],
        )
    each = (passing + case.requested) / size
    fits = int((case.usable - kept) / each)
    fits = min(fits, size - 1)  # it did not fit, whatever the estimate says
    remedies = [
        f"A batch of at most {max(fits, 1):,} would have passed this point, by a linear estimate from {size:,}; later"
        " layers can need more."
    ]
    if fits >= 1:
        after = "one optimizer step for all" if moment.records else "one after the other"
        remedies.append(f"The same result: {-(-size // max(fits, 1))} smaller batches, {after}.")
    most = _most_of_it(case, passing + case.requested)
    if most:
        remedies.append("Make that one tensor in pieces, and let go of each: the loss of some of its rows at a time.")
    batch, earlier = f"{size:,}", ""
    if moment.length > 1:
        batch += f" sequences of {moment.length:,}"
        shorter = max(1, moment.length * fits // size)
        remedies.insert(
            0, f"Sequences of at most {shorter:,}: truncate, or put those of about the same length together."
        )
    if live.stepped and moment.phase == "forward":
        earlier = "Earlier steps fitted: this batch is larger or longer than theirs, or more is trained now."
    return make_cause(
        "batch",
        f"The batch of {batch} is too large: its activations take {bytes_text(passing + case.requested)} and more,"
        f" {bytes_text(each)} for each sample{most}.",
        remedies + _without_batch(case),
        earlier,
    )


def _other_rows(case: MemoryCase, size: int) -> int:
    """How many rows most of the activations have, where that is no multiple of the batch; 0: it is one."""
    sizes: Counter[int] = Counter()
    for piece in case.live.pieces.values():
        if piece.part == SAVED:
            sizes[max(int(one.shape[0]) for one in piece.tensors if one.dim()) if piece.largest.dim() else 0] += (
                piece.bytes
            )
    rows, most = sizes.most_common(1)[0] if sizes else (0, 0)
    if size < ROWS or rows <= size or rows % size == 0 or most < 0.5 * sizes.total():
        return 0
    return rows


def _most_of_it(case: MemoryCase, needed: int) -> str:
    """The one tensor that has most of what is needed, as the logits over a large vocabulary."""
    pieces = [piece for piece in case.live.pieces.values() if piece.part == SAVED]
    largest = max(pieces, key=lambda piece: piece.bytes, default=None)
    if largest is None or largest.bytes < 0.4 * needed:
        return ""
    shape = "×".join(map(str, largest.largest.shape))
    return f"; {bytes_text(largest.bytes)} of it is one tensor of {shape}"


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
