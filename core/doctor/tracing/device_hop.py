"""Copies between devices that forward makes at every call, and what they cost. The thread that is watched.

Copies to the CPU are those of `hidden_sync`, except those without a wait. An index on the CPU is copied silently: CUDA
takes one in `x[i]`, `x[i] = y` and `index_put_` (ATen's `TensorAdvancedIndexingUtils.h`), and refuses it in
`index_select` or `gather`. Seconds are estimated for virtual GPUs, and unknown for real ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from devexplorer.core.doctor.findings.collector import Effect
from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.mixed_devices import made_there, origin_of
from devexplorer.core.doctor.tracing.sources import Origin, line
from devexplorer.core.models import device_id
from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.cost import transfer_seconds


def copy_seconds(source: torch.device, destination: torch.device, nbytes: int) -> float | None:
    """Simulated seconds; None where a real card takes part."""
    ends = (source, destination)
    if not any(device.type == KIND for device in ends) or any(device.type not in (KIND, "cpu") for device in ends):
        return None
    here, there = (gpu_of(device).profile if device.type == KIND else None for device in ends)
    return transfer_seconds(here, there, nbytes)


def simulated(*devices: torch.device) -> bool:
    """Whether a virtual GPU is among them."""
    return any(device.type == KIND for device in devices)


def device_hop(call: Call, result: Any) -> None:
    """Find a copy that forward makes at every call."""
    if call.kind.name in _INDEXED:
        _index(call)
    if not call.kind.copies:
        return
    ends = _ends(call, result)
    if ends is None:
        return
    source, destination = ends
    run, here = call.run, source.device
    if here == destination or "meta" in (here.type, destination.type) or source.numel() == 0:
        return
    if destination.type == "cpu" and not call.non_blocking:
        return  # a hidden synchronisation
    if call.place is not None and run.collector.has("hard-coded-device", call.place, problem=True):
        return  # reported there
    upload = here.type == "cpu"
    if run.collector.again("device-hop", call.where if upload else call.place, run.path):
        return
    origin = origin_of(call, source)
    if origin.kind == "copy" and origin.place is not None and origin.place == call.place:
        return  # there and back in one line: the first copy has been reported
    nbytes = result.nbytes if isinstance(result, Tensor) and not call.kind.writes else source.nbytes
    what = f"is copied from {device_id(here)} to {device_id(destination)}"
    fix = "Keep what works together on one device where nothing has to be copied; of a split model it is the price."
    _add(call, origin, what, _fix(origin) if upload else fix, here, destination, nbytes, note=not upload)


def _add(
    call: Call,
    origin: Origin,
    what: str,
    fix: str,
    source: torch.device,
    destination: torch.device,
    nbytes: int,
    *,
    note: bool = False,
) -> None:
    call.run.collector.add(
        "device-hop",
        f"{origin.capital(call.run.path)} {what}",
        fix,
        place=call.place if note or (origin.place is not None and not origin.place.library) else call.where,
        reached=call.place,
        severity="note" if note or call.by_torch else None,
        bytes=nbytes,
        seconds=copy_seconds(source, destination, nbytes),
        simulated=simulated(source, destination),
        operands=origin.operands,
        frequency=True,
    )


_INDEXED = ("__getitem__", "__setitem__", "index_put", "index_put_")


def _index(call: Call) -> None:
    """An index of more than one number that is on the CPU, of a tensor that is not."""
    first, run = (call.args[0] if call.args else None), call.run
    if not isinstance(first, Tensor) or first.device.type in ("cpu", "meta"):
        return
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("indices")
    for index in given if isinstance(given, (tuple, list)) else (given,):
        if isinstance(index, Tensor) and index.device.type == "cpu" and index.dim() > 0:
            run.sources.use([index], Effect.SLOW)
            if not run.collector.again("device-hop", call.place, run.path):
                origin = origin_of(call, index)
                what = f"is an index on the CPU: it is copied from cpu to {device_id(first.device)}"
                _add(call, origin, what, _fix(origin), index.device, first.device, index.nbytes)
            return


def _ends(call: Call, result: Any) -> tuple[Tensor, torch.device] | None:
    """What is copied, and where to."""
    args, kwargs, name = call.args, call.kwargs, call.kind.name
    if call.kind.writes:
        value = args[-1] if len(args) > 1 else kwargs.get("src")
        ends = isinstance(value, Tensor) and value.dim() > 0 and isinstance(args[0], Tensor)
        return (value, args[0].device) if ends and isinstance(value, Tensor) else None
    if not isinstance(result, Tensor):
        return None
    source = next(
        (item for item in args[1 if name == "new_tensor" else 0 :] if isinstance(item, Tensor)), kwargs.get("data")
    )
    return (source, result.device) if isinstance(source, Tensor) else None


def _fix(origin: Origin) -> str:
    if origin.kind == "factory":
        made = made_there(origin)
        return f"{made[:-1]} ({line(origin.place)})." if origin.place is not None else made
    if origin.kind == "attribute":
        named = (
            f'self.register_buffer("{origin.name}", ...)' if origin.name.isidentifier() else "self.register_buffer(...)"
        )
        return f"Make it a buffer, which moves with the model once: {named} in __init__."
    if origin.kind == "hidden":
        return "Hold the modules in an nn.ModuleList or nn.ModuleDict, so that they move with the model, once."
    if origin.kind == "input":
        return "Let the caller move the input ahead of time."
    if origin.kind == "copy":
        return (
            f"Compute on the device what is computed on the CPU meanwhile: it was copied there at {line(origin.place)}."
        )
    if origin.kind in ("parameter", "buffer"):
        return "Move the whole model to the device, once."
    return "Keep it in a buffer of the module that uses it, which moves with the model, once."
