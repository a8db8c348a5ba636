"""What can be done about a call that failed for where its operands are, or for their dtypes, so that the forward goes
on and the rest is examined too. The thread that is watched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from devexplorer.core.doctor.tracing.call import Call, Repair
from devexplorer.core.doctor.tracing.dtype_promotion import mixed_dtypes
from devexplorer.core.doctor.tracing.mixed_devices import mixed_devices, note_strays
from devexplorer.core.models import device_id, is_irregular
from devexplorer.core.virtual.backend import is_virtual
from devexplorer.core.virtual.device.accounting import KIND

_MAKES = re.compile(r"sparse|nested")
"""In the names of functions whose result is such a tensor."""
LEFT = ("attribute", "hidden", "held", "variable", "earlier")
"""Kinds of origins of tensors that no move reaches."""
CPU = torch.device("cpu")


def host_list(call: Call) -> Repair | None:
    """A tensor made of a list of a device's numbers: each is read by the host, which virtual GPUs cannot imitate there.

    That the host waits for them is what `hidden_sync` says; on a card nothing is wrong with it.
    """
    if call.kind.name not in ("tensor", "as_tensor", "asarray") or not call.args:
        return None
    if not isinstance(call.args[0], list | tuple) or not any(map(is_virtual, call.operands)):
        return None

    def repeated(func: Any) -> Any:
        return func(*tree_map_only(Tensor, lambda tensor: tensor.detach().cpu(), call.args), **call.kwargs)

    return Repair(call.args, call.kwargs, repeated, lambda: None)


def host_array(call: Call) -> Repair | None:
    """A tensor of a device that is asked for its NumPy array: refused there, and done on the CPU."""
    if call.kind.name not in ("numpy", "__array__") or not call.args or not isinstance(call.args[0], Tensor):
        return None
    tensor, run = call.args[0], call.run
    if tensor.device.type in ("cpu", "meta") or tensor.requires_grad:
        return None
    copy = tensor.cpu()

    def note() -> None:
        origin = run.sources.of(tensor)
        run.collector.add(
            "fails-on-device",
            f"A NumPy array is asked of {origin.description(run.path)}; it is on {tensor.device}, and NumPy reads the"
            " CPU's memory only.",
            "Compute it with torch, on the device; or copy it over first with .cpu().numpy(), which waits for the"
            " device at each call.",
            place=call.place,
            operands=origin.operands,
        )

    def repeated(func: Any) -> Any:
        return getattr(copy, call.kind.name)(*call.args[1:], **call.kwargs)

    return Repair((copy, *call.args[1:]), call.kwargs, repeated, note)


def on_host(call: Call) -> Repair | None:
    """A call that a virtual GPU cannot hold the operands or results of, and a card can: sparse and nested tensors.

    It is computed on the CPU, what is dense goes back to the card, and a note says that it was not checked there.
    Nothing is done about a call that writes into a tensor of the card.
    """
    run, kind = call.run, call.kind
    if run.device.type != KIND:
        return None
    kinds = ["nested" if item.is_nested else "sparse" for item in call.operands if is_irregular(item)]
    if not kinds and (found := _MAKES.search(kind.name)) is not None:
        kinds = [found[0]]
    if not kinds or (kind.writes and isinstance(call.args[0], Tensor) and call.args[0].device.type == KIND):
        return None
    run.irregular = True
    brought = {id(tensor): tensor.cpu() for tensor in call.operands if tensor.device.type == KIND}

    def on_cpu(value: Any) -> Any:
        return tree_map_only(Tensor, lambda tensor: brought.get(id(tensor), tensor), value)

    args = tuple(CPU if kind.copies and isinstance(item, str | torch.device) else item for item in on_cpu(call.args))
    kwargs = {
        name: CPU if name == "device" and value is not None else on_cpu(value) for name, value in call.kwargs.items()
    }

    def repeated(func: Any) -> Any:
        if kind.name == "cuda":
            return args[0]
        result = func(*args, **kwargs)
        if kind.copies and is_irregular(result) and any(result is item for item in call.operands):
            return result.clone()  # on a card it is another tensor, of another device
        return tree_map_only(Tensor, lambda made: made if is_irregular(made) else made.to(run.device), result)

    def note() -> None:
        # A copy that stays here may be one of the card's, but a plain attribute is where it was made.
        origins = [(item, run.sources.of(item)) for item in call.operands if is_irregular(item)]
        left = [item for item, origin in origins if origin.kind in LEFT and not origin.derived]
        if left and brought:
            note_strays(call, left)
        what = f"{' and '.join(dict.fromkeys(kinds))} tensors"
        why = f"{kind.sentence} was computed on the CPU: virtual GPUs hold dense tensors only."
        run.collector.not_checked(what, why, call.place)

    return Repair(args, kwargs, repeated, note, on_host=True)


def other_generator(call: Call) -> Repair | None:
    """A call that draws on one device with a random generator of another: refused, and done without it."""
    if _drawn_elsewhere(call, None) is None:
        return None
    kwargs = {**call.kwargs, "generator": None}

    def repeated(func: Any) -> Any:
        return func(*call.args, **kwargs)

    return Repair(call.args, kwargs, repeated, lambda: note_generator(call, None))


def note_generator(call: Call, result: Any) -> None:
    """Say that a random generator belongs to another device than what it draws. A virtual GPU's draws on the CPU too,
    as no card's does: `result` is None where the call failed."""
    drawn = _drawn_elsewhere(call, result)
    if drawn is None:
        return
    where, generator = drawn
    call.run.collector.add(
        "mixed-devices",
        f"{call.kind.sentence} draws on {device_id(where)} with a random generator of {device_id(generator)}; a"
        " generator draws on its own kind of device only.",
        "Make the generator for that device, torch.Generator(device=x.device); or draw where the generator is, and move"
        " the result: .to(x.device).",
        place=call.place,
    )


def _drawn_elsewhere(call: Call, result: Any) -> tuple[torch.device, torch.device] | None:
    """Where a call draws, and where its generator is; None where both are on one kind of device, or there is none."""
    generator, first = call.kwargs.get("generator"), call.args[0] if call.args else None
    if not isinstance(generator, torch.Generator):
        return None
    if isinstance(result, Tensor):
        where = result.device
    elif isinstance(first, Tensor):
        where = first.device
    else:
        named = call.kwargs.get("device")
        where = CPU if named is not None and torch.device(named) == CPU else call.run.device
    return None if generator.device.type == where.type else (where, generator.device)


REPAIRS: Sequence[Callable[[Call], Repair | None]] = (
    host_list,
    on_host,
    other_generator,
    mixed_devices,
    host_array,
    mixed_dtypes,
)
"""Each says whether it is about this call."""
