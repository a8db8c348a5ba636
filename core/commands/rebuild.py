"""Carries out `RunModelCode`: the model of a workspace file gets its code, one that was opened from the user's code is
built again. Jobs thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import (
    BadInput,
    Message,
    ProgressMonitor,
    bytes_text,
    count_text,
    list_text,
    object_name,
    quoted,
    variable,
)
from devexplorer.core.feature import named
from devexplorer.core.files.entries import shown
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.isolation.source_location import SourceLocation, code_lines
from devexplorer.core.models import CrossingHooks, Extras, Origin, StoredModule, adopt, builders, samples
from devexplorer.core.models.handover import Handover, hand_over
from devexplorer.core.models.loading import changed
from devexplorer.core.records import (
    Answer,
    Backward,
    Check,
    Checked,
    CodeLines,
    Command,
    Diagnosis,
    Fact,
    Finding,
    Forward,
    Offer,
    RunModelCode,
    Steps,
    TrainStep,
    Unchecked,
)
from devexplorer.core.workspace import CommandResult, ExchangeChange, Workspace
from devexplorer.core.workspace.parameters.optimizers import optimizer_variable

NO_HOPS = " Its hops are missing: this installation has none."
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
    model, extras = built(workspace, stored, stored.origin, workspace.extras(name), progress)
    workspace.changed(f"the building of {name}", ExchangeChange(name, workspace.exchange(name, model, extras)))
    origin = stored.origin
    words = "It was built from its source and has the values, devices and flags of the workspace file."
    facts = (Fact("source", origin.source or origin.recipe or ""),)
    snapshot = workspace.snapshot(name)
    code = f"{variable(name)} = _opened.run_code({quoted(name)})"
    if origin.hops and extras.hops is None:
        words += NO_HOPS
    if extras.hops is not None:
        code += f"\n{extras.hops.python_of_opened(name)}"
    answer = Answer(title=f"{name} can run again", words=words, facts=facts, code=code, subject=name)
    return CommandResult(answer, (snapshot,))


def built(
    workspace: Workspace, stored: nn.Module, origin: Origin, extras: Extras, progress: ProgressMonitor
) -> tuple[nn.Module, Extras]:
    """The model that its origin makes, with the stored tensors, and what is known about it. `BadInput` when there is
    none, or when it is another one now."""
    files = {}
    if origin.recipe is not None:
        if origin.recipe not in samples.recipes():
            raise BadInput(f"there is no sample model '{shown(origin.recipe)}' in this version")
        model, folder = samples.build(origin.recipe, origin.seed), ""
    elif origin.source is not None:
        folder = os.path.abspath(origin.folder or os.curdir)
        recipe = builders.Recipe(parse(origin.source), folder)
        model, files = _made(workspace, recipe, origin.seed, progress).model, recipe.files()
    else:
        raise BadInput("the file does not know what made the model; its tensors can be loaded into another one")
    why = adopt(model, stored)
    if why is not None:
        raise BadInput(f"{origin.recipe or origin.source} makes another model now: {why}")
    made = Extras(
        recipe=origin.recipe,
        source=origin.source,
        folder=folder,
        files=files,
        inputs=origin.inputs[:200],
        guessed=origin.guessed[:200],
        seed=origin.seed,
        optimizer=extras.optimizer,
        optimizer_text=extras.optimizer_text,
        hops=_hops(workspace, model) if origin.hops else None,
    )
    return model, made


def _made(workspace: Workspace, recipe: builders.Recipe, seed: int, progress: ProgressMonitor) -> builders.Made:
    if recipe.source.own_code:
        workspace.trials.demand(recipe.source, recipe.folder, progress)
    progress.stop_if_cancelled("no model was built")
    made = recipe.make(seed)
    if any(workspace.get(other) is made.model for other in workspace.names):
        raise BadInput(f"'{recipe.source.text}' gave a model that is already here; let it create a new one each time")
    return made


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
    recipe = builders.Recipe(parse(extras.source or ""), extras.folder)
    made = _made(workspace, recipe, extras.seed, progress)
    model = made.model
    done = hand_over(model, former)
    now = with_fields(extras, files=recipe.files(), guessed="", hops=None)
    events: tuple[Checked, ...] = ()
    if extras.checked is not None and changed(extras.checked_files):
        now.checked = still_found(extras.checked)
        events = (Checked(target=name, diagnosis=now.checked),)
    trained = (
        [] if extras.optimizer is None else [p for group in extras.optimizer.param_groups for p in group["params"]]
    )
    wanted = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    fits = wanted <= set(map(id, trained)) <= set(map(id, model.parameters()))
    if not fits:
        now.optimizer = now.optimizer_text = None
    if extras.hops is not None:
        now.hops = _hops(workspace, model)
    previous = workspace.exchange(name, model, now)
    workspace.changed(f"the rebuilding of {name}", ExchangeChange(name, previous, done.lost_bytes))
    place = recipe.source.place_name
    words = [f"It runs the code of {place} as it is now. Undo restores the former model."]
    words += _not_carried(done)
    if extras.optimizer is not None and not fits:
        words.append(
            f"Its optimizer ({extras.optimizer_text}) does not fit the new parameters and was not carried over."
        )
    tensors = len(done.carried) + len(done.new)
    facts = (
        Fact("source", recipe.source.text),
        Fact("values carried over", f"{len(done.carried):,} of {count_text(tensors, 'tensor')}"),
    )
    code = [
        "from devexplorer import hand_over",
        made.code.text("_made", extras.seed, made.changes),  # names of objects never begin with an underscore
        f"hand_over(_made, {variable(name)}{f', fresh={done.new!r}' if done.new else ''})",
        f"{variable(name)} = _made",
    ]
    if extras.optimizer is not None and not fits:
        code.append(f"del {optimizer_variable(name)}")
    if extras.hops is not None:
        code.append(extras.hops.python(name))
    answer = Answer(
        title=f"{name} was rebuilt from {place}",
        words=" ".join(words),
        facts=facts,
        code="\n".join(code),
        subject=name,
    )
    return CommandResult(answer, (workspace.snapshot(name),), events=events)


CHANGED = "the changed code"


def still_found(checked: Diagnosis) -> Diagnosis:
    """What a check found on lines that are as they were; of the rest nothing is known until the next check."""

    def left(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            item
            for item in findings
            if _line(item, item.code) == _line(item, code_lines(SourceLocation(item.file, item.line, "")))
        )

    unchecked = tuple(item for item in checked.unchecked if item.what != CHANGED)
    changed_since = Unchecked(what=CHANGED, reason=Message("It changed after this check; check again."))
    return replace(
        checked,
        problems=left(checked.problems),
        notes=left(checked.notes),
        no_gradient=(),
        unchecked=(*unchecked, changed_since),
    )


def _line(finding: Finding, code: CodeLines | None) -> str:
    """That of the finding itself; empty where it has none."""
    index = -1 if code is None else finding.line - code.first
    return "" if code is None or not 0 <= index < len(code.lines) else code.lines[index]


def _not_carried(done: Handover) -> list[str]:
    said = []
    if done.new:
        verb = "has its" if len(done.new) == 1 else "have their"
        said.append(f"{_some(done.new)} {verb} initial values.")
    if done.lost:
        verb = "exists" if len(done.lost) == 1 else "exist"
        said.append(f"{_some(done.lost)} no longer {verb} ({bytes_text(done.lost_bytes)}).")
    return said


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED
    return list_text([*paths[:_NAMED], *([f"{more:,} more"] if more > 0 else [])])


# --- what is offered where the files have changed


def rebuilding(workspace: Workspace, name: str) -> tuple[str, tuple[Offer, ...]]:
    """Which files have changed since the model was made of them, as a sentence, and the way out; empty where none
    has."""
    extras = workspace.extras(name) if name in workspace.names else Extras()
    files = [os.path.basename(file) for file in extras.outdated]
    if not files or not extras.own_code:
        return "", ()
    place = parse(extras.source or "").place_name
    words = f"{name} here still uses the previous code: {_some(files)} changed after it was built."
    return words, (Offer(f"Rebuild {name} from {place}", RunModelCode(target=name, again=True)),)


def with_rebuilding(workspace: Workspace, answer: Answer, command: Command) -> Answer:
    """The answer to a command that failed, with that as the first way out."""
    last = command.commands[-1] if isinstance(command, Steps) else command
    if not isinstance(last, (Forward, Backward, TrainStep, Check)):
        return answer
    words, offers = rebuilding(workspace, object_name(last.target))
    return replace(answer, words=f"{answer.words} {words}".rstrip(), offers=(*offers, *answer.offers))
