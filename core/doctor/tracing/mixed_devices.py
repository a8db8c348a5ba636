"""A call whose operands are on several devices, and that fails for it: which is where, where each comes from, and how
that is put right.

The thread that is watched. The operand that is not where the model is gets the blame.
"""

from __future__ import annotations

from pathlib import PurePath
from types import FrameType

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from devexplorer.core.base import Message
from devexplorer.core.doctor.static.model_context import listed
from devexplorer.core.doctor.tracing.call import Call, Repair, operands
from devexplorer.core.doctor.tracing.made import unseen
from devexplorer.core.doctor.tracing.sources import Origin, line
from devexplorer.core.isolation.source_location import NOWHERE
from devexplorer.core.models import device_id
from devexplorer.core.records import Finding

RULE = "mixed-devices"


def mixed_devices(call: Call) -> Repair | None:
    """The call with all of its operands on one device, if that is why it failed."""
    given = _counted(call, numbers=False)
    if len({tensor.device for tensor in given}) < 2:
        given = _counted(call, numbers=True)
    devices = list(dict.fromkeys(tensor.device for tensor in given))
    if len(devices) < 2 or any(device.type == "meta" for device in devices):
        return None
    home = call.run.device
    if home not in devices:
        home = next((tensor.device for tensor in given if isinstance(tensor, nn.Parameter)), given[0].device)
    first = call.args[0] if call.args else None
    rebound = call.kind.name.startswith("__i")  # `done |= x`: the name gets what the operator returns
    target = first.device if call.kind.writes and not rebound and isinstance(first, Tensor) else home
    brought = {id(tensor): tensor.to(target) for tensor in call.operands if tensor.device != target}
    args, kwargs = tree_map_only(Tensor, lambda tensor: brought.get(id(tensor), tensor), (call.args, call.kwargs))
    strays = [tensor for tensor in given if tensor.device != home]
    return Repair(args, kwargs, lambda func: func(*args, **kwargs), lambda: note_strays(call, strays))


def note_strays(call: Call, strays: list[Tensor]) -> None:
    """Blame the operands that are on the wrong device; those that forward made there, at the line that made them."""
    run = call.run
    origins = {id(tensor): origin_of(call, tensor) for tensor in call.operands}
    parts = [
        f"{origins[id(item)].description(run.path)} is on {device_id(item.device)}"
        for item in _one_per_origin(call.operands, origins)
    ]
    message = Message(f"{call.kind.sentence} gets operands from several devices: {listed(parts, len(parts))}.")
    location = call.place or NOWHERE
    rest = []
    for stray in strays:
        origin = origins[id(stray)]
        fix = Message(_fix(origin, stray, call))
        failed = Finding(rule=RULE, path=run.path, file=location.file, line=location.line, message=message, fix=fix)
        left = (
            run.sources.left_in_replica(origin) if run.in_replica and origin.kind in ("parameter", "buffer") else None
        )
        if left is not None:
            _left_in_replica(call, left, stray, failed)
        elif origin.place is not None and run.collector.has("hard-coded-device", origin.place):
            run.collector.made_fail("hard-coded-device", origin.place, failed)
        elif origin.kind == "factory" and origin.place is not None and not origin.named_device:
            _default_device(call, stray, origin, failed)
        else:
            rest.append(failed)
    if rest:
        operands = [path for origin in origins.values() for path in origin.operands]
        run.collector.add(RULE, str(message), str(rest[0].fix), place=call.place, operands=operands)


def _counted(call: Call, *, numbers: bool) -> list[Tensor]:
    """The operands that have to be on one device. From the CPU an index may join any, and a number those that take
    one: with `numbers` it is one of those that do not."""
    given = call.operands
    numbers = numbers or all(item.dim() == 0 for item in given)
    indices = (
        {id(item) for item in operands(call.args[1:2], {})}
        if call.kind.name in ("__getitem__", "__setitem__")
        else set()
    )
    return [
        item for item in given if item.device.type != "cpu" or ((item.dim() > 0 or numbers) and id(item) not in indices)
    ]


