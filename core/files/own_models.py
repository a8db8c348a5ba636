"""Carries out `OpenModel` and `RunModelCode`: a model of the user's code is tried in a separate process and built; one
of a workspace file gets its code, and has what was done to it. Jobs thread.

A tensor of the same path, kind and shape is the very same object afterwards: ties, gradients, devices and the state of
an optimizer come along. Where only its kind differs (a tensor that is registered now), its values are copied.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    Findings,
    Message,
    ProgressMonitor,
    bytes_text,
    count_text,
    list_text,
    python_names,
    quoted,
    variable,
)
from devexplorer.core.commands import messages
from devexplorer.core.feature import named
from devexplorer.core.files.entries import shown
from devexplorer.core.files.records import OpenModel, RunModelCode
from devexplorer.core.isolation.model_classes import meant
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.isolation.source_location import SourceLocation, code_lines
from devexplorer.core.models import (
    CrossingHooks,
    Extras,
    ModelOrigin,
    StoredModule,
    adopt,
    builders,
    dtype_name,
    model_dtype,
    parse_inputs,
    samples,
    split_by_hand,
)
from devexplorer.core.models.builders import every_slot
from devexplorer.core.models.loading import changed
from devexplorer.core.models.walk import (
    RegisteredIds,
    is_uninitialised,
    named_modules,
    parameters_and_buffers,
    unregistered,
)
from devexplorer.core.records import (
    Answer,
    Checked,
    Diagnosis,
    Fact,
    Finding,
    ObjectSnapshot,
    Offer,
    Unchecked,
)
from devexplorer.core.records.doctor import CHANGED
from devexplorer.core.workspace import (
    CommandResult,
    CreateChange,
    ExchangeChange,
    Refused,
    Target,
    Workspace,
    check_new_model,
    model_sizes,
)
from devexplorer.core.workspace.optimizer_state import optimizer_variable


def open_model(workspace: Workspace, command: OpenModel, progress: ProgressMonitor) -> CommandResult:
    """A model of the user's code or of a library. What its code changes in the process is reverted, except imports."""
    folder = os.path.abspath(command.folder or os.curdir)
    findings = Findings()  # everything that can be wrong before any code runs, together
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
    sizes = _tried(workspace, command, recipe, progress)
    check_new_model(sizes, device, dtype, workspace.registry)
    progress.stop_if_cancelled("no model was opened")
    text = recipe.source.text
    name = command.name.strip() if command.name else python_names.unique_name(recipe.source.stem, workspace.names)
    progress.report(0.5, f"building {text}")
    started = time.perf_counter()
    made = _made(workspace, recipe, command.seed)
    if not sizes:
        check_new_model(model_sizes(made.model), device, dtype, workspace.registry)
    stays = device == "cpu" and dtype is None
    move = ""
    if not stays:
        cast = "" if dtype is None else f", torch.{dtype_name(dtype)}"
        move = f".to({quoted(device)}{cast})"
    # what its maker or accelerate has split stays so, unless a device was asked for
    if not (stays and (hasattr(made.model, "hf_device_map") or split_by_hand(made.model))):
        dtype_text = None if dtype is None else dtype_name(dtype)
        workspace.mover.move([Target(name, "", made.model)], device, dtype_text, progress=progress)
    seconds = time.perf_counter() - started
    extras = Extras(source=text, folder=folder, files=recipe.files(), inputs=command.inputs, seed=command.seed)
    workspace.add(name, made.model, extras)
    workspace.changed(f"the new model {name}", CreateChange(name))
    snapshot = workspace.snapshot(name)
    return CommandResult(_answer(made, snapshot, command, seconds, move), (snapshot,))


def _tried(
    workspace: Workspace, command: OpenModel, recipe: builders.SourceRecipe, progress: ProgressMonitor
) -> builders.Sizes:
    """The sizes of its tensors, found without allocating them here; none where the model has to be built."""
    if not recipe.source.own_code:
        progress.report(0.0, f"looking at {recipe.source.text}")
        return recipe.sizes() or []
    try:
        result = workspace.trials.demand(recipe.source, recipe.folder, progress)
    except BadInput as error:
        offers = []
        for name in meant(recipe.source, recipe.folder):
            target, question, options = recipe.source.text.partition("?")
            there = f"{target.rpartition(':')[0]}:{name}{question}{options}"
            offers.append(Offer(f"Open {name}", replace(command, source=there, request=0)))
        if not offers:
            raise
        raise Refused(*error.findings, offers=tuple(offers)) from error
    sizes: builders.Sizes = []
    for dtype, elements, count in result.sizes:
        sizes += [(getattr(torch, dtype), elements)] * count
    return sizes


