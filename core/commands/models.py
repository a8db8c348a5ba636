"""Carries out `OpenModel`: check, try in a process of its own, build, move to its device, say what it is. Jobs
thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.formats import count_text
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.commands import messages
from devexplorer.core.models import build, loading
from devexplorer.core.models.casts import dtype_name, model_dtype
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.inputs import parse_inputs
from devexplorer.core.models.source import parse
from devexplorer.core.models.trial import TrialCancelled
from devexplorer.core.records.laboratory import OpenModel
from devexplorer.core.records.messages import Answer, Fact
from devexplorer.core.records.objects import ObjectSnapshot
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.fit import check_sizes, model_sizes
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.plan import MoveTarget

if TYPE_CHECKING:
    from torch import Tensor

    from devexplorer.core.workspace.workspace import Workspace

T = TypeVar("T")


def open_model(workspace: Workspace, command: OpenModel, progress: ProgressMonitor) -> CommandResult:
    """A model of somebody else's in the workspace. Nothing that its code does to the process stays, but for what it
    imports."""
    folder = os.path.abspath(command.folder or os.curdir)
    recipe, device, dtype = _checked(workspace, command, folder)
    sizes = _tried(workspace, recipe, folder, progress)
    for where, kind in {("cpu", None), (device, dtype)}:
        check_sizes(
            [_cast(one, kind).itemsize * elements for one, elements in sizes], where, workspace.registry, "this model"
        )
    if progress.cancelled():
        raise TrialCancelled("cancelled; no model was opened")
    name = command.name.strip() if command.name else python_names.unique_name(recipe.source.stem, workspace.names)
    progress.report(0.5, f"building {recipe.source.text}")
    started = time.perf_counter()
    made = recipe.make(command.seed)
    same = next((other for other in workspace.names if workspace.get(other) is made.model), None)
    if same is not None:
        raise BadInput(
            f"'{recipe.source.text}' gave the very model that is here as '{same}' already; let it make a new one each"
            " time"
        )
    for where, kind in {("cpu", None), (device, dtype)} if not sizes else ():
        check_sizes(model_sizes(made.model, kind), where, workspace.registry, "this model")
    dtype_text = None if dtype is None else dtype_name(dtype)
    dispatched = hasattr(made.model, "hf_device_map") and device == "cpu" and dtype is None
    if not dispatched:  # what accelerate has placed stays where its own map says, unless somebody asks for a device
        Mover(workspace.registry).move([MoveTarget(name, "", made.model)], device, dtype_text, _bind_nothing, progress)
    seconds = time.perf_counter() - started
    workspace.add(name, made.model, Extras(source=recipe.source.text, folder=folder, inputs=command.inputs))
    workspace.changed(f"the new model {name}", CreateChange((name,)), command=command)
    snapshot = workspace.snapshot(name)
    stays = dispatched or (device == "cpu" and dtype is None)
    move = "" if stays else f".to({python_names.quoted(device)}{f', torch.{dtype_text}' if dtype_text else ''})"
    return CommandResult(_answer(made, snapshot, command, seconds, move), (snapshot,))


def _checked(workspace: Workspace, command: OpenModel, folder: str) -> tuple[build.Recipe, str, torch.dtype | None]:
    """Everything that can be wrong before any code runs, together."""
    findings: list[str] = []
    helps = False

    def take(what: Callable[[], T]) -> T | None:
        nonlocal helps
        try:
            return what()
        except BadInput as error:
            findings.extend(error.findings)
            helps |= error.virtual_helps
            return None

    source = take(lambda: parse(command.source))
    device = take(lambda: workspace.registry.choose(command.device))
    dtype = take(lambda: None if command.dtype is None else model_dtype(command.dtype))
    take(lambda: command.name and python_names.checked_name(command.name, workspace.names))
    take(lambda: command.inputs.strip() and parse_inputs(command.inputs))
    if command.folder and not os.path.isdir(folder):
        findings.append(f"there is no folder {folder}")
    recipe = None if source is None else take(lambda: build.Recipe(source, folder))
    if findings or recipe is None or device is None:
        raise BadInput(*findings, virtual_helps=helps)
    return recipe, device, dtype


def _tried(workspace: Workspace, recipe: build.Recipe, folder: str, progress: ProgressMonitor) -> build.Sizes:
    """The sizes of its tensors, found out without allocating them here; none where only the real making tells."""
    if not recipe.source.own_code:
        progress.report(0.0, f"looking at {recipe.source.text}")
        return recipe.sizes() or []
    result = workspace.trials.demand(recipe.source, folder, progress)
    return [(getattr(torch, dtype), elements) for dtype, elements, count in result.sizes for _ in range(count)]


def _cast(own: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    return wanted if wanted is not None and own.is_floating_point else own


def _bind_nothing(name: str, tensor: Tensor) -> None:
    """A model has no names to bind."""


def _answer(made: build.Made, snapshot: ObjectSnapshot, command: OpenModel, seconds: float, move: str) -> Answer:
    text = f"{snapshot.type}, {made.summary}.{messages.contents(snapshot, seconds)}"
    if made.changes.words:
        text += (
            f" While it was made it changed {' and '.join(made.changes.words)}: that is taken back, so that nothing"
            " else feels it."
        )
    facts = [Fact("source", command.source)]
    if made.source.own_code:
        facts.append(Fact("folder", loading.home_of(made.source, command.folder)))
    else:
        facts.append(Fact("values", f"random, seed {command.seed}; a checkpoint can be loaded into it"))
    facts.append(Fact("modules", count_text(sum(row.kind == "module" for row in snapshot.rows), "module")))
    if command.inputs:
        facts.append(Fact("inputs", command.inputs))
    code = made.code.text(python_names.variable(snapshot.name), command.seed, made.changes, move)
    where = " and ".join(snapshot.bytes_by_device) or command.device
    return Answer(
        title=f"{snapshot.name} is on {where}", words=text, facts=tuple(facts), code=code, subject=snapshot.name
    )
