"""Carries out `Describe`: what the values of a tensor and of its gradient are like, computed where they are, and its
first rows as text. Runs on the jobs thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor, count_text, seconds_text, shape_text
from devexplorer.core.models import device_id, dtype_name, gradient_of, is_uninitialised
from devexplorer.core.parameters.records import Describe, Values, ValuesDescribed
from devexplorer.core.records import Answer, Offer
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.parts import piece_elements, pieces
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.runs import Timing
from devexplorer.core.workspace.workspace import Workspace

ROWS, COLUMNS = 8, 8
"""How much is shown of the last two dimensions, at the first index of all others."""


def rows_text(tensor: Tensor) -> str:
    """Lines of values, columns aligned, and what was left out; a number alone for a tensor without dimensions."""
    if tensor.numel() == 0:
        return "(no elements)"
    table = tensor
    leading = max(tensor.dim() - 2, 0)
    for _ in range(leading):
        table = table[0]
    while table.dim() < 2:
        table = table.unsqueeze(0)
    rows, columns = table.shape
    part = table[:ROWS, :COLUMNS].to("cpu")
    if part.dtype.is_floating_point:
        part = part.to(torch.float64)
    cells = [[_cell(value) for value in row] for row in part.tolist()]
    width = max(len(cell) for row in cells for cell in row)
    more = "  …" if columns > COLUMNS else ""
    lines = ["  ".join(cell.rjust(width) for cell in row) + more for row in cells]
    if rows > ROWS:
        lines.append("…")
    if leading:
        lines.insert(0, f"at [{', '.join('0' * leading)}]:")
    return "\n".join(lines)


def value_text(value: float | None) -> str:
    """Six significant digits, without the noise of trailing zeros."""
    return "—" if value is None else f"{value:.6g}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.5g}" if math.isfinite(value) else str(value)


# Statistics of a tensor's values, computed on its device piece by piece. Any thread.
# Each piece gets a few reductions that PyTorch has vectorised, in float32 (float64 for float64 and whole numbers);
# pieces are combined in float64 on the host. A piece that holds NaN or Inf, or whose sum of squares says too little
# about its spread, is done again in float64.
# Source of the combination: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
# computing sample variances", 1979, in its form for many groups: M2 = sum of n_i (s_i^2 + (m_i - m)^2).

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
class TensorStatistics:
    """The statistics of one tensor."""

    moments: Moments
    counts: tuple[int, ...]
    """Finite values per bin of equal width between `low` and `high`."""
    low: float
    high: float
    norm: float
    sampled: int
    """Elements from which all but mean, NaN and Inf were computed; 0: from all."""


def figures(tensor: Tensor, bins: int, *, exact: bool, progress: ProgressMonitor) -> TensorStatistics:
    """Statistics of a dense real tensor that has values. Raises `Cancelled` between two pieces.

    Beside the tensor it takes the memory of a few pieces (`pieces.piece_elements`), or of the sample.
    """
    values = tensor.detach()
    with torch.no_grad():
        if exact or values.numel() <= WHOLE_LIMIT:
            moments = whole_moments(values, progress)
            counts, low, high = _histogram(values, moments, bins, progress)
            return TensorStatistics(moments, counts, low, high, _norm(moments, moments.count), 0)
        summed, sample = _sampled(values, progress)
        near = whole_moments(sample, progress)
        counts, low, high = _histogram(sample, near, bins, progress)
        zeros = round(near.zeros / sample.numel() * values.numel())
        moments = replace(
            near, count=summed.count, mean=summed.mean, zeros=zeros, nans=summed.nans, infinities=summed.infinities
        )
        return TensorStatistics(moments, counts, low, high, _norm(near, summed.count), sample.numel())


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


MOST_BINS = 4096


def describe(workspace: Workspace, command: Describe, progress: ProgressMonitor) -> CommandResult:
    """Answer with the values of a tensor, parameter or buffer; `name:path.grad` means a gradient."""
    if not 1 <= command.bins <= MOST_BINS:
        raise BadInput(f"{command.bins} bins are not possible; choose 1 to {MOST_BINS}")
    if command.quiet:
        try:
            result = describe(workspace, msgspec.structs.replace(command, quiet=False), progress)
        except DevExplorerError:
            return CommandResult(Answer(title="", words=""))
        return CommandResult(Answer(title="", words=""), events=result.events)
    target, tensor = _resolved(workspace, command.target)
    values = values_of(workspace, command.target, tensor, command.bins, exact=command.exact, progress=progress)
    offers = (Offer("Compute all from every element", Describe(target=command.target, bins=command.bins, exact=True)),)
    answer = Answer(
        title=f"The values of {command.target}",
        words=_words(values),
        code=_code(target, values, gradient=tensor is not target.thing, bins=command.bins),
        subject=target.name,
        offers=offers if values.sampled else (),
    )
    return CommandResult(answer, events=(ValuesDescribed(values=values),))


def _resolved(workspace: Workspace, title: str) -> tuple[Target, Tensor]:
    """The target and the tensor that is meant: the target's own, or its gradient."""
    name, _, path = title.partition(":")
    own, dot, last = path.rpartition(".")
    if path != "grad" and not (dot and last == "grad"):
        target = workspace.find(title)
        return target, target.tensor
    target = workspace.find(f"{name}:{own}" if own else name)
    gradient = None if is_uninitialised(target.tensor) else gradient_of(target.tensor)
    if gradient is None:
        raise BadInput(f"'{target.title}' has no gradient; a backward gives it one")
    return target, gradient


