"""Measures what a cast did to the values: change, overflow, underflow, NaN; in pieces, on the originals' device. Jobs
thread.

A piece is part of a large tensor, or many small tensors in a row: each operation costs microseconds, however few the
elements are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from devexplorer.core.models import loses
from devexplorer.core.records import CastError
from devexplorer.core.workspace.parts import LazyPart, NamePart, ParameterPart, Part
from devexplorer.core.workspace.pieces import DEVICE_PIECE_BYTES, pieces_together

HOST_PIECE = 1 << 15
"""Elements of a piece on the CPU: a dozen temporaries of this size stay in the cache, and the allocator keeps them at
hand."""
SMALL = 1 << 12
"""Elements up to which tensors are looked at together: here the operations cost more than the work that they do."""


class _Error(NamedTuple):
    changed: int
    overflowed: int
    underflowed: int
    nans: int
    largest: float
    relative: float


class _Cast(NamedTuple):
    """A tensor before and after; the two may be on different devices."""

    path: str
    old: Tensor
    new: Tensor


def measure_cast_error(parts: Iterable[Part]) -> CastError | None:
    """The error of the casts among these parts, once the move is over; None when none of them can lose anything."""
    try:
        with torch.no_grad():
            errors = list(_errors(_casts(parts)))
    # no memory, or an operation or a dtype that the device lacks; the move itself succeeded
    except (RuntimeError, TypeError, MemoryError):
        return None
    if not errors:
        return None
    worst, _ = max(errors, key=lambda item: (item[1].overflowed + item[1].nans, item[1].relative))
    changed, overflowed, underflowed, nans, largest, relative = zip(*(error for _, error in errors), strict=True)
    return CastError(
        elements=sum(cast.old.numel() for cast, _ in errors),
        changed=sum(changed),
        largest_change=max(largest),
        largest_relative_change=max(relative),
        overflowed=sum(overflowed),
        underflowed=sum(underflowed),
        nans=sum(nans),
        worst=worst.path,
    )


def _casts(parts: Iterable[Part]) -> Iterator[_Cast]:
    """The casts that can lose something."""
    for part in parts:
        if isinstance(part, LazyPart) or part.new is None or part.wanted.kept is not None:
            continue
        # The contents before and after, whether the part was committed (to move something) or not (to copy it).
        old, new = part.tensor, part.new
        if isinstance(part, ParameterPart) and part.old is not None:
            old, new = part.old, part.tensor
        if loses(old.dtype, new.dtype):
            yield _Cast("" if isinstance(part, NamePart) else part.path, old, new)


def _errors(casts: Iterable[_Cast]) -> Iterator[tuple[_Cast, _Error]]:
    """The error of each cast: large tensors first, then the small ones, many at once."""
    small: dict[tuple[torch.device, torch.dtype, torch.device, torch.dtype], list[_Cast]] = {}
    for cast in casts:
        old, new = cast.old, cast.new
        if old.numel() > SMALL or old.is_complex():
            yield cast, error_between(old, new)
        else:
            small.setdefault((old.device, old.dtype, new.device, new.dtype), []).append(cast)
    for alike in small.values():
        for run in _runs(alike):
            yield from zip(run, errors_between([cast.old for cast in run], [cast.new for cast in run]), strict=True)


def _runs(casts: Sequence[_Cast]) -> Iterator[list[_Cast]]:
    """Cut into runs that make up a piece together."""
    limit = _limit(casts[0].old, casts[0].new)
    run: list[_Cast] = []
    elements = 0
    for cast in casts:
        elements += cast.old.numel()
        if elements > limit and run:
            yield run
            run, elements = [], cast.old.numel()
        run.append(cast)
    yield run


def _limit(old: Tensor, new: Tensor) -> int:
    """Elements of a piece."""
    on_host = old.device.type == new.device.type == "cpu"
    return HOST_PIECE if on_host else DEVICE_PIECE_BYTES // max(old.element_size(), new.element_size())


def error_between(old: Tensor, new: Tensor) -> _Error:
    """The error of one tensor; the two may be on different devices."""
    counts: list[Tensor] = []
    changes: list[Tensor] = []
    for a, b in pieces_together((old, new), _limit(old, new)):
        flags, differences = _by_element(a, b.to(a.device))
        counts.append(torch.stack([flag.sum() for flag in flags]))
        changes.append(torch.stack([difference.amax() for difference in differences]))
    if not counts:
        return _Error(0, 0, 0, 0, 0.0, 0.0)
    return _Error(*torch.stack(counts).sum(0).tolist(), *torch.stack(changes).amax(0).tolist())


def errors_between(olds: Sequence[Tensor], news: Sequence[Tensor]) -> list[_Error]:
    """The same for several tensors, at about the cost of one: real ones; all old ones share device and dtype, as do all
    new ones."""
    if len(olds) == 1:
        return [error_between(olds[0], news[0])]
    old = torch.cat([tensor.flatten() for tensor in olds])
    flags, changes = _by_element(old, torch.cat([tensor.flatten() for tensor in news]).to(old.device))
    owner = torch.repeat_interleave(torch.tensor([tensor.numel() for tensor in olds])).to(old.device)
    count, none = len(olds), torch.zeros(len(olds), dtype=torch.int64, device=old.device)
    sums = [none.index_add(0, owner, flag.to(torch.int64)).tolist() for flag in flags]
    most = [change.new_zeros(count).scatter_reduce(0, owner, change, "amax").tolist() for change in changes]
    return [_Error(*figures) for figures in zip(*sums, *most, strict=True)]


def _by_element(old: Tensor, new: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What became of each element, in the order of `_Error`: whether it changed, overflowed, underflowed, became NaN;
    and by how much it changed, and by which share of itself."""
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
    return ((changed, overflowed, both & (x != 0) & (y == 0), nans), (change, relative))
