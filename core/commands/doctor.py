"""Carries out `Check`: has a model like this one examined in a process of its own, and looks at the very one there is.
Jobs thread."""

from __future__ import annotations

from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.doctor.live import messages
from devexplorer.core.doctor.live.examine import live_findings
from devexplorer.core.doctor.live.unsourced import examined_here
from devexplorer.core.models.casts import dtype_name
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.inputs import parse_inputs
from devexplorer.core.records.doctor import Check, Checked, Diagnosis, DoctorRequest
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.workspace import Workspace


def check(workspace: Workspace, command: Check, progress: ProgressMonitor) -> CommandResult:
    """What the doctor says. Changes nothing; raises `BadInput` where there is nothing to check or no such device,
    `Cancelled`."""
    name = command.target.partition(":")[0]
    model = workspace.get(name)
    if isinstance(model, Tensor):
        raise BadInput(f"'{name}' is a tensor, and the doctor checks models")
    device = workspace.registry.choose(command.device)
    if command.inputs.strip():
        parse_inputs(command.inputs)
    extras = workspace.extras(name)
    request = _request(workspace.registry, model, extras, replace(command, device=device))
    if request is None:
        found = examined_here(name, model, workspace.registry.info(device))
    else:
        progress.report(0.0, f"{name} is made again")
        found = diagnosed(request, progress)
    found = _with_live(found, name, model, extras)
    return CommandResult(messages.answer(name, found, request), events=(Checked(target=name, diagnosis=found),))


def _request(fleet: DeviceRegistry, model: nn.Module, extras: Extras, command: Check) -> DoctorRequest | None:
    """What makes the same model on the same kind of device elsewhere; None where its source is unknown."""
    source = extras.recipe or extras.source
    if source is None:
        return None
    virtual = [info.name for info in fleet.infos() if info.kind == "virtual" and info.usable]
    dtypes = {dtype_name(one.dtype) for one in model.parameters() if one.is_floating_point()}
    return DoctorRequest(
        source=source,
        folder=extras.folder if extras.recipe is None else "",
        device=command.device,
        virtual=", ".join(virtual),
        train=command.train,
        inputs=command.inputs or extras.inputs or (extras.guessed if extras.recipe is None else ""),
        dtype=dtypes.pop() if len(dtypes) == 1 and dtypes != {"float32"} else None,
        seed=extras.seed,
    )


def _with_live(found: Diagnosis, name: str, model: nn.Module, extras: Extras) -> Diagnosis:
    live = live_findings(name, model, extras)
    errors = [one for one in (*found.problems, *live) if one.severity == "error"]
    warnings = [one for one in (*found.problems, *live) if one.severity == "warning"]
    notes = [*found.notes, *(one for one in live if one.severity == "note")]
    return replace(found, target=name, problems=(*errors, *warnings), notes=tuple(notes))