def origin_of(call: Call, tensor: Tensor) -> Origin:
    """Where an operand comes from, as far as the calls and else the line itself say."""
    origin = call.run.sources.of(tensor)
    return unseen(call, tensor) or origin if origin.kind in ("unknown", "gradient", "earlier") else origin


def _default_device(call: Call, stray: Tensor, origin: Origin, failed: Finding) -> None:
    run = call.run
    if origin.place == call.place:
        where = "at the same line"
    elif call.place is not None:
        where = f"at {line(call.place)}"
    else:
        where = "later"
    fix, made = made_there(origin), f"{origin.op} makes its tensor"
    if origin.of_module:
        trained, buffer = isinstance(stray, nn.Parameter), _is_buffer(call, stray)
        made = f"{origin.op} is made in forward, with {'parameters' if trained else 'tensors'}"
        if not trained and not buffer:
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
    frame: FrameType | None = call.frame
    while frame is not None and frame is not call.run.until:
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and any(tensor is buffer for buffer in module._buffers.values()):
            return True
        frame = frame.f_back
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
        what = (
            "torch.as_tensor(..., device=x.device)"
            if "Tensor" not in origin.op
            else "torch.tensor(..., device=x.device)"
        )
        return f"Create it on the device of the other operand: {what} in place of {origin.op}(...)."
    return f"Create it on the device of the other operand: {origin.op}(..., device=x.device)."


def _fix(origin: Origin, stray: Tensor, call: Call) -> str:
    home = device_id(call.run.device)
    if origin.kind == "attribute":
        name = origin.name
        if name.isidentifier():
            return f'Make it a buffer, which moves with the model: self.register_buffer("{name}", ...) in __init__.'
        return (
            "Keep it in a buffer (self.register_buffer), which moves with the model, rather than in a plain container."
        )
    if origin.kind == "hidden":
        return "Hold the modules in an nn.ModuleList or nn.ModuleDict, so that they move with the model."
    if origin.kind == "input":
        return f"Move the input to where the model is before the call: x = x.to({home!r})."
    if origin.kind in ("parameter", "buffer"):
        there = call.written(origin.path)
        over = f"move the other operand of {origin.path} there" + (
            f": x.to({there}.device)" if there is not None else ""
        )
        return f"Move all of the model to one device, or {over}."
    if origin.kind == "computed":
        return (
            f"Call the layer instead of reading its {origin.name}: a call computes the {origin.name} on the model's"
            " device; what an earlier call left there does not move."
        )
    if origin.kind == "factory":
        return made_there(origin)
    if origin.kind == "copy":
        if origin.place is not None and "accelerate" in PurePath(origin.place.file).parts:
            return _kept_whole(call)
        return (
            f"Remove the copy to {device_id(stray.device)}, or move the result back to the other operand's device:"
            " .to(x.device)."
        )
    if origin.kind in ("variable", "held", "earlier"):
        return "Make it a buffer of the module that uses it, or move it to the other operand's device: .to(x.device)."
    return "Move it to the device of the other operands: .to(x.device)."


def _kept_whole(call: Call) -> str:
    """What to tell accelerate, whose hooks copy within the module at work."""
    module = None if call.users_frame is None else call.users_frame.f_locals.get("self")
    kind = f' (no_split_module_classes=["{type(module).__name__}"])' if isinstance(module, nn.Module) else ""
    whole = call.run.path or "the model"
    return f"The device map splits {whole}, and accelerate moves inputs only: keep {whole} on one device{kind}."


def _one_per_origin(tensors: list[Tensor], origins: dict[int, Origin]) -> list[Tensor]:
    """The first of each origin and device, at most four."""
    return list({(origins[id(item)], item.device): item for item in reversed(tensors)}.values())[::-1][:4]
