"""Carries out `Describe`: what the values of a tensor and of its gradient are like, computed where they are. Runs on
the jobs thread."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import torch
from torch import Tensor

from devexplorer.core.base import BadInput, ProgressMonitor, count_text, seconds_text, shape_text
from devexplorer.core.models import device_id, dtype_name, gradient_of, is_uninitialised
from devexplorer.core.records import Answer, Describe, Offer, Values, ValuesDescribed
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.parameters.rows_text import rows_text
from devexplorer.core.workspace.parameters.statistics import figures
from devexplorer.core.workspace.pieces import piece_elements, pieces
from devexplorer.core.workspace.targets import Target
from devexplorer.core.workspace.timing import Timing
from devexplorer.core.workspace.workspace import Workspace

MOST_BINS = 4096


def describe(workspace: Workspace, command: Describe, progress: ProgressMonitor) -> CommandResult:
    """Answer with the values of a tensor, parameter or buffer; `name:path.grad` means a gradient."""
    if not 1 <= command.bins <= MOST_BINS:
        raise BadInput(f"{command.bins} bins are not possible; choose 1 to {MOST_BINS}")
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
