"""Counts what a cast did to the values: change, overflow, underflow, NaN; piece by piece where the originals are. Jobs thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from devexplorer.core.records.objects import CastLosses
from devexplorer.core.workspace.casts import loses
from devexplorer.core.workspace.parameters.pieces import DEVICE_PIECE_BYTES, pieces_together
from devexplorer.core.workspace.parts import LazyPart, NamePart, ParameterPart, Part

HOST_PIECE = 1 << 15
"""Elements of a piece on the CPU: a dozen temporaries of this size stay in the cache, and the allocator has them at hand."""


class _Lost(NamedTuple):
    changed: int
    largest: float
    relative: float
    overflowed: int
    underflowed: int
    nans: int


def cast_losses(parts: Iterable[Part]) -> CastLosses | None:
    """What the casts among these parts lost, when the move is over; None where none of them can."""
    try:
        found = list(_found(parts))
    except (RuntimeError, MemoryError):  # no room for the pieces, or an operation that the device lacks: the move is a move still
        return None
    if not found:
        return None
    path, _, _ = max(found, key=lambda one: (one[2].overflowed + one[2].nans, one[2].relative))
    every = [lost for _, _, lost in found]
    return CastLosses(
        elements=sum(elements for _, elements, _ in found),
        changed=sum(lost.changed for lost in every),
        largest_change=max(lost.largest for lost in every),
        largest_relative_change=max(lost.relative for lost in every),
        overflowed=sum(lost.overflowed for lost in every),
        underflowed=sum(lost.underflowed for lost in every),
        nans=sum(lost.nans for lost in every),
        worst=path,
    )


def _found(parts: Iterable[Part]) -> Iterator[tuple[str, int, _Lost]]:
    """Path, elements and losses of each tensor that the cast could harm."""
    with torch.no_grad():
        for part in parts:
            if isinstance(part, LazyPart) or part.new is None or part.wanted.kept is not None:
                continue
            old, new = _old_and_new(part)
            if loses(old.dtype, new.dtype):
                yield "" if isinstance(part, NamePart) else part.path, old.numel(), lost_between(old, new)


def _old_and_new(part: Part) -> tuple[Tensor, Tensor]:
    """The contents before and after, whether the part was committed (to move something) or not (to copy it)."""
    assert part.new is not None
    if isinstance(part, ParameterPart) and part.old is not None:
        return part.old.detach(), part.tensor.detach()
    return part.tensor.detach(), part.new.detach()


def lost_between(old: Tensor, new: Tensor) -> _Lost:
    """What became of the values of one tensor; the two may be on different devices."""
    on_host = old.device.type == new.device.type == "cpu"
    limit = HOST_PIECE if on_host else DEVICE_PIECE_BYTES // max(old.element_size(), new.element_size())
    rows = [_row(a, b.to(a.device)) for a, b in pieces_together((old, new), limit)]
    if not rows:
        return _Lost(0, 0.0, 0.0, 0, 0, 0)
    told = torch.stack(rows).to("cpu")
    sums, most = told.sum(0).tolist(), told.amax(0).tolist()
    return _Lost(round(sums[0]), most[1], most[2], round(sums[3]), round(sums[4]), round(sums[5]))


def _row(old: Tensor, new: Tensor) -> Tensor:
    """Six numbers of one piece, in the order of `_Lost`."""
    kind = new.dtype
    work = torch.float32 if old.dtype.is_floating_point and old.element_size() <= 4 else torch.float64
    if old.is_complex():
        old = torch.view_as_real(old.resolve_conj()).reshape(-1)
        new = torch.view_as_real(new.resolve_conj()).reshape(-1) if new.is_complex() else new
        work = old.dtype
    x, y = old.to(work), new.to(work)
    sound = x.isfinite()
    nothing = torch.zeros_like(sound)
    if kind.is_floating_point or kind.is_complex:
        overflowed, nans = sound & y.isinf(), y.isnan() & ~x.isnan()
    elif kind == torch.bool:
        overflowed = nans = nothing
    else:
        whole = torch.iinfo(kind)
        overflowed, nans = ~((x > whole.min - 1) & (x < whole.max + 1)), nothing
    both = sound & y.isfinite() & ~overflowed
    change = torch.where(both, (y - x).abs(), 0)
    relative = torch.where(both & (x != 0), change / x.abs(), 0)
    changed = (change != 0) | overflowed | nans
    counts = (changed, overflowed, both & (x != 0) & (y == 0), nans)
    first, *others = (count.sum().to(torch.float64) for count in counts)
    return torch.stack((first, change.amax().to(torch.float64), relative.amax().to(torch.float64), *others))