def values_of(
    workspace: Workspace, title: str, tensor: Tensor, bins: int, *, exact: bool, progress: ProgressMonitor
) -> Values:
    """What the values are like, and those of the gradient; `BadInput` where there are none. Takes the memory of a few
    pieces."""
    refuse_without_values(title, tensor)
    timing = Timing(workspace.registry, [device_id(tensor.device)])
    if tensor.dtype == torch.bool or tensor.is_complex():
        values = _counted(title, tensor, progress)
    elif tensor.numel() == 0:
        values = Values(**_known(title, tensor))
    else:
        found = figures(tensor, bins, exact=exact, progress=progress)
        moments = found.moments
        values = Values(
            **_known(title, tensor),
            zeros=moments.zeros,
            nans=moments.nans,
            infinities=moments.infinities,
            counts=found.counts,
            low=found.low,
            high=found.high,
            sampled=found.sampled,
        )
        if moments.count:
            values = msgspec.structs.replace(
                values,
                mean=_finite(moments.mean),
                std=_finite(moments.deviation),
                minimum=moments.minimum,
                maximum=moments.maximum,
                norm=_finite(found.norm),
            )
    seconds, _ = timing.stop()
    gradient = gradient_of(tensor)
    below = (
        None
        if gradient is None
        else values_of(workspace, f"{title}.grad", gradient, bins, exact=exact, progress=progress)
    )
    return msgspec.structs.replace(
        values, first=rows_text(tensor.detach()), seconds=seconds, simulated=timing.simulated, gradient=below
    )


def refuse_without_values(title: str, tensor: Tensor) -> None:
    """Raise `BadInput`, with the reason, for tensors whose values cannot be looked at."""
    if is_uninitialised(tensor):
        raise BadInput(f"'{title}' has no values before its first forward: it is lazy and has no shape yet")
    if tensor.is_quantized:
        raise BadInput(
            f"'{title}' is quantised: its numbers mean values only with scale and zero point; dequantize() makes plain"
            " ones"
        )
    if tensor.is_nested:
        raise BadInput(f"'{title}' is nested: rows of different lengths; to_padded_tensor() makes a plain tensor")
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").strip("_")
        raise BadInput(f"'{title}' is {kind}: only some elements are stored; look at to_dense(), or at its values()")
    if tensor.is_meta or getattr(getattr(tensor, "_inner", None), "is_meta", False):
        raise BadInput(f"'{title}' has no values: it only has a shape")


def _finite(number: float) -> float | None:
    """None for what is above the largest number: the squares of float64 values can be."""
    return number if math.isfinite(number) else None


def _known(title: str, tensor: Tensor) -> dict[str, Any]:
    return {
        "target": title,
        "shape": tuple(tensor.shape),
        "dtype": dtype_name(tensor.dtype),
        "device": device_id(tensor.device),
        "elements": tensor.numel(),
        "simulated": False,
    }


def _counted(title: str, tensor: Tensor, progress: ProgressMonitor) -> Values:
    """bool and complex values have no order: zeros, NaN, Inf and the norm."""
    zeros = nans = infinities = 0
    squares: list[float] = []
    with torch.no_grad():
        for piece in pieces(tensor.detach(), piece_elements(tensor)):
            progress.stop_if_cancelled("nothing has changed")
            zeros += piece.numel() - int(torch.count_nonzero(piece))
            if piece.is_complex():
                nan = piece.isnan()
                infinite = piece.isinf() & ~nan
                nans, infinities = nans + int(nan.sum()), infinities + int(infinite.sum())
                sound = torch.view_as_real(piece.resolve_conj())[~(nan | infinite)].to(torch.float64)
                squares.append(float(torch.dot(sound.reshape(-1), sound.reshape(-1))))
    norm = math.sqrt(math.fsum(squares)) if tensor.is_complex() else None
    return Values(**_known(title, tensor), zeros=zeros, nans=nans, infinities=infinities, norm=norm)


# --- messages


def _words(values: Values) -> str:
    if not values.elements:
        return "It has no elements."
    where = f"{shape_text(values.shape)} {values.dtype} on {values.device}"
    sentences = [
        f"{where}, computed on its device in {seconds_text(values.seconds, values.simulated)}: only results and the"
        " first rows were copied."
    ]
    if values.dtype == "bool":
        sentences.append(f"{count_text(values.elements - values.zeros, 'element')} of {values.elements:,} are True.")
    elif values.dtype.startswith("complex"):
        sentences.append("Complex numbers have no order, so there is no minimum, no maximum and no histogram.")
    if values.sampled:
        sentences.append(
            f"Mean, NaN and Inf come from every element; everything else from a sample of {values.sampled:,} elements,"
            " evenly spread, so that it takes one pass over the memory: the true minimum and maximum may lie further"
            " out."
        )
    return " ".join(sentences)


def _code(target: Target, values: Values, *, gradient: bool, bins: int) -> str:
    thing = f"{target.code()}.grad" if gradient else target.code()
    lines = ["import torch", "", f"_values = {thing}.detach()"]
    if values.dtype == "bool" or values.dtype.startswith("complex"):
        lines.append("print((_values == 0).sum().item(), _values.isnan().sum().item(), _values.isinf().sum().item())")
    else:
        lines += [
            "print(_values.isnan().sum().item(), _values.isinf().sum().item(), (_values == 0).sum().item())",
            "_finite = _values[_values.isfinite()].double()",
            "if _finite.numel():",
            (
                "    print(_finite.mean().item(), _finite.std(correction=0).item(), _finite.min().item(),"
                " _finite.max().item())"
            ),
            f"    print(_finite.norm().item(), torch.histc(_finite, {bins}).tolist())",
        ]
    return "\n".join(lines)
