"""What forward does at every call that the host waits for: copies between devices, and what they cost; calls that wait
until the device has done all its work. The thread that is watched.

Copies to the CPU are those of `hidden_sync`, except those without a wait. An index on the CPU is copied silently: CUDA
takes one in `x[i]`, `x[i] = y` and `index_put_` (ATen's `TensorAdvancedIndexingUtils.h`), and refuses it in
`index_select` or `gather`. Seconds are estimated for virtual GPUs, and unknown for real ones.
"""

from __future__ import annotations

from typing import Any

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


_HOST = ("cpu", "meta")
_ALWAYS = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "is_nonzero", "__int__", "__index__", "__long__", "__float__",
    "__complex__", "__contains__", "__format__", "__repr__", "nonzero", "argwhere", "unique", "unique_consecutive",
    "equal",
    "masked_select", "allclose", "bincount", *CHECKS,
})  # fmt: skip
_NUMBERS = frozenset({"arange", "full", "linspace"})
"""Functions that take a tensor of one element for a number, and ask for its value."""
_FILLS = frozenset({"copy_", "__setitem__"})
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
    "Nothing in this line is wrong; an argument may make the check unnecessary (is_causal=True, validate_args=False)."
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
    number = waited is None and call.read
    if number:  # an argument that has to be a number, or code of torch's own
        waited = next((item for item in call.operands if item.numel() == 1 and _there(item)), None)
    if waited is None:
        return
    run, name = call.run, call.kind.name
    if run.collector.again("hidden-sync", call.where, run.path):
        return
    if number:
        description, fix = f"{call.kind.description.removeprefix('the ')}, which takes a number", _FIXES["number"]
    else:
        description, fix = WAITS[name], _FIXES["row" if _row(call, waited) else _FIX_OF.get(name, name)]
    source = run.sources.of(waited)
    copies = name in _TO_CPU and isinstance(result, Tensor)
    copied = result.nbytes if copies and result.device.type in _HOST else None
    wait = f"the host waits until {device_id(waited.device)} has finished its queued work"
    read = f"is read by {description}: {wait}."
    filled = call.args[0] if name in _FILLS and call.args else None
    if isinstance(filled, Tensor) and filled.device.type == "cpu":
        origin, copied = origin_of(call, filled), waited.nbytes
        if origin.kind in _REPORTED:
            run.sources.use([filled], Effect.SLOW)
            return
        read = f"is written into {origin.description(run.path)}, on the CPU: {wait}."
        fix = (
            made_there(origin)
            if origin.kind == "factory"
            else "Keep the tensor that it is written into on the device as well."
        )
    run.collector.add(
        "hidden-sync",
        f"In PyTorch's own code {source.description(run.path)} {read}"
        if call.by_torch
        else f"{source.capital(run.path)} {read}",
        _OF_TORCH if call.by_torch else fix,
        place=call.where,
        reached=call.place,
        severity="note" if call.by_torch else None,
        bytes=copied,
        seconds=None if copied is None else copy_seconds(waited.device, torch.device("cpu"), copied),
        simulated=copied is not None and simulated(waited.device),
    )


def _waited_for(call: Call, result: Any) -> Tensor | None:
    """The tensor whose values the host asks for; None where it need not."""
    name, args, kwargs = call.kind.name, call.args, call.kwargs
    first = args[0] if args else None
    if name in _NUMBERS:
        into = kwargs.get("out")  # written, not read
        return next((item for item in call.operands if item is not into and _there(item)), None)
    if name in ("tensor", "as_tensor", "asarray"):
        return (
            next((item for item in call.operands if _there(item)), None) if isinstance(first, (list, tuple)) else None
        )
    if name in _FILLS and isinstance(first, Tensor) and first.device.type == "cpu":
        source = args[-1] if len(args) > 1 else kwargs.get("src")
        return source if isinstance(source, Tensor) and _there(source) and not kwargs.get("non_blocking") else None
    if name in ("__getitem__", "__setitem__"):
        return _by_index(name, args)
    if not isinstance(first, Tensor):
        first = kwargs.get("input")
    if not isinstance(first, Tensor) or not _there(first):
        return None
    if name in _ALWAYS:
        return first
    if name in _TO_CPU:
        model = args[1] if len(args) > 1 else None
        if isinstance(model, Tensor) and call.run.sources.of(model).kind in _REPORTED:
            call.run.sources.use([model], Effect.SLOW)
            return None
        copied = isinstance(result, Tensor) and result.device.type == "cpu" and not call.non_blocking
        return first if copied else None
    if name == "one_hot":
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return first if classes == -1 else None
    if name == "histc":
        limits = (args[2:4], kwargs.get("min"), kwargs.get("max"))
        return None if any(limits) else first
    if name == "where":
        return first if len(args) + len(kwargs) == 1 else None
    if name == "repeat_interleave":
        repeats = args[1] if len(args) > 1 else kwargs.get("repeats", first)
        return (
            repeats if isinstance(repeats, Tensor) and repeats.dim() > 0 and kwargs.get("output_size") is None else None
        )
    return None


def _row(call: Call, waited: Tensor) -> bool:
    """Whether it is an index without dimensions that is read."""
    return call.kind.name in ("__getitem__", "__setitem__") and waited.dim() == 0 and waited.dtype is not torch.bool


def _there(tensor: Tensor) -> bool:
    return tensor.device.type not in _HOST


def _by_index(name: str, args: Any) -> Tensor | None:
    """A mask whose true elements have to be counted, or a bound of a slice."""
    index = args[1] if len(args) > 1 else None
    for item in index if isinstance(index, (tuple, list)) else (index,):
        if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8) and item.dim() > 0 and _there(item):
            value = args[2] if len(args) > 2 else None
            if name == "__getitem__" or (
                isinstance(value, Tensor) and value.dim() > 0
            ):  # a number is filled in without counting
                return item
        if isinstance(item, Tensor) and item.dim() == 0 and _there(item):
            return item
        if isinstance(item, slice):
            for bound in (item.start, item.stop, item.step):
                if isinstance(bound, Tensor) and _there(bound):
                    return bound
    return None
