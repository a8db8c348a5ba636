"""Carries out `Check` (a separate process examines a model like this one; then the live one is examined) and
`ApplyPatch`. Jobs thread."""

from __future__ import annotations

import os

from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import BadInput, ProgressMonitor, object_name
from devexplorer.core.commands.handlers import blueprint
from devexplorer.core.commands.refusals import rebuilding
from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.doctor.code.patches import apply
from devexplorer.core.doctor.live import messages
from devexplorer.core.doctor.live.examine import examined_here, live_findings
from devexplorer.core.models import Extras, parse_inputs
from devexplorer.core.models.loading import as_now
from devexplorer.core.records import Answer, ApplyPatch, Check, Checked, Diagnosis, DoctorRequest, Fact, Offer
from devexplorer.core.workspace import CommandResult, Refused, Target, Workspace


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
    answer = messages.answer(name, found, request)
    words, offers = rebuilding(workspace, name)
    if words:
        answer = replace(answer, words=f"{answer.words} The files were checked as they are now. {words}", offers=offers)
    return CommandResult(answer, events=(Checked(target=name, diagnosis=found),))


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
    live = [item for item in live_findings(name, model, extras) if item.path not in known]
    every = (*found.problems, *live)
    problems = [item for severity in ("error", "warning") for item in every if item.severity == severity]
    notes = [*found.notes, *(item for item in live if item.severity == "note")]
    return replace(found, target=name, problems=tuple(problems), notes=tuple(notes))
