"""Notes what a call has made, so that it can be said later where an operand comes from. The thread that is watched."""

from __future__ import annotations

from dataclasses import replace
from types import FrameType
from typing import Any

from torch import Tensor, nn

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.sources import Origin
from devexplorer.core.doctor.tracing.unseen import unseen
from devexplorer.core.isolation.source_location import kind_of

MOST = 64
"""Results of one call that are noted."""
_PASSED_ON = ("factory", "attribute", "hidden", "input", "copy", "variable", "held")
"""Kinds of origins that are to blame for what is computed from them on the wrong device."""


def note_results(call: Call, result: Any) -> None:
    """Remember every new tensor among the results."""
    if isinstance(result, Tensor):
        _note(call, result)
    elif isinstance(result, (tuple, list)):
        for item in result[:MOST]:
            if isinstance(item, Tensor):
                _note(call, item)


def _note(call: Call, tensor: Tensor) -> None:
    given = call.operands
    if any(tensor is item for item in given):
        return
    sources, kind = call.run.sources, call.kind
    if kind.factory and not (kind.name == "normal" and given):  # with a tensor as its mean it draws where that is
        layer = _layer(call)
        named = call.kwargs.get("device") is not None
        sources.note(
            tensor,
            Origin("factory", path=call.run.path, op=layer or kind.description, place=call.place, named_device=named),
        )
        return
    cast = _cast(call, tensor, given)
    if tensor.device == call.run.device:
        sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, cast=cast))
        return
    beside = next((item for item in given if item.device == tensor.device), None)
    if beside is None and given and kind.copies:
        sources.note(tensor, Origin("copy", path=call.run.path, op=kind.description, place=call.place, cast=cast))
        return
    known = None if beside is None else sources.known(beside) or unseen(call, beside)
    if known is not None and known.kind in _PASSED_ON:
        sources.note(tensor, replace(sources.placed(known, beside), derived=True, cast=cast))
        return
    sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, place=call.place, cast=cast))


def _layer(call: Call) -> str | None:
    """`nn.LayerNorm` where it is torch's code for a layer that makes the tensor, below a line of the user's that makes
    the layer."""
    frame: FrameType | None = call.frame
    layer: str | None = None
    while frame is not None and kind_of(frame.f_code.co_filename) == "skipped" and frame is not call.run.until:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            layer = f"nn.{type(frame.f_locals['self']).__name__}"
        frame = frame.f_back
    return layer


def _cast(call: Call, tensor: Tensor, given: list[Tensor]) -> bool:
    """Whether this dtype was asked for, here or where an operand was made."""
    dtype = tensor.dtype
    if not dtype.is_floating_point:
        return False
    if given and (call.kwargs.get("dtype") is not None or (call.kind.casts and dtype is not given[0].dtype)):
        return True
    for item in given:
        if item.dtype is dtype:
            known = call.run.sources.known(item)
            if known is not None and known.cast:
                return True
    return False