def _made(workspace: Workspace, recipe: builders.SourceRecipe, seed: int) -> builders.Made:
    """The model, which is a new one."""
    made = recipe.make(seed)
    for other in workspace.names:
        if workspace.get(other) is made.model:
            raise BadInput(
                f"'{recipe.source.text}' gave the very model that is already here as '{other}'; let it create a new one"
                " each time"
            )
    return made


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


NO_HOPS = " Its hops are missing: this installation has none."
_INDEX = re.compile(r"\[['\"]?(.*?)['\"]?\]")
_NAMED = 3
"""Paths that an answer names; the tree shows all."""


def run_model_code(workspace: Workspace, command: RunModelCode, progress: ProgressMonitor) -> CommandResult:
    """Build the model of a workspace file, whose tensors stay the very objects that they are; or build a complete one
    again."""
    name = workspace.model(command.target).name
    if command.again:
        return _rebuilt(workspace, name, progress)
    stored = workspace.get(name)
    if not isinstance(stored, StoredModule) or stored.origin is None:
        raise BadInput(f"'{name}' is a complete model already")
    origin = stored.origin
    model, extras = built(workspace, stored, origin, workspace.extras(name), progress)
    workspace.changed(f"the building of {name}", ExchangeChange(name, workspace.exchange(name, model, extras)))
    words = "It was built from its source and has the values, devices and flags of the workspace file."
    code = f"{variable(name)} = _opened.run_code({quoted(name)})"
    if extras.hops is not None:
        code += f"\n{extras.hops.python_of_opened(name)}"
    elif origin.hops:
        words += NO_HOPS
    facts = (Fact("source", origin.source or origin.recipe or ""),)
    answer = Answer(title=f"{name} can run again", words=words, facts=facts, code=code, subject=name)
    return CommandResult(answer, (workspace.snapshot(name),))


def built(
    workspace: Workspace, stored: nn.Module, origin: ModelOrigin, extras: Extras, progress: ProgressMonitor
) -> tuple[nn.Module, Extras]:
    """The model that its origin makes, with the stored tensors, and what is known about it. `BadInput` when there is
    none, or when it is another one now."""
    now = Extras(
        recipe=origin.recipe,
        source=origin.source,
        inputs=origin.inputs[:200],
        guessed=origin.guessed[:200],
        seed=origin.seed,
        optimizer=extras.optimizer,
        optimizer_text=extras.optimizer_text,
    )
    if origin.recipe is not None:
        if origin.recipe not in samples.recipes():
            raise BadInput(f"there is no sample model '{shown(origin.recipe)}' in this version")
        model = samples.build(origin.recipe, origin.seed)
    elif origin.source is not None:
        now.folder = os.path.abspath(origin.folder or os.curdir)
        recipe = builders.SourceRecipe(parse(origin.source), now.folder)
        model = _made_again(workspace, recipe, origin.seed, progress).model
        now.files = recipe.files()
    else:
        raise BadInput("the file does not know what made the model; its tensors can be loaded into another one")
    why = adopt(model, stored)
    if why is not None:
        raise BadInput(f"{origin.recipe or origin.source} makes another model now: {why}")
    if origin.hops:
        now.hops = _hops(workspace, model)
    return model, now


def _made_again(
    workspace: Workspace, recipe: builders.SourceRecipe, seed: int, progress: ProgressMonitor
) -> builders.Made:
    if recipe.source.own_code:
        workspace.trials.demand(recipe.source, recipe.folder, progress)
    progress.stop_if_cancelled("no model was built")
    return _made(workspace, recipe, seed)


def _hops(workspace: Workspace, model: nn.Module) -> CrossingHooks | None:
    """None: no feature has any."""
    for make in named("hops"):
        hops: CrossingHooks = make(model, workspace.registry)
        hops.attach()
        return hops
    return None


