"""Statistics of a tensor's values, computed on its device piece by piece. Any thread.

Each piece gets a few reductions that PyTorch has vectorised, in float32 (float64 for float64 and whole numbers); pieces
are combined in float64 on the host. A piece that holds NaN or Inf, or whose sum of squares says too little about its
spread, is done again in float64.

Source of the combination: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979, in its form for many groups: M2 = sum of n_i (s_i^2 + (m_i - m)^2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from devexplorer.core.base import ProgressMonitor
from devexplorer.core.workspace.pieces import piece_elements, pieces

WHOLE_LIMIT = 1 << 24
"""Tensors with more elements are described from a sample, unless everything is asked for: all of it takes several
passes' time."""
SAMPLE_ELEMENTS = 1 << 18
RUN = 256
"""Elements that a sample takes in one go."""
SUM_ELEMENTS = 1 << 26
"""Elements that are summed in one go where nothing else is done with them: a few calls, and still a place to stop."""
_SPREAD = 1e-2
"""Where the variance is a smaller part of the mean square than this, their difference in float32 is too coarse."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What is known about some values; mean, deviation (of the population), root mean square, minimum and maximum of
    the finite ones."""

    count: int
    """Finite values."""
    mean: float = 0.0
    deviation: float = 0.0
    root_mean_square: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    zeros: int = 0
    nans: int = 0
    infinities: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics of one tensor."""

    moments: Moments
    counts: tuple[int, ...]
    """Finite values per bin of equal width between `low` and `high`."""
    low: float
    high: float
    norm: float
    sampled: int
    """Elements from which all but mean, NaN and Inf were computed; 0: from all."""


def figures(tensor: Tensor, bins: int, *, exact: bool, progress: ProgressMonitor) -> Figures:
    """Statistics of a dense real tensor that has values. Raises `Cancelled` between two pieces.

    Beside the tensor it takes the memory of a few pieces (`pieces.piece_elements`), or of the sample.
    """
    values = tensor.detach()
    with torch.no_grad():
        if exact or values.numel() <= WHOLE_LIMIT:
            moments = whole_moments(values, progress)
            counts, low, high = _histogram(values, moments, bins, progress)
            return Figures(moments, counts, low, high, _norm(moments, moments.count), 0)
        summed, sample = _sampled(values, progress)
        near = whole_moments(sample, progress)
        counts, low, high = _histogram(sample, near, bins, progress)
        zeros = round(near.zeros / sample.numel() * values.numel())
        moments = replace(
            near, count=summed.count, mean=summed.mean, zeros=zeros, nans=summed.nans, infinities=summed.infinities
        )
        return Figures(moments, counts, low, high, _norm(near, summed.count), sample.numel())


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of this one are computed: every one of them has its own value there, but for large
    int64."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize <= 4 else torch.float64


def whole_moments(values: Tensor, progress: ProgressMonitor) -> Moments:
    """Moments from every element."""
    rows: list[Tensor] = []
    limit = piece_elements(values)
    work = working_dtype(values.dtype)
    room = _Room(values, limit)
    nonzero = _Room(values, limit)
    for piece in _watched(values, limit, progress):
        x = room.converted(piece)
        differs = torch.ne(x, 0, out=nonzero.of(x))  # 1 and 0 in the dtype itself: vectorised, as a bool is not
        rows.append(torch.stack((x.sum(), torch.dot(x, x), x.amin(), x.amax(), differs.sum())))
    if not rows:
        return Moments(0)
    sums = torch.stack(rows).to("cpu", torch.float64).tolist()
    sizes = (piece.numel() for piece in pieces(values, limit))
    parts = [_from_sums(n, row, work) for n, row in zip(sizes, sums, strict=True)]
    for index, piece in enumerate(pieces(values, limit)):
        if parts[index] is None:
            progress.stop_if_cancelled("nothing has changed")
            parts[index] = _careful(piece)
    return combined([part for part in parts if part is not None])


class _Room:
    """Memory of one piece that is used again and again: new memory for each piece would cost more than all that is
    computed."""

    def __init__(self, values: Tensor, limit: int) -> None:
        self._values, self._limit = values, limit
        self._work = working_dtype(values.dtype)
        self._buffer: Tensor | None = None

    def of(self, piece: Tensor) -> Tensor:
        """Room for as many elements in the working dtype."""
        if self._buffer is None:
            self._buffer = torch.empty(min(self._limit, self._values.numel()), dtype=self._work, device=piece.device)
        return self._buffer[: piece.numel()]

    def converted(self, piece: Tensor) -> Tensor:
        """The piece in the working dtype; itself where it has that already."""
        return piece if piece.dtype is self._work else self.of(piece).copy_(piece)


def _from_sums(n: int, row: Sequence[float], work: torch.dtype) -> Moments | None:
    """Moments of a piece without NaN and Inf; None when its sums do not tell."""
    total, squares, low, high, nonzero = row
    if low == high and math.isfinite(low):
        return Moments(n, low, 0.0, abs(low), low, high, n if low == 0 else 0)
    smallest = 1e-25 if work is torch.float32 else 1e-250  # of the squares of small values little is left
    if not math.isfinite(total) or not math.isfinite(squares) or squares < smallest:
        return None
    mean, mean_square = total / n, squares / n
    variance = mean_square - mean * mean
    if variance < _SPREAD * mean_square:
        return None
    return Moments(n, mean, math.sqrt(variance), math.sqrt(mean_square), low, high, n - round(nonzero))


def _careful(piece: Tensor) -> Moments:
    """The same in float64, values divided by the largest first so that no square overflows; NaN and Inf are counted and
    left out."""
    x = piece.to(torch.float64)
    nans, infinities = int(x.isnan().sum()), int(x.isinf().sum())
    if nans or infinities:
        x = x[x.isfinite()]
    if not x.numel():
        return Moments(0, nans=nans, infinities=infinities)
    low, high = float(x.amin()), float(x.amax())
    zeros = x.numel() - int(torch.count_nonzero(x))
    scale = max(abs(low), abs(high)) or 1.0
    x = x / scale
    mean = float(x.mean())
    deviation, square = float((x - mean).square_().mean()) ** 0.5, float(torch.dot(x, x)) / x.numel()
    return Moments(
        x.numel(), mean * scale, deviation * scale, math.sqrt(square) * scale, low, high, zeros, nans, infinities
    )


def combined(parts: Sequence[Moments]) -> Moments:
    """Moments of everything from those of its parts."""
    nans, infinities = sum(part.nans for part in parts), sum(part.infinities for part in parts)
    full = [part for part in parts if part.count]
    n = sum(part.count for part in full)
    if not n:
        return Moments(0, nans=nans, infinities=infinities)
    low, high = min(part.minimum for part in full), max(part.maximum for part in full)
    scale = max(abs(low), abs(high)) or 1.0
    mean = math.fsum(part.count * (part.mean / scale) for part in full) / n
    spread = (
        math.fsum(part.count * ((part.deviation / scale) ** 2 + (part.mean / scale - mean) ** 2) for part in full) / n
    )
    square = math.fsum(part.count * (part.root_mean_square / scale) ** 2 for part in full) / n
    zeros = sum(part.zeros for part in full)
    return Moments(
        n, mean * scale, math.sqrt(spread) * scale, math.sqrt(square) * scale, low, high, zeros, nans, infinities
    )


def _sampled(values: Tensor, progress: ProgressMonitor) -> tuple[Moments, Tensor]:
    """One pass that sums everything, which finds every NaN and Inf too, and a sample of `SAMPLE_ELEMENTS`, evenly
    spread in short runs."""
    limit = SUM_ELEMENTS if values.dtype is working_dtype(values.dtype) else piece_elements(values)
    every = max(RUN, values.numel() * RUN // SAMPLE_ELEMENTS)
    taken: list[Tensor] = []
    for piece in pieces(values, limit):
        n = piece.numel() // every * every
        taken.append(piece[:n].view(-1, every)[:, :RUN].reshape(-1) if n else piece[:RUN])

    def closer(piece: Tensor) -> Moments:
        """Something odd is in it: looked for in small pieces, so that most stay quick."""
        return _summed(piece, piece_elements(piece), _careful, progress)

    return _summed(values, limit, closer, progress), torch.cat(taken)


def _summed(values: Tensor, limit: int, odd: Callable[[Tensor], Moments], progress: ProgressMonitor) -> Moments:
    """The mean, NaN and Inf, from sums of pieces; `odd` describes a piece whose sum is not finite."""
    room = _Room(values, limit)
    sums = [room.converted(piece).sum() for piece in _watched(values, limit, progress)]
    parts = []
    for piece, total in zip(pieces(values, limit), torch.stack(sums).to("cpu", torch.float64).tolist(), strict=True):
        progress.stop_if_cancelled("nothing has changed")
        parts.append(_mean_alone(piece.numel(), total) if math.isfinite(total) else odd(piece))
    return combined(parts)


def _mean_alone(n: int, total: float) -> Moments:
    mean = total / n
    return Moments(n, mean, minimum=min(mean, 0.0), maximum=max(mean, 0.0))


def _histogram(
    values: Tensor, moments: Moments, bins: int, progress: ProgressMonitor
) -> tuple[tuple[int, ...], float, float]:
    """Finite values per bin between minimum and maximum; all values alike: in the middle bin of a width of one."""
    low, high = moments.minimum, moments.maximum
    if not moments.count:
        return (), 0.0, 0.0
    if low == high:
        return tuple(moments.count if bin == bins // 2 else 0 for bin in range(bins)), low - 0.5, high + 0.5
    work = working_dtype(values.dtype)
    if work is torch.float32 and not _told_apart(low, high, bins):
        work = torch.float64
    factor = 1.0 if math.isfinite(high - low) else 0.25
    room = _Room(values, piece_elements(values))
    parts = []
    for piece in _watched(values, piece_elements(values), progress):
        x = room.converted(piece).to(work)
        parts.append(torch.histc(x if factor == 1 else x * factor, bins, low * factor, high * factor))
    counts = torch.stack(parts).to("cpu", torch.float64).sum(0)
    return tuple(int(count) for count in counts), low, high


def _told_apart(low: float, high: float, bins: int) -> bool:
    """Whether float32 can compute in which bin a value is: the width neither overflows nor drowns in the size of the
    values."""
    width = high - low
    return 1e-30 < width < 1e38 and width / bins > 1e-4 * max(abs(low), abs(high))


def _norm(moments: Moments, count: int) -> float:
    return moments.root_mean_square * math.sqrt(count)


def _watched(values: Tensor, limit: int, progress: ProgressMonitor) -> Iterator[Tensor]:
    done, total = 0, max(values.numel(), 1)
    for piece in pieces(values, limit):
        progress.stop_if_cancelled("nothing has changed")
        yield piece
        done += piece.numel()
        progress.report(min(done / total, 1.0), "values")
