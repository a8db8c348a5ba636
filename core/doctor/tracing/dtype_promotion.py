"""Operands of several dtypes: a result that one of them makes wider than the activations it is computed from, and a
call that takes one dtype only and fails. The thread that is watched.

A width that was asked for is no finding: a cast, `dtype=`, autocast, a loss; nor a sum with another activation that is
wide already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from devexplorer.core.doctor.static.model_context import listed
from devexplorer.core.doctor.tracing.call import Call, Repair, WatchedRun
from devexplorer.core.doctor.tracing.mixed_devices import origin_of
from devexplorer.core.doctor.tracing.sources import Origin
from devexplorer.core.models import dtype_name

WIDE = (torch.float64, torch.complex128)
"""What MPS has not."""
_MADE_BY_NOBODY = ("output", "result", "copy", "gradient", "unknown")
"""Origins of operands that are activations themselves."""


def dtype_promotion(call: Call, result: Any) -> None:
    """Find a result that an operand made wider."""
    if (
        not isinstance(result, Tensor)
        or not result.dtype.is_floating_point
        or call.kind.casts
        or call.kind.loss
        or call.kind.factory
    ):
        return
    width = result.dtype.itemsize
    floating = [item for item in call.operands if item.dtype.is_floating_point and item.dim() > 0]
    if not any(item.dtype.itemsize < width for item in floating) or call.kwargs.get("dtype") is not None:
        return
    narrow = max((item for item in floating if item.dtype.itemsize < width), key=Tensor.numel)
    wide = next((item for item in floating if item.dtype is result.dtype), None)
    if wide is None or result.numel() < narrow.numel() or any(item is result for item in floating) or _autocast(result):
        return
    known = call.run.sources.known(wide)
    if (known is not None and known.cast) or wide.numel() > narrow.numel():
        return
    origin = origin_of(call, wide)
    if wide.numel() == narrow.numel() and origin.kind in _MADE_BY_NOBODY:
        return
    run = call.run
    if run.collector.again("dtype-promotion", call.where, run.path):
        return
    small, large = (dtype_name(item.dtype) for item in (narrow, result))
    run.collector.add(
        "dtype-promotion",
        f"{call.kind.sentence} gives {large}, although {run.sources.of(narrow).description(run.path)} is {small}: "
        f"{origin.description(run.path)} is {large}.",
        "Give that operand the dtype of the other one: "
        + ("dtype=x.dtype where it is made." if origin.kind == "factory" else "y.to(x.dtype)."),
        place=call.where,
        reached=call.place,
        severity="note" if call.by_torch else None,
        bytes=result.numel() * (width - narrow.dtype.itemsize),
    )


def float64_begins(call: Call, result: Any) -> None:
    """Remember the line at which forward makes float64 on the device, out of what is narrower or not there."""
    run, place = call.run, call.where
    if run.wide or place is None or place.library or not isinstance(result, Tensor):
        return
    begins = result.dtype in WIDE and result.device == run.device and result.device.type != "cpu"
    if begins and not any(item.dtype in WIDE and item.device == run.device for item in call.operands):
        run.doubles.setdefault(place, (run.path, call.kind.sentence))


def note_doubles(run: WatchedRun) -> None:
    """A note for each of those lines, when the run is over: a warning of the same rule at the same line says more."""
    for place, (path, what) in run.doubles.items():
        if run.collector.has("dtype-promotion", place):
            continue
        run.collector.add(
            "dtype-promotion",
            f"{what} gives float64 in forward, which MPS does not have: on a Mac this line raises.",
            "Compute in float32 where it need not be as exact, or on the CPU and move the result.",
            path=path,
            place=place,
            severity="note",
        )
    run.doubles.clear()


def _autocast(tensor: Tensor) -> bool:
    kind = tensor.device.type
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:  # a device that autocast does not know
        return False


def mixed_dtypes(call: Call) -> Repair | None:
    """The call with all of its operands in one dtype, that of a parameter if there is one, if that is why it failed."""
    given = [item for item in call.operands if item.dim() > 0 and not item.dtype.is_complex]
    wanted = next((item.dtype for item in given if isinstance(item, nn.Parameter)), None)
    if wanted is None:
        wanted = next((item.dtype for item in given if item.is_floating_point()), None)
    others = [item for item in given if item.dtype != wanted]
    if wanted is None or not others:
        return None
    cast = {id(tensor): tensor.to(wanted) for tensor in others}
    args, kwargs = tree_map_only(Tensor, lambda tensor: cast.get(id(tensor), tensor), (call.args, call.kwargs))

    def note() -> None:
        origins = {id(item): origin_of(call, item) for item in given}
        first = {item.dtype: item for item in reversed(given)}
        parts = [
            f"{origins[id(item)].description(call.run.path)} is {dtype_name(item.dtype)}"
            for item in given
            if any(item is one for one in first.values())
        ]
        call.run.collector.add(
            "mixed-dtypes",
            f"{call.kind.sentence} gets operands of several dtypes: {listed(parts, len(parts))}.",
            _one_dtype(origins[id(others[0])], dtype_name(wanted), dtype_name(others[0].dtype)),
            place=call.place,
            operands=[path for origin in origins.values() for path in origin.operands],
        )

    return Repair(args, kwargs, lambda func: func(*args, **kwargs), note)


def _one_dtype(origin: Origin, wanted: str, has: str) -> str:
    if origin.kind == "input":
        other = (
            f", or the model that of the input: model.to(torch.{has})" if has.startswith(("float", "bfloat")) else ""
        )
        return f"Give the input the model's dtype: x = x.to(torch.{wanted}){other}."
    if origin.kind in ("parameter", "buffer"):
        return f"Convert all of the model to one dtype: model.to(torch.{wanted})."
    if origin.kind == "factory":
        return f"Create it in the dtype of the other operand: {origin.op}(..., dtype=torch.{wanted})."
    return f"Convert it before the call: .to(torch.{wanted})."
