"""What forward does at every call that the host waits for: copies between devices, and what they cost; calls that wait
until the device has done all its work. The thread that is watched.

Copies to the CPU are those of `hidden_sync`, except those without a wait. An index on the CPU is copied silently: CUDA
takes one in `x[i]`, `x[i] = y` and `index_put_` (ATen's `TensorAdvancedIndexingUtils.h`), and refuses it in
`index_select` or `gather`. Seconds are estimated for virtual GPUs, and unknown for real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from devexplorer.core.doctor.findings.collector import Effect
from devexplorer.core.doctor.tracing.call import CHECKS, WAITS, Call
from devexplorer.core.doctor.tracing.mixed_devices import made_there, origin_of
from devexplorer.core.doctor.tracing.sources import Origin, line
from devexplorer.core.models import device_id
from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.cost import transfer_seconds


def copy_seconds(source: torch.device, destination: torch.device, nbytes: int) -> float | None:
    """Simulated seconds; None where a real card takes part."""
    ends = []
    for device in (source, destination):
        if device.type not in (KIND, "cpu"):
            return None
        ends.append(gpu_of(device).profile if device.type == KIND else None)
    here, there = ends
    return transfer_seconds(here, there, nbytes) if here or there else None


def device_hop(call: Call, result: Any) -> None:
    """Find a copy that forward makes at every call."""
    if call.kind.name in _INDEXED:
        _index(call)
    if not call.kind.copies:
        return
    source, into = _source(call), result
    if call.kind.writes:
        into = call.first
        if isinstance(source, Tensor) and source.dim() == 0:
            return
    if not isinstance(source, Tensor) or not isinstance(into, Tensor) or source.numel() == 0:
        return
    run, here, there = call.run, source.device, into.device
    if here == there or "meta" in (here.type, there.type):
        return
    if there.type == "cpu" and not call.non_blocking:
        return  # a hidden synchronisation
    if call.place is not None and run.collector.has("hard-coded-device", call.place, problem=True):
        return  # reported there
    upload = here.type == "cpu"
    if run.collector.again("device-hop", call.where if upload else call.place, run.path):
        return
    origin = origin_of(call, source)
    if origin.kind == "copy" and origin.place is not None and origin.place == call.place:
        return  # there and back in one line: the first copy has been reported
    nbytes = source.nbytes if call.kind.writes else into.nbytes
    _add(call, origin, f"is copied from {device_id(here)} to {device_id(there)}", here, there, nbytes, note=not upload)


def _source(call: Call) -> Any:
    """What is copied."""
    if call.kind.writes:
        return call.args[-1] if len(call.args) > 1 else call.kwargs.get("src")
    first = 1 if call.kind.name == "new_tensor" else 0
    return next((item for item in call.args[first:] if isinstance(item, Tensor)), call.kwargs.get("data"))


def _add(
    call: Call,
    origin: Origin,
    what: str,
    source: torch.device,
    destination: torch.device,
    nbytes: int,
    *,
    note: bool = False,
) -> None:
    fix = _fix(origin)
    if note:
        fix = "Keep what works together on one device where nothing has to be copied; of a split model it is the price."
    in_users = origin.place is not None and not origin.place.library
    call.run.collector.add(
        "device-hop",
        f"{origin.capital(call.run.path)} {what}",
        fix,
        place=call.place if note or in_users else call.where,
        reached=call.place,
        severity="note" if note or call.by_torch else None,
        bytes=nbytes,
        seconds=copy_seconds(source, destination, nbytes),
        simulated=KIND in (source.type, destination.type),
        operands=origin.operands,
        frequency=True,
    )


_INDEXED = ("__getitem__", "__setitem__", "index_put", "index_put_")


def _index(call: Call) -> None:
    """An index of more than one number that is on the CPU, of a tensor that is not."""
    run = call.run
    if not _there(call.first):
        return
    for index in _indices(call.argument(1, "indices")):
        if isinstance(index, Tensor) and index.device.type == "cpu" and index.dim() > 0:
            run.sources.use([index], Effect.SLOW)
            if not run.collector.again("device-hop", call.place, run.path):
                there = call.first.device
                what = f"is an index on the CPU: it is copied from cpu to {device_id(there)}"
                _add(call, origin_of(call, index), what, index.device, there, index.nbytes)
            return


def _indices(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (tuple, list)) else (given,)


_WHOLE = "Move the whole model to the device, once."
_HOP_FIXES = {
    "attribute": "Make it a buffer, which moves with the model once: self.register_buffer({name}...) in __init__.",
    "hidden": "Hold the modules in an nn.ModuleList or nn.ModuleDict, so that they move with the model, once.",
    "input": "Let the caller move the input ahead of time.",
    "copy": "Compute on the device what is computed on the CPU meanwhile: it was copied there at {line}.",
    "parameter": _WHOLE,
    "buffer": _WHOLE,
}
"""Kind of origin -> what would be right."""


def _fix(origin: Origin) -> str:
    if origin.kind == "factory":
        at = f" ({line(origin.place)})" if origin.place is not None else ""
        return f"{made_there(origin)[:-1]}{at}."
    name = f'"{origin.name}", ' if origin.name.isidentifier() else ""
    default = "Keep it in a buffer of the module that uses it, which moves with the model, once."
    return _HOP_FIXES.get(origin.kind, default).format(name=name, line=line(origin.place))


_HOST = ("cpu", "meta")
_ALWAYS = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "is_nonzero", "__int__", "__index__", "__long__", "__float__",
    "__complex__", "__contains__", "__format__", "__repr__", "nonzero", "argwhere", "unique", "unique_consecutive",
    "equal",
    "masked_select", "allclose", "bincount", *CHECKS,
})  # fmt: skip
_NUMBERS = frozenset({"arange", "full", "linspace"})
"""Functions that take a tensor of one element for a number, and ask for its value."""
_INDEX = ("__getitem__", "__setitem__")
_FILLS = ("copy_", "__setitem__")
"""They bring values to where their first argument is."""
_TO_CPU = ("cpu", "to", "type", "type_as")
_REPORTED = ("attribute", "hidden")
"""Kinds of origins that should be where the model is: that they are not is a separate finding."""
_FIXES = {
    "item": "Keep the value a tensor of the device and compute on with it; ask for it after the forward, once.",
    "__bool__": "Decide without asking for the value: torch.where(condition, a, b), or a flag that Python knows.",
    "cpu": "Keep the tensor on its device and continue computing there; copy what you need after the forward pass.",
    "numpy": "Compute it with torch, on the device.",
    "nonzero": (
        "Where only the values count, take torch.where(condition, a, b) or a product with the mask: the shape stays the"
        " same."
    ),
    "unique": (
        "Work it out once, outside of forward: how much it returns depends on values, which the host has to wait for."
    ),
    "repeat_interleave": "Give output_size=..., so that the length of the result need not be read from the device.",
    "print": "Remove it, or print after the forward.",
    "number": "Take the number from the shape or keep it in Python; the value of a tensor has to be waited for.",
    "stack": "Put them together on the device: torch.stack.",
    "one_hot": "Give the number of classes: one_hot(ids, num_classes), which need not be read from the device.",
    "histc": "Give the limits: histc(x, bins, min, max), which need not be read from the device.",
    "check": (
        "Take the variant that leaves errors in a tensor (torch.linalg.inv_ex, cholesky_ex, solve_ex) where there is"
        " one, or work it out once, outside of forward."
    ),
    "row": "Take it on the device: x.index_select(0, i.reshape(1)), or x[i[None]]; or keep the number in Python.",
    "equal": "Compare with ==, which stays on the device, and ask for the answer after the forward.",
}
_OF_TORCH = (
    "PyTorch's own code does this, and nothing in your line is wrong; an argument may make the check unnecessary"
    " (is_causal=True, validate_args=False)."
)
_FIX_OF = {
    "tolist": "item", "__int__": "item", "__index__": "number", "__long__": "item", "__float__": "item",
    "__complex__": "item",
    "is_nonzero": "__bool__", "__contains__": "__bool__", "to": "cpu", "type": "cpu", "type_as": "cpu", "copy_": "cpu",
    "__array__": "numpy",
    "argwhere": "nonzero", "where": "nonzero", "masked_select": "nonzero", "__getitem__": "nonzero",
    "__setitem__": "nonzero",
    "unique_consecutive": "unique", "bincount": "unique", "__format__": "print", "__repr__": "print",
    "arange": "number",
    "full": "number", "tensor": "stack", "as_tensor": "stack", "asarray": "stack", "linspace": "number",
    "allclose": "equal", **dict.fromkeys(CHECKS, "check"),
}  # fmt: skip


def hidden_sync(call: Call, result: Any) -> None:
    """Find a call that makes the host wait."""
    waited = _waited_for(call, result) if call.kind.waits else None
    run, name = call.run, call.kind.name
    if waited is not None:
        description = WAITS[name]
        # an index without dimensions is read itself
        row = name in _INDEX and waited.dim() == 0 and waited.dtype is not torch.bool
        fix = _FIXES["row" if row else _FIX_OF.get(name, name)]
    elif call.read:  # an argument that has to be a number, or code of torch's own
        waited = next((item for item in call.operands if item.numel() == 1 and _there(item)), None)
        description, fix = f"{call.kind.description.removeprefix('the ')}, which takes a number", _FIXES["number"]
    if waited is None or run.collector.again("hidden-sync", call.where, run.path):
        return
    source = run.sources.of(waited)
    copied = None
    if name in _TO_CPU and isinstance(result, Tensor) and result.device.type in _HOST:
        copied = result.nbytes
    wait = f"the host waits until {device_id(waited.device)} has finished its queued work"
    read = f"is read by {description}: {wait}."
    filled = call.first if name in _FILLS else None
    if isinstance(filled, Tensor) and filled.device.type == "cpu":
        origin, copied = origin_of(call, filled), waited.nbytes
        if origin.kind in _REPORTED:
            run.sources.use([filled], Effect.SLOW)
            return
        read = f"is written into {origin.description(run.path)}, on the CPU: {wait}."
        fix = "Keep the tensor that it is written into on the device as well."
        if origin.kind == "factory":
            fix = made_there(origin)
    run.collector.add(
        "hidden-sync",
        f"{source.capital(run.path)} {read}",
        _OF_TORCH if call.by_torch else fix,
        place=call.where,
        reached=call.place,
        severity="note" if call.by_torch else None,
        bytes=copied,
        seconds=None if copied is None else copy_seconds(waited.device, torch.device("cpu"), copied),
        simulated=copied is not None and waited.device.type == KIND,
    )


def _waited_for(call: Call, result: Any) -> Tensor | None:
    """The tensor whose values the host asks for; None where it need not."""
    name, first = call.kind.name, call.first
    if name in _NUMBERS:
        into = call.kwargs.get("out")  # written, not read
        return next((item for item in call.operands if item is not into and _there(item)), None)
    if name in ("tensor", "as_tensor", "asarray"):
        return next(filter(_there, call.operands), None) if isinstance(first, (list, tuple)) else None
    if name in _FILLS and isinstance(first, Tensor) and first.device.type == "cpu":
        source = _source(call)
        return source if _there(source) and not call.kwargs.get("non_blocking") else None
    if name in _INDEX:
        return _by_index(call)
    if not isinstance(first, Tensor):
        first = call.kwargs.get("input")
    if not _there(first):
        return None
    if name in _TO_CPU:
        model = call.argument(1, "")
        if isinstance(model, Tensor) and call.run.sources.of(model).kind in _REPORTED:
            call.run.sources.use([model], Effect.SLOW)
            return None
        waits = isinstance(result, Tensor) and result.device.type == "cpu" and not call.non_blocking
    elif name == "one_hot":
        waits = call.argument(1, "num_classes", -1) == -1
    elif name == "histc":
        waits = not any((call.args[2:4], call.kwargs.get("min"), call.kwargs.get("max")))
    elif name == "where":
        waits = len(call.args) + len(call.kwargs) == 1
    elif name == "repeat_interleave":
        first = call.argument(1, "repeats", first)
        waits = isinstance(first, Tensor) and first.dim() > 0 and call.kwargs.get("output_size") is None
    else:
        waits = name in _ALWAYS
    return first if waits else None


def _there(value: Any) -> TypeGuard[Tensor]:
    """Whether it is a tensor of a device."""
    return isinstance(value, Tensor) and value.device.type not in _HOST


def _by_index(call: Call) -> Tensor | None:
    """A mask whose true elements have to be counted, or a bound of a slice."""
    value = call.argument(2, "")
    # a number is filled in without counting
    counts = call.kind.name == "__getitem__" or (isinstance(value, Tensor) and value.dim() > 0)
    for item in _indices(call.argument(1, "")):
        if isinstance(item, slice):
            for bound in (item.start, item.stop, item.step):
                if _there(bound):
                    return bound
        elif _there(item) and (item.dim() == 0 or (counts and item.dtype in (torch.bool, torch.uint8))):
            return item
    return None
