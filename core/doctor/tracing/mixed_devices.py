"""A call whose operands are on several devices, and that fails for it, or of several dtypes: which is where, where each
comes from, and how that is put right. The thread that is watched.

The operand that is not where the model is gets the blame.

A width that was asked for is no finding: a cast, `dtype=`, autocast, a loss; nor a sum with another activation that is
wide already.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from devexplorer.core.base import Message
from devexplorer.core.doctor.static.model_context import listed
from devexplorer.core.doctor.tracing.call import Call, Repair, WatchedRun, operands, unseen
from devexplorer.core.doctor.tracing.sources import Origin, line
from devexplorer.core.isolation.source_location import NOWHERE, frames
from devexplorer.core.models import device_id, dtype_name
from devexplorer.core.records import Finding

RULE = "mixed-devices"
MOST_NAMED = 4
"""Operands that a message names."""


def exchanged(call: Call, made: dict[int, Tensor], note: Callable[[], None]) -> Repair:
    """The call with other tensors in place of some, by their `id()`."""
    args, kwargs = tree_map_only(Tensor, lambda tensor: made.get(id(tensor), tensor), (call.args, call.kwargs))
    return Repair(args, kwargs, note)


def mixed_devices(call: Call) -> Repair | None:
    """The call with all of its operands on one device, if that is why it failed."""
    given = _counted(call, numbers=False)
    if len({tensor.device for tensor in given}) < 2:
        given = _counted(call, numbers=True)
    devices = {tensor.device for tensor in given}
    if len(devices) < 2 or any(device.type == "meta" for device in devices):
        return None
    home = call.run.device
    if home not in devices:
        home = next(filter(lambda tensor: isinstance(tensor, nn.Parameter), given), given[0]).device
    target = home
    rebound = call.kind.name.startswith("__i")  # `done |= x`: the name gets what the operator returns
    if call.kind.writes and not rebound and isinstance(call.first, Tensor):
        target = call.first.device
    brought = {id(tensor): tensor.to(target) for tensor in call.operands if tensor.device != target}
    strays = [tensor for tensor in given if tensor.device != home]
    return exchanged(call, brought, lambda: note_strays(call, strays))


def note_strays(call: Call, strays: list[Tensor]) -> None:
    """Blame the operands that are on the wrong device; those that forward made there, at the line that made them."""
    run = call.run
    origins = {id(tensor): origin_of(call, tensor) for tensor in call.operands}
    parts: dict[object, str] = {}
    for item in call.operands:
        origin = origins[id(item)]
        parts.setdefault((origin, item.device), f"{origin.description(run.path)} is on {device_id(item.device)}")
    said = listed(list(parts.values())[:MOST_NAMED], MOST_NAMED)
    message = Message(f"{call.kind.sentence} gets operands from several devices: {said}.")
    location = call.place or NOWHERE
    rest = []
    for stray in strays:
        origin = origins[id(stray)]
        fix = Message(_fix(origin, stray, call))
        failed = Finding(rule=RULE, path=run.path, file=location.file, line=location.line, message=message, fix=fix)
        left = run.sources.left_in_replica(origin) if run.in_replica else None
        if left is not None:
            _left_in_replica(call, left, stray, failed)
        elif origin.place is not None and run.collector.has("hard-coded-device", origin.place):
            run.collector.made_fail("hard-coded-device", origin.place, failed)
        elif origin.kind == "factory" and origin.place is not None and not origin.named_device:
            _default_device(call, stray, origin, failed)
        else:
            rest.append(failed)
    if rest:
        blamed = set[str]().union(*(origin.operands for origin in origins.values()))
        run.collector.add(RULE, str(message), str(rest[0].fix), place=call.place, operands=blamed)


def _counted(call: Call, *, numbers: bool) -> list[Tensor]:
    """The operands that have to be on one device. From the CPU an index may join any, and a number those that take
    one: with `numbers` it is one of those that do not."""
    numbers = numbers or all(item.dim() == 0 for item in call.operands)
    free: set[int] = set()
    if call.kind.name in ("__getitem__", "__setitem__"):
        free.update(map(id, operands(call.args[1:2], {})))
    found = []
    for item in call.operands:
        if item.device.type != "cpu" or (id(item) not in free and (numbers or item.dim() > 0)):
            found.append(item)
    return found


def origin_of(call: Call, tensor: Tensor) -> Origin:
    """Where an operand comes from, as far as the calls and else the line itself say."""
    origin = call.run.sources.of(tensor)
    if origin.kind in ("unknown", "gradient", "earlier"):
        return unseen(call, tensor) or origin
    return origin


def _default_device(call: Call, stray: Tensor, origin: Origin, failed: Finding) -> None:
    run = call.run
    where = f"at {line(call.place)}" if call.place is not None else "later"
    fix, made = made_there(origin), f"{origin.op} makes its tensor"
    if origin.of_module:
        made = f"{origin.op} is made in forward, with tensors"
        if isinstance(stray, nn.Parameter):
            made = f"{origin.op} is made in forward, with parameters"
        elif not _is_buffer(call, stray):
            fix = f"Register its tensors as buffers in the class: only those follow .to(). {fix}"
    run.collector.add(
        "default-device",
        f"{made} on {device_id(stray.device)}, because it names no device, and {call.kind.description} {where} fails: "
        f"the rest is on {device_id(run.device)}.",
        fix,
        path=origin.path,
        place=origin.place,
        consequence=failed,
    )


def _is_buffer(call: Call, tensor: Tensor) -> bool:
    """Whether it is a buffer of a module that is at work."""
    for frame in frames(call.frame, call.run.until):
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and any(tensor is buffer for buffer in module._buffers.values()):
            return True
    return False


def _left_in_replica(call: Call, left: Origin, stray: Tensor, failed: Finding) -> None:
    run = call.run
    run.collector.add(
        "stale-alias",
        f"{left.attribute(run.path)} is a plain container of what is registered as well. A replica of nn.DataParallel"
        f" is made of copies of what is registered; this container still holds the originals, on"
        f" {device_id(stray.device)}, so that {call.kind.description} at {line(call.place)} fails.",
        f"Hold them in an nn.ModuleList or nn.ModuleDict (self.{left.name} = nn.ModuleList(…)): in a replica it holds"
        " the copies.",
        path=left.path,
        place=left.place,
        consequence=failed,
        severity="error",
    )


def made_there(origin: Origin) -> str:
    """How a tensor is made on the right device in the first place."""
    if origin.of_module:
        return (
            f"Make the module in __init__, as an attribute: self.… = {origin.op}(…) is moved, trained and saved with"
            f" the model. One that only forward can make is moved there: {origin.op}(…).to(x.device)."
        )
    if origin.op.endswith(("from_numpy", "frombuffer", "Tensor")):
        instead = "tensor" if "Tensor" in origin.op else "as_tensor"
        return (
            f"Create it on the device of the other operand: torch.{instead}(..., device=x.device) in place of"
            f" {origin.op}(...)."
        )
    return f"Create it on the device of the other operand: {origin.op}(..., device=x.device)."


_BESIDE = "Make it a buffer of the module that uses it, or move it to the other operand's device: .to(x.device)."
_WHOLE = "Move all of the model to one device, or move the other operand of {path} there{there}."
_FIXES = {
    "attribute": 'Make it a buffer, which moves with the model: self.register_buffer("{name}", ...) in __init__.',
    "hidden": "Hold the modules in an nn.ModuleList or nn.ModuleDict, so that they move with the model.",
    "input": "Move the input to where the model is before the call: x = x.to('{home}').",
    "parameter": _WHOLE,
    "buffer": _WHOLE,
    "computed": (
        "Call the layer instead of reading its {name}: a call computes the {name} on the model's device; what an"
        " earlier call left there does not move."
    ),
    "copy": "Remove the copy to {here}, or move the result back to the other operand's device: .to(x.device).",
    "variable": _BESIDE,
    "held": _BESIDE,
    "earlier": _BESIDE,
}
"""Kind of origin -> what would be right."""


def _fix(origin: Origin, stray: Tensor, call: Call) -> str:
    if origin.kind == "factory":
        return made_there(origin)
    if origin.kind == "attribute" and not origin.name.isidentifier():
        return (
            "Keep it in a buffer (self.register_buffer), which moves with the model, rather than in a plain container."
        )
    if origin.kind == "copy" and origin.place is not None and "accelerate" in PurePath(origin.place.file).parts:
        return _kept_whole(call)
    written = call.written(origin.path)
    return _FIXES.get(origin.kind, "Move it to the device of the other operands: .to(x.device).").format(
        name=origin.name,
        path=origin.path,
        there="" if written is None else f": x.to({written}.device)",
        home=device_id(call.run.device),
        here=device_id(stray.device),
    )


def _kept_whole(call: Call) -> str:
    """What to tell accelerate, whose hooks copy within the module at work."""
    module = None if call.users_frame is None else call.users_frame.f_locals.get("self")
    kind = ""
    if isinstance(module, nn.Module):
        kind = f' (no_split_module_classes=["{type(module).__name__}"])'
    whole = call.run.path or "the model"
    return f"The device map splits {whole}, and accelerate moves inputs only: keep {whole} on one device{kind}."


WIDE = (torch.float64, torch.complex128)
"""What MPS has not."""
_MADE_BY_NOBODY = ("output", "result", "copy", "gradient", "unknown")
"""Origins of operands that are activations themselves."""


def dtype_promotion(call: Call, result: Any) -> None:
    """Find a result that an operand made wider."""
    kind, run = call.kind, call.run
    if not isinstance(result, Tensor) or not result.dtype.is_floating_point or kind.casts or kind.loss or kind.factory:
        return
    if call.kwargs.get("dtype") is not None:
        return
    floating = [item for item in call.operands if item.dtype.is_floating_point and item.dim() > 0]
    narrower = [item for item in floating if item.dtype.itemsize < result.dtype.itemsize]
    wide = next((item for item in floating if item.dtype is result.dtype), None)
    if not narrower or wide is None or any(item is result for item in floating) or _autocast(result):
        return
    narrow = max(narrower, key=Tensor.numel)
    known = run.sources.known(wide)
    if (known is not None and known.cast) or not wide.numel() <= narrow.numel() <= result.numel():
        return
    origin = origin_of(call, wide)
    if wide.numel() == narrow.numel() and origin.kind in _MADE_BY_NOBODY:
        return
    if run.collector.again("dtype-promotion", call.where, run.path):
        return
    small, large = dtype_name(narrow.dtype), dtype_name(result.dtype)
    there = "dtype=x.dtype where it is made." if origin.kind == "factory" else "y.to(x.dtype)."
    run.collector.add(
        "dtype-promotion",
        f"{kind.sentence} gives {large}, although {run.sources.of(narrow).description(run.path)} is {small}: "
        f"{origin.description(run.path)} is {large}.",
        f"Give that operand the dtype of the other one: {there}",
        place=call.where,
        reached=call.place,
        severity="note" if call.by_torch else None,
        bytes=result.numel() * (result.dtype.itemsize - narrow.dtype.itemsize),
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
    leading: list[Tensor] = [item for item in given if isinstance(item, nn.Parameter)]
    leading += [item for item in given if item.is_floating_point()]
    if not leading:
        return None
    wanted = leading[0].dtype
    others = [item for item in given if item.dtype != wanted]
    if not others:
        return None

    def note() -> None:
        path, operands = call.run.path, set[str]()
        parts: dict[torch.dtype, str] = {}
        for item in given:
            origin = origin_of(call, item)
            parts.setdefault(item.dtype, f"{origin.description(path)} is {dtype_name(item.dtype)}")
            operands |= origin.operands
        call.run.collector.add(
            "mixed-dtypes",
            f"{call.kind.sentence} gets operands of several dtypes: {listed(list(parts.values()), len(parts))}.",
            _one_dtype(origin_of(call, others[0]), dtype_name(wanted)),
            place=call.place,
            operands=operands,
        )

    return exchanged(call, {id(tensor): tensor.to(wanted) for tensor in others}, note)


_DTYPES = {
    "input": "Give the input the model's dtype: x = x.to(torch.{wanted}).",
    "parameter": "Convert all of the model to one dtype: model.to(torch.{wanted}).",
    "buffer": "Convert all of the model to one dtype: model.to(torch.{wanted}).",
    "factory": "Create it in the dtype of the other operand: {op}(..., dtype=torch.{wanted}).",
}


def _one_dtype(origin: Origin, wanted: str) -> str:
    fix = _DTYPES.get(origin.kind, "Convert it before the call: .to(torch.{wanted}).")
    return fix.format(wanted=wanted, op=origin.op)
