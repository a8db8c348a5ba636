"""Carries out `OpenModel`: check, try in a separate process, build, move to its device, say what it is. Jobs
thread."""

from __future__ import annotations

import os
import time

import msgspec
import torch

from devexplorer.core.base import BadInput, Findings, ProgressMonitor, count_text, python_names
from devexplorer.core.commands import messages
from devexplorer.core.files.records import OpenModel
from devexplorer.core.isolation.model_classes import meant
from devexplorer.core.isolation.model_source import Source, parse
from devexplorer.core.models import Extras, builders, dtype_name, model_dtype, parse_inputs, split_by_hand
from devexplorer.core.records import Answer, Fact, ObjectSnapshot, Offer
from devexplorer.core.workspace import (
    CommandResult,
    CreateChange,
    Refused,
    Target,
    Workspace,
    check_new_model,
    model_sizes,
)


def open_model(workspace: Workspace, command: OpenModel, progress: ProgressMonitor) -> CommandResult:
    """A model of the user's code or of a library. What its code changes in the process is reverted, except imports."""
    folder = os.path.abspath(command.folder or os.curdir)
    recipe, device, dtype = _checked(workspace, command, folder)
    sizes = _tried(workspace, command, recipe, folder, progress)
    check_new_model(sizes, device, dtype, workspace.registry)
    progress.stop_if_cancelled("no model was opened")
    name = command.name.strip() if command.name else python_names.unique_name(recipe.source.stem, workspace.names)
    progress.report(0.5, f"building {recipe.source.text}")
    started = time.perf_counter()
    made = recipe.make(command.seed)
    same = next((other for other in workspace.names if workspace.get(other) is made.model), None)
    if same is not None:
        raise BadInput(
            f"'{recipe.source.text}' gave the very model that is already here as '{same}'; let it create a new one each"
            " time"
        )
    if not sizes:
        check_new_model(model_sizes(made.model), device, dtype, workspace.registry)
    dtype_text = None if dtype is None else dtype_name(dtype)
    placed = hasattr(made.model, "hf_device_map") or split_by_hand(made.model)
    as_it_lies = placed and device == "cpu" and dtype is None
    if not as_it_lies:  # what its maker or accelerate has split stays so, unless a device was asked for
        workspace.mover.move([Target(name, "", made.model)], device, dtype_text, progress=progress)
    seconds = time.perf_counter() - started
    text, files = recipe.source.text, recipe.files()
    extras = Extras(source=text, folder=folder, files=files, inputs=command.inputs, seed=command.seed)
    workspace.add(name, made.model, extras)
    workspace.changed(f"the new model {name}", CreateChange(name))
    snapshot = workspace.snapshot(name)
    stays = as_it_lies or (device == "cpu" and dtype is None)
    move = ""
    if not stays:
        cast = f", torch.{dtype_text}" if dtype_text else ""
        move = f".to({python_names.quoted(device)}{cast})"
    return CommandResult(_answer(made, snapshot, command, seconds, move), (snapshot,))


def _checked(
    workspace: Workspace, command: OpenModel, folder: str
) -> tuple[builders.SourceRecipe, str, torch.dtype | None]:
    """Everything that can be wrong before any code runs, together."""
    findings = Findings()
    source = findings.checked(lambda: parse(command.source))
    device = findings.checked(lambda: workspace.registry.choose(command.device))
    dtype = findings.checked(lambda: None if command.dtype is None else model_dtype(command.dtype))
    findings.checked(lambda: command.name and workspace.new_name(command.name, ""))
    findings.checked(lambda: command.inputs.strip() and parse_inputs(command.inputs))
    if command.folder and not os.path.isdir(folder):
        findings.add(f"there is no folder {folder}")
    recipe = None if source is None else findings.checked(lambda: builders.SourceRecipe(source, folder))
    findings.demand_none()
    assert recipe is not None
    assert device is not None
    return recipe, device, dtype


def _tried(
    workspace: Workspace, command: OpenModel, recipe: builders.SourceRecipe, folder: str, progress: ProgressMonitor
) -> builders.Sizes:
    """The sizes of its tensors, found without allocating them here; none where the model has to be built."""
    if not recipe.source.own_code:
        progress.report(0.0, f"looking at {recipe.source.text}")
        return recipe.sizes() or []
    try:
        result = workspace.trials.demand(recipe.source, folder, progress)
    except BadInput as error:
        offers = tuple(_instead(name, recipe.source, command) for name in meant(recipe.source, folder))
        if not offers:
            raise
        raise Refused(*error.findings, offers=offers) from error
    return [(getattr(torch, dtype), elements) for dtype, elements, count in result.sizes for _ in range(count)]


def _instead(name: str, source: Source, command: OpenModel) -> Offer:
    target, question, options = source.text.partition("?")
    there = f"{target.rpartition(':')[0]}:{name}{question}{options}"
    return Offer(f"Open {name}", msgspec.structs.replace(command, source=there, request=0))


def _answer(made: builders.Made, snapshot: ObjectSnapshot, command: OpenModel, seconds: float, move: str) -> Answer:
    text = f"{snapshot.type}, {made.summary}.{messages.contents(snapshot, seconds)}"
    if made.changes.words:
        text += f" While it was made it changed {' and '.join(made.changes.words)}: that was reverted."
    facts = [Fact("source", command.source)]
    if made.source.own_code:
        facts.append(Fact("folder", made.source.home(command.folder)))
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