def _rebuilt(workspace: Workspace, name: str, progress: ProgressMonitor) -> CommandResult:
    """Build it again from its source, as it is now; the former one stays for Undo."""
    former, extras = workspace.model(name).module, workspace.extras(name)
    if not extras.own_code:
        raise BadInput(f"'{name}' was not opened from a Python file or module, so it cannot be rebuilt from one")
    recipe = builders.SourceRecipe(parse(extras.source or ""), extras.folder)
    place = recipe.source.place_name
    made = _made_again(workspace, recipe, extras.seed, progress)
    model = made.model
    done = hand_over(model, former)
    now = with_fields(extras, files=recipe.files(), guessed="", hops=None)
    words = [f"It runs the code of {place} as it is now. Undo restores the former model."]
    code = [
        "from devexplorer import hand_over",
        made.code.text("_made", extras.seed, made.changes),  # names of objects never begin with an underscore
        f"hand_over(_made, {variable(name)}, fresh={done.new!r})",
        f"{variable(name)} = _made",
    ]
    lost = f"no longer there ({bytes_text(done.lost_bytes)})"
    for paths, what in ((done.new, "with initial values"), (done.lost, lost)):
        if paths:
            more = [f"{len(paths) - _NAMED:,} more"] if len(paths) > _NAMED else []
            words.append(f"{count_text(len(paths), 'tensor')} {what}: {list_text([*paths[:_NAMED], *more])}.")
    events: tuple[Checked, ...] = ()
    if extras.checked is not None:
        # a check of these very files is about the new model
        now.checked = still_found(extras.checked) if changed(extras.checked_files) else extras.checked
        events = (Checked(target=name, diagnosis=now.checked),)
    if extras.optimizer is not None and not _fits(extras.optimizer, model):
        now.optimizer = now.optimizer_text = None
        code.append(f"del {optimizer_variable(name)}")
        words.append(f"Its optimizer ({extras.optimizer_text}) does not fit the new parameters and was removed.")
    if extras.hops is not None:
        now.hops = _hops(workspace, model)
        code.append(extras.hops.python(name))
    previous = workspace.exchange(name, model, now)
    workspace.changed(f"the rebuilding of {name}", ExchangeChange(name, previous, done.lost_bytes))
    tensors = count_text(len(done.carried) + len(done.new), "tensor")
    answer = Answer(
        title=f"{name} was rebuilt from {place}",
        words=" ".join(words),
        facts=(
            Fact("source", recipe.source.text),
            Fact("values carried over", f"{len(done.carried):,} of {tensors}"),
        ),
        code="\n".join(code),
        subject=name,
    )
    return CommandResult(answer, (workspace.snapshot(name),), events=events)


