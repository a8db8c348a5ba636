"""Carries out `Check` and `ApplyPatch`: a separate process examines a model like this one, then the live one is looked
at for what only it can show; answers in words; and what is said of a forward that failed. Jobs thread."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    Message,
    ProgressMonitor,
    bytes_text,
    count_text,
    first_line,
    object_name,
    quoted,
    variable,
)
from devexplorer.core.commands.handlers import blueprint
from devexplorer.core.commands.refusals import rebuilding
from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.code.patches import apply
from devexplorer.core.doctor.findings.collector import FindingCollector, diagnosis
from devexplorer.core.doctor.findings.rules import RULES, passes, verdict, without_gradient
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.doctor.static.model_context import joined
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
    fetches_inputs,
    held_by,
    named_modules,
    parameters_and_buffers,
    parse_inputs,
    samples,
    state_tensors,
    unregistered,
)
from devexplorer.core.models.loading import as_now
from devexplorer.core.models.walk import computed_by_torch
from devexplorer.core.records import (
    Answer,
    ApplyPatch,
    Check,
    Checked,
    DeviceInfo,
    Diagnosis,
    DoctorRequest,
    Fact,
    Finding,
    Offer,
)
from devexplorer.core.records.doctor import SEVERITIES
from devexplorer.core.workspace import CommandResult, Refused, Target, Workspace


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
        size = sum(hop.bytes for hop in latest)
        yield _finding(
            "device-hop",
            "",
            f"The latest forward of {name} carried {bytes_text(size)} between {' and '.join(devices)}"
            f" ({count_text(len(latest), 'hop')}).",
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
                joined(path, name),
                f"self.{name} is on {there} now, and the model on {here}: a call that uses it as it is"
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


MOST_SAID = 3
"""Problems that the words tell; the tree and the doctor's panel show all."""


def answer(name: str, diagnosis: Diagnosis, request: DoctorRequest | None) -> Answer:
    """The answer to a check; not failed, whatever was found: it was checked."""
    return Answer(
        title=f"{name}: {verdict(diagnosis)}",
        words=_words(diagnosis),
        facts=tuple(_facts(diagnosis)),
        code=_code(name, diagnosis, request),
        subject=name,
    )


def _words(diagnosis: Diagnosis) -> str:
    simulated = f" (a simulated {diagnosis.device_name})" if diagnosis.simulated else ""
    parts = [f"The doctor looked at it for {diagnosis.device}{simulated}; nothing of it ran."]
    if diagnosis.inputs:
        parts = [
            f"The doctor rebuilt it in a separate process, moved it to {diagnosis.device}{simulated} and watched"
            f" {passes(diagnosis)}."
        ]
    if not diagnosis.problems and not diagnosis.unchecked:
        parts.append("Every tensor is where it should be.")
    parts += map(sentence, diagnosis.problems[:MOST_SAID])
    more = len(diagnosis.problems) - MOST_SAID
    if more > 0:
        parts.append(f"The Doctor tab lists {count_text(more, 'more problem')}.")
    parts += [f"Not checked: {item.what}; {item.reason}" for item in diagnosis.unchecked]
    return " ".join(parts)


def sentence(finding: Finding) -> str:
    """What is wrong and what would be right, with the line."""
    where = f"{os.path.basename(finding.file)}, line {finding.line}: " if finding.line else ""
    return f"{where}{finding.message} {finding.fix}"


def _facts(diagnosis: Diagnosis) -> list[Fact]:
    simulated = " (simulated)" if diagnosis.simulated else ""
    of = {severity: [item for item in diagnosis.problems if item.severity == severity] for severity in SEVERITIES}
    rows = {
        "device": f"{diagnosis.device}, {diagnosis.device_name}{simulated}",
        "inputs": diagnosis.inputs,
        "watched": count_text(diagnosis.operations, "operation"),
        "errors": _titles(of["error"]) or "none",
        "warnings": _titles(of["warning"]) or "none",
        "notes": _titles(diagnosis.notes),
        "without a gradient": without_gradient(diagnosis),
        "examined as written, without": ", ".join(dict.fromkeys(item.what for item in diagnosis.uncompiled)),
        "not checked": ", ".join(dict.fromkeys(item.what for item in diagnosis.unchecked)),
    }
    return [Fact(name, text) for name, text in rows.items() if text]


def _titles(findings: Sequence[Finding]) -> str:
    titles = []
    for rule, count in Counter(item.rule for item in findings).items():
        titles.append(f"{count} × {RULES[rule].title}" if count > 1 else RULES[rule].title)
    return ", ".join(titles)


