"""What only the model of the workspace can show, because it was moved, split and trained there; and what a look at a
copy says where its source is unknown. Jobs thread."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Message, bytes_text, count_text, first_line
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.findings.diagnosis import diagnosis
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.doctor.subject import moved
from devexplorer.core.models import (
    CHEAP_BYTES,
    Extras,
    RegisteredIds,
    bytes_of,
    deep_copy,
    device_id,
    dispatched,
    every_tensor,
    held_by,
    named_modules,
    parameters_and_buffers,
    samples,
    state_tensors,
    unregistered,
)
from devexplorer.core.models.walk import computed_by_torch
from devexplorer.core.records import DeviceInfo, Diagnosis, Finding


def live_findings(name: str, model: nn.Module, extras: Extras) -> list[Finding]:
    """All of it, as findings without a line: no line of code did it."""
    return [*_optimizer(model, extras), *_ties(name, model, extras), *_parts(name, model, extras), *_behind(model)]


def _optimizer(model: nn.Module, extras: Extras) -> Iterator[Finding]:
    if extras.optimizer is None:
        return
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    strange = [parameter for parameter in held_by(extras.optimizer) if id(parameter) not in paths]
    kind = type(extras.optimizer).__name__
    if strange:
        yield _finding(
            "optimizer-before-move",
            "",
            f"{kind} holds {count_text(len(strange), 'tensor')} that the model does not have any more, so a step"
            " changes nothing of it.",
            "Create a new optimizer now that the model is on its training device.",
        )
    for parameter, key, value in state_tensors(extras.optimizer):
        path = paths.get(id(parameter))
        if path is not None and value.dim() > 0 and value.device != parameter.device:
            there, here = device_id(value.device), device_id(parameter.device)
            yield _finding(
                "optimizer-before-move",
                path,
                f"{kind} keeps its {key} of {path} on {there}, and the parameter is on {here}: a step fails.",
                "Move the optimizer's state after its parameters, or make the optimizer after the move.",
            )
            return


def _ties(name: str, model: nn.Module, extras: Extras) -> Iterator[Finding]:
    """Against the sample model as it is made: only of that it is known what was tied."""
    if extras.recipe is None:
        return
    groups: dict[int, list[str]] = {}
    for path, parameter in samples.meta(extras.recipe).named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(path)
    now = dict(model.named_parameters(remove_duplicate=False))
    for paths in groups.values():
        there = [path for path in paths if path in now]
        if len({id(now[path]) for path in there}) > 1:
            yield _finding(
                "tie-lost",
                there[-1],
                f"{' and '.join(there)} were one Parameter when {name} was made, and are several now: each is trained"
                " alone.",
                "Tie them again, and keep both names on one device.",
                "warning",
            )


def _parts(name: str, model: nn.Module, extras: Extras) -> Iterator[Finding]:
    devices = sorted({device_id(tensor.device) for tensor in parameters_and_buffers(model)})
    if extras.hops is not None and extras.hops.latest:
        latest = extras.hops.latest
        size, times = sum(hop.bytes for hop in latest), f"{len(latest)} {'copy' if len(latest) == 1 else 'copies'}"
        yield _finding(
            "device-hop",
            "",
            f"The hops of {name} carried {bytes_text(size)} between {' and '.join(devices)} in its latest forward, in"
            f" {times}.",
            "Join it on one device where it fits there.",
            "note",
            bytes=size,
        )
    if len(devices) > 1 and extras.hops is None and dispatched(named_modules(model)) is None:
        yield _finding(
            "mixed-devices",
            "",
            f"The parts of {name} are on {', '.join(devices)}, and nothing carries its activations from one to the"
            " other.",
            "Join it on one device, or let hops carry the activations.",
        )


def _behind(model: nn.Module) -> Iterator[Finding]:
    """What calls kept before a move, which did not take it along."""
    devices = {tensor.device for tensor in parameters_and_buffers(model)}
    modules = named_modules(model)
    known = RegisteredIds(modules)
    for path, module in modules if len(devices) == 1 else ():
        computed = computed_by_torch(module)
        for name, thing in unregistered(module, known):
            if name in computed or not isinstance(thing, Tensor) or thing.dim() == 0 or thing.device in devices:
                continue
            there, here = device_id(thing.device), device_id(next(iter(devices)))
            yield _finding(
                "unregistered-tensor",
                f"{path}.{name}" if path else name,
                f"In the workspace self.{name} is on {there}, and the model on {here}: a call that uses it as it is"
                " gives or meets the wrong device.",
                f'Make it a buffer, which moves with the model: self.register_buffer("{name}", None) in __init__,'
                " before a call fills it.",
                "warning",
            )


def _finding(
    rule: str, path: str, text: str, advice: str, severity: str = "error", *, bytes: int | None = None
) -> Finding:
    message, fix = Message(text), Message(advice)
    return Finding(rule=rule, path=path, file="", line=0, message=message, fix=fix, severity=severity, bytes=bytes)


WHY = "the code that made this model is unknown, so it cannot be rebuilt in a separate process and run there"


def examined_here(name: str, model: nn.Module, info: DeviceInfo) -> Diagnosis:
    """What a look at a copy says, before and after a move. Raises `BadInput` where it is too large, or cannot be
    copied."""
    size = bytes_of(every_tensor(model))
    if size > CHEAP_BYTES:
        raise BadInput(f"'{name}' has {bytes_text(size)}, too much for a copy to look at, and {WHY}")
    try:
        second = deep_copy(model)
    except Exception as error:
        raise BadInput(f"'{name}' cannot be copied ({first_line(error)}), and {WHY}") from error
    collector, origins = FindingCollector(), Origins()
    checks = StaticChecks(second, origins, collector)
    checks.before()
    checks.moved(info.id if moved(second, info, None, collector) is not None else None)
    origins.close()
    collector.not_checked("the forward", f"{WHY}.")
    return diagnosis(collector, name, info, train=False, inputs="", operations=0)