def _fits(optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
    """Whether it trains parameters of the model alone, and all that require a gradient."""
    trained: set[int] = set()
    for group in optimizer.param_groups:
        trained.update(map(id, group["params"]))
    wanted = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return wanted <= trained <= set(map(id, model.parameters()))


def still_found(checked: Diagnosis) -> Diagnosis:
    """What a check found on lines that are as they were; of the rest nothing is known until the next check."""
    unchecked = [item for item in checked.unchecked if item.what != CHANGED]
    unchecked.append(Unchecked(what=CHANGED, reason=Message("It changed after this check; check again.")))
    return replace(
        checked,
        problems=tuple(filter(_is_still_there, checked.problems)),
        notes=tuple(filter(_is_still_there, checked.notes)),
        no_gradient=(),
        unchecked=tuple(unchecked),
    )


def _is_still_there(finding: Finding) -> bool:
    lines = []
    for code in (finding.code, code_lines(SourceLocation(finding.file, finding.line, ""))):
        index = -1 if code is None else finding.line - code.first
        lines.append("" if code is None or not 0 <= index < len(code.lines) else code.lines[index])
    return lines[0] == lines[1]


# --- what is offered where the files have changed


def rebuilding(workspace: Workspace, name: str) -> tuple[str, tuple[Offer, ...]]:
    """Which files have changed since the model was made of them, as a sentence, and the way out; empty where none
    has."""
    extras = workspace.extras(name) if name in workspace.names else Extras()
    if not extras.outdated or not extras.own_code:
        return "", ()
    place = parse(extras.source or "").place_name
    files = list_text(list(map(os.path.basename, extras.outdated)))
    words = f"{name} here still uses the previous code: {files} changed after it was built."
    return words, (Offer(f"Rebuild {name} from {place}", RunModelCode(target=name, again=True)),)


# --- what fits of the former model


@dataclass
class Handover:
    """What became of the tensors; paths."""

    carried: list[str] = field(default_factory=list)
    """Have the former values."""
    new: list[str] = field(default_factory=list)
    """Have the values that the code gives them."""
    lost: list[str] = field(default_factory=list)
    """Tensors of the former model that this one has no place for."""
    lost_bytes: int = 0
    """Memory of everything that only the former model has."""


def hand_over(model: nn.Module, former: nn.Module, fresh: Collection[str] = ()) -> Handover:
    """Give the model what fits: tensors, and each part's mode. What is new goes to the device and the dtype of what is
    around it; raises what that raises, and the former model has not changed.

    `fresh`: paths that are new whatever the former model has. A session's script names them: its former model is made
    by the code as it is now, too."""
    result = Handover()
    registered = {path: tensor for path, _, _, tensor in every_slot(former)}
    former_tensors = {**_hidden(former), **registered}
    for path in fresh:
        former_tensors.pop(path, None)
    dtypes = {tensor.dtype for tensor in former.parameters() if tensor.is_floating_point()}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    made: dict[int, Tensor] = {}
    given: set[int] = set()
    for path, part, name, tensor in list(every_slot(model)):
        old = former_tensors.get(path)
        same = old is not None and not is_uninitialised(old) and tensor.shape == old.shape
        if id(tensor) not in made:
            new = _placed(tensor, _near(path, registered), dtype)
            if old is not None and path in registered and id(old) not in given and _interchangeable(tensor, old):
                new = old
            elif old is not None and same:
                with torch.no_grad():
                    new.copy_(old)
            made[id(tensor)] = new
            given.add(id(new))
        setattr(part, name, made[id(tensor)])  # a module's own __setattr__ does more: an LSTM lists its weights
        (result.carried if same else result.new).append(path)
    here = set(map(id, parameters_and_buffers(model)))
    for path, tensor in former_tensors.items():
        if path not in result.carried and path not in result.new:
            result.lost.append(path)
        if id(tensor) not in here and not is_uninitialised(tensor):
            result.lost_bytes += tensor.nbytes
            here.add(id(tensor))
    modes = {path: part.training for path, part in former.named_modules(remove_duplicate=False)}
    for path, part in model.named_modules(remove_duplicate=False):
        part.training = modes.get(path, former.training)
    return result


def _interchangeable(tensor: Tensor, old: Tensor) -> bool:
    if isinstance(tensor, nn.Parameter) != isinstance(old, nn.Parameter):
        return False
    if is_uninitialised(tensor) or is_uninitialised(old):
        return is_uninitialised(tensor) and is_uninitialised(old)
    return tensor.shape == old.shape


def _near(path: str, registered: dict[str, Tensor]) -> Tensor | None:
    """The tensor of this path, or one in the same part of the former model, or in the next one around it."""
    if path in registered:
        return registered[path]
    while path:
        path = path.rpartition(".")[0]
        for other, tensor in registered.items():
            if not path or other.startswith(f"{path}."):
                return tensor
    return None


def _placed(tensor: Tensor, near: Tensor | None, dtype: torch.dtype | None) -> Tensor:
    """A tensor of the new model where the other one is."""
    if is_uninitialised(tensor) or near is None:
        return tensor
    moved = tensor.detach().to(near.device, dtype if tensor.is_floating_point() else None)
    return nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else moved


def _hidden(model: nn.Module) -> dict[str, Tensor]:
    """Tensors that are not registered, under the paths that they have when their list is one of torch's."""
    modules = named_modules(model)
    known = RegisteredIds(modules)
    found: dict[str, Tensor] = {}
    for path, part in modules:
        for key, thing in unregistered(part, known):
            at = ".".join(filter(None, (path, _INDEX.sub(r".\1", key))))
            if isinstance(thing, Tensor):
                found[at] = thing
            else:
                found |= {f"{at}.{inner}": tensor for inner, _, _, tensor in every_slot(thing)}
    return found