def _code(name: str, diagnosis: Diagnosis, request: DoctorRequest | None) -> str:
    """The same in your own test; in a script it prints what it finds and goes on."""
    call = [variable(name), quoted(diagnosis.device), "allow_unchecked=True"]
    if request is not None:
        call = [quoted(request.source), quoted(request.device)]
        if request.inputs:
            call.append(quoted(request.inputs))
        if request.train:
            call.append("train=True")
        for key in ("folder", "virtual", "dtype"):
            if value := getattr(request, key):
                call.append(f"{key}={quoted(value)}")
        if request.seed:
            call.append(f"seed={request.seed}")
    lines = [
        "from devexplorer import assert_placement_clean",
        "",
        "try:",
        f"    assert_placement_clean({', '.join(call)})",
        "except AssertionError as _error:",
        "    print(_error)",
    ]
    return "\n".join(lines)


def check(workspace: Workspace, command: Check, progress: ProgressMonitor) -> CommandResult:
    """What the doctor says. Changes nothing; raises `BadInput` where there is nothing to check or no such device,
    `Cancelled`."""
    target = workspace.target(object_name(command.target))
    name, model = target.name, target.module
    device = workspace.registry.choose(command.device)
    if command.inputs.strip():
        parse_inputs(command.inputs)
    extras = workspace.extras(name)
    request = _request(workspace, target, replace(command, device=device))
    if request is None:
        found = examined_here(name, model, workspace.registry.info(device))
    else:
        progress.report(0.0, f"{name} is rebuilt")
        found = diagnosed(request, _of_object(progress, name))
    found = _with_live(found, name, model, extras)
    if extras.own_code:
        extras.checked, extras.checked_files = found, as_now(extras.files)
    if command.quiet:
        return CommandResult(Answer(title="", words=""), events=(Checked(target=name, diagnosis=found),))
    said = answer(name, found, request)
    words, offers = rebuilding(workspace, name)
    if words:
        said = replace(said, words=f"{said.words} The files were checked as they are now. {words}", offers=offers)
    return CommandResult(said, events=(Checked(target=name, diagnosis=found),))


def apply_patch(workspace: Workspace, command: ApplyPatch, progress: ProgressMonitor) -> CommandResult:
    """The user's file with the fix; the model here is left as it is. Raises `Refused` when the file is another one
    now."""
    name, again = os.path.basename(command.file), Offer(f"Check {command.target} again", command.again)
    try:
        kept = apply(command.file, command.patch, command.digest)
    except BadInput as error:
        raise Refused(*error.findings, offers=(again,)) from error
    still, offers = rebuilding(workspace, command.target)
    words = f"The previous file is kept as {kept.name}. {still}".rstrip()
    facts = (Fact("file", command.file), Fact("previous file", str(kept)))
    return CommandResult(
        Answer(title=f"{name} was changed", words=words, facts=facts, subject=command.target, offers=(*offers, again))
    )


def _request(workspace: Workspace, target: Target, command: Check) -> DoctorRequest | None:
    """What makes the same model on the same kind of device elsewhere; None where its source is unknown."""
    extras = workspace.extras(target.name)
    made = blueprint(target, extras)
    if made is None:
        return None
    virtual = [info.name for info in workspace.registry.infos() if info.kind == "virtual" and info.usable]
    return DoctorRequest(
        source=made.source,
        folder=made.folder,
        device=command.device,
        virtual=", ".join(virtual),
        train=command.train,
        training=target.module.training,
        inputs=command.inputs or made.inputs,
        dtype=made.dtype,
        seed=extras.seed,
    )


def _of_object(progress: ProgressMonitor, name: str) -> ProgressMonitor:
    """The process does not know which object its model is like."""
    return progress._replace(
        report=lambda done, text, part="", /: progress.report(done, text, f"{name}:{part}" if part else "")
    )


def _with_live(found: Diagnosis, name: str, model: nn.Module, extras: Extras) -> Diagnosis:
    known = {item.path for item in (*found.problems, *found.notes) if item.rule == "unregistered-tensor"}
    every = [*found.problems, *found.notes]
    every += [item for item in live_findings(name, model, extras) if item.path not in known]
    every.sort(key=lambda item: SEVERITIES.index(item.severity))
    notes = tuple(item for item in every if item.severity == "note")
    return replace(found, target=name, problems=tuple(every[: len(every) - len(notes)]), notes=notes)


def explain(module: nn.Module, inputs: Sequence[Tensor]) -> Finding | None:
    """Run the module once more, watched, as far as the operation that failed. Parts that fetch their inputs have no
    such cause."""
    if fetches_inputs(module):
        return None
    from devexplorer.core.doctor.tracing.op_tracer import (
        cause,  # what it brings along is needed only when something failed
    )

    return cause(module, inputs)
