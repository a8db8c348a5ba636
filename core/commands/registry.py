"""Every command: what carries it out, its title, what becomes of it afterwards; and the one dispatcher. No torch.

A new command is its record, its handler and one `CommandSpec` here. A handler is named rather than imported: the
window reads the titles and what the journal repeats, and must not load torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import msgspec

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, objects_text
from devexplorer.core.records import (
    ApplyPatch,
    Ask,
    BaseCommand,
    Check,
    Command,
    Crossover,
    NewWorkspace,
    OpenWorkspace,
    PlanFit,
    Replicate,
    RunModelCode,
    SaveWorkspace,
    TimeWork,
)
from devexplorer.core.records import benchmark_messages as runs
from devexplorer.core.records import laboratory as lab
from devexplorer.core.records import messages as msg

if TYPE_CHECKING:
    from devexplorer.core.workspace import CommandResult, Handler, Workspace

Text = str | Callable[[Any], str]
"""A title that names fields of the command `c`, or what makes one from the command."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One kind of command."""

    record: type[BaseCommand]
    title: Text
    """What it is called while it runs: "moving mlp to vgpu:1"."""
    refused: Text = "That did not work"
    """The title of the answer when it failed: "mlp was not moved"."""
    handler: Handler | str | None = None
    """What carries it out, or where that is: `package.module:function` below core. None: the engine itself does."""
    _: KW_ONLY
    undoable: bool = False
    """What it changes is one step of Undo, and is reverted when it fails half-way."""
    replayed: bool = False
    """A new engine is given it again, to make the workspace what it was."""
    names_result: bool = False
    """Its `name` is that of what it makes: a replay gives the name that was chosen then."""
    in_script: bool = True
    """The Python of its answer is part of the session's script."""

    def resolve(self) -> Handler:
        """The function that carries it out."""
        if self.handler is None:
            raise TypeError(f"{self.record.__name__} is carried out by the engine itself")
        return _resolve(self.handler) if isinstance(self.handler, str) else self.handler


@cache
def _resolve(name: str) -> Handler:
    handler: Handler = resolve_name(f"devexplorer.core.{name}")
    return handler


def spec_of(command: object) -> CommandSpec:
    """The specification of a command; `KeyError` for anything else."""
    return REGISTRY[type(command)]


def title_of(command: object) -> str:
    """What a command is called while it runs."""
    return _text(spec_of(command).title, command)


def refused_title(command: object | None) -> str:
    """The title of the answer to a command that was refused or failed."""
    return "That did not work" if command is None else _text(spec_of(command).refused, command)


def _text(text: Text, command: object) -> str:
    return text.format(c=command) if isinstance(text, str) else text(command)


def dispatch(workspace: Workspace, command: Command, progress: ProgressMonitor = NO_PROGRESS) -> CommandResult:
    """Do what the command says, as one step of Undo; raises `DevExplorerError` (see `refusals.refusal`) when nothing
    could be done."""
    spec = spec_of(command)
    handler = spec.resolve()
    if not spec.undoable:
        return handler(workspace, command, progress)
    with workspace.history.transaction(command):
        result = handler(workspace, command, progress)
    return _with_note(workspace, result)


def redo(workspace: Workspace, command: msg.Redo, progress: ProgressMonitor) -> CommandResult:
    """Carry out again what was undone last, under another number."""
    with workspace.history.redoing(command.request) as again:
        result = spec_of(again).resolve()(workspace, again, progress)
    return replace(_with_note(workspace, result), redid=again)


def _with_note(workspace: Workspace, result: CommandResult) -> CommandResult:
    """With a sentence that says why it cannot be undone, where it cannot."""
    if not workspace.history.note:
        return result
    text = f"{result.answer.words} {workspace.history.note}".lstrip()
    return replace(result, answer=msgspec.structs.replace(result.answer, words=text))


def _moving(command: msg.Move) -> str:
    """A dtype makes it a cast, whether or not the device changes too: the command does not say where the targets
    are."""
    things = objects_text(command.targets)
    if command.copy:
        return f"copying {things} to {command.device}{f' as {command.dtype}' if command.dtype else ''}"
    if command.dtype:
        return f"casting {things} to {command.dtype} on {command.device}"
    return f"moving {things} to {command.device}"


def _not_moved(command: msg.Move) -> str:
    done = "copied" if command.copy else "cast" if command.dtype else "moved"
    return f"{objects_text(command.targets)} {'was' if len(command.targets) == 1 else 'were'} not {done}"


def _loading(command: lab.Load) -> str:
    sent = command.sent_from
    if sent is None:
        return "loading a file"
    name = os.path.basename(sent.path)
    return f"copying {os.path.splitext(name)[0] if sent.objects else name} from {sent.machine}"


def _opening_snapshot(command: msg.OpenSnapshot) -> str:
    if command.device:
        return f"reading a snapshot of {command.device}"
    path = command.path if command.sent_from is None else command.sent_from.path
    return f"opening {os.path.basename(path or 'a snapshot')}"


_changing = partial(CommandSpec, undoable=True, replayed=True)
"""A change of the workspace that can be repeated."""
_creating = partial(_changing, names_result=True)
"""A new object of the workspace."""

SPECS: tuple[CommandSpec, ...] = (
    # objects
    _creating(msg.BuildModel, "building {c.recipe}", "No model was built", "commands.objects:build"),
    _creating(
        lab.OpenModel,
        lambda c: f"opening {os.path.basename(c.source)}",
        "No model was opened",
        "commands.models:open_model",
    ),
    _creating(
        msg.NewTensor,
        lambda c: f"creating {c.name or 'a tensor'}",
        "No tensor was created",
        "commands.objects:new_tensor",
    ),
    _creating(
        msg.Combine, "computing {c.left} {c.operator} {c.right}", "There is no result", "commands.objects:combine"
    ),
    _changing(msg.EditElement, "editing {c.target}", "Nothing was changed", "commands.objects:edit"),
    _changing(msg.Move, _moving, _not_moved, "commands.objects:move"),
    _changing(msg.Remove, lambda c: f"removing {', '.join(c.names)}", "Nothing was removed", "commands.objects:remove"),
    CommandSpec(msg.Forward, "forward of {c.target}", "The model did not run", "commands.objects:run", undoable=True),
    CommandSpec(msg.Backward, "backward of {c.target}", "The model did not run", "commands.objects:run", undoable=True),
    _changing(
        msg.Steps,
        lambda c: f"repeating {c.title}" if c.title else ", then ".join(map(title_of, c.commands)),
        lambda c: f"{c.title[:1].upper()}{c.title[1:]} was not repeated" if c.title else refused_title(c.commands[-1]),
        "commands.steps:steps",
    ),
    CommandSpec(msg.Undo, "undoing the last change", "Nothing was undone", "commands.objects:undo"),
    CommandSpec(msg.Redo, "redoing what was undone", "Nothing was redone", "commands.registry:redo"),
    # devices
    CommandSpec(
        msg.AddVirtual, "adding {c.spec}", "No virtual GPU was added", "commands.devices:add_virtual", replayed=True
    ),
    CommandSpec(msg.SetThreads, "setting {c.threads} threads", handler="commands.devices:set_threads", replayed=True),
    # torch's own memory, which is no part of the workspace; its Python is for CUDA devices alone
    CommandSpec(
        msg.ReleaseCache,
        "releasing the cache of {c.device}",
        "No cache was released",
        "memory.commands:release_cache",
        in_script=False,
    ),
    CommandSpec(
        msg.RecordAllocator,
        lambda c: "starting to record allocations" if c.on else "ending the recording of allocations",
        "Nothing is recorded",
        "memory.commands:record_allocator",
        in_script=False,
    ),
    CommandSpec(
        msg.SaveSnapshot,
        "saving the allocator snapshot of {c.device}",
        "No snapshot was saved",
        "memory.commands:save_snapshot",
        in_script=False,
    ),
    CommandSpec(
        msg.OpenSnapshot, _opening_snapshot, "No snapshot was opened", "memory.commands:open_snapshot", in_script=False
    ),
    # the queue
    CommandSpec(runs.StartBenchmark, "benchmark on {c.spec.device}"),
    CommandSpec(runs.BeginBenchmark, "beginning"),
    CommandSpec(runs.StopBenchmark, "stopping"),
    CommandSpec(msg.Cancel, "stopping"),
    # files
    CommandSpec(
        lab.Save,
        lambda c: f"saving {objects_text(c.targets) if c.targets else 'everything'}",
        "Nothing was saved",
        "files.save:save",
    ),
    CommandSpec(
        SaveWorkspace,
        lambda c: f"saving {os.path.basename(c.path)}",
        "The workspace was not saved",
        "commands.workspace_file:save_workspace",
    ),
    _changing(
        OpenWorkspace,
        lambda c: f"opening {os.path.basename(c.path)}",
        "The workspace was not opened",
        "commands.workspace_file:open_workspace",
    ),
    _changing(
        NewWorkspace,
        "emptying the workspace",
        "There is no new workspace",
        "commands.workspace_file:new_workspace",
    ),
    _changing(
        RunModelCode,
        "building {c.target}",
        "{c.target} was not built",
        "commands.rebuild:run_model_code",
    ),
    CommandSpec(lab.ListFile, "looking into a file", "The file could not be read", "files.listing:list_file"),
    _changing(lab.Load, _loading, "Nothing was loaded", "files.load:load"),
    CommandSpec(
        lab.CompareCheckpoint,
        "comparing a checkpoint with {c.target}",
        "The checkpoint could not be read",
        "files.into_model:compare",
    ),
    _changing(
        lab.LoadCheckpoint,
        "loading a checkpoint into {c.target}",
        "Nothing was loaded",
        "files.into_model:load_checkpoint",
    ),
    # parameters
    CommandSpec(
        lab.Describe,
        "looking at the values of {c.target}",
        "There are no values to look at",
        "workspace.parameters.describing:describe",
    ),
    _changing(
        lab.Initialise, "initialising {c.target}", "Nothing was changed", "workspace.parameters.initialising:initialise"
    ),
    _changing(lab.Tie, "tying {c.second} to {c.first}", "Nothing was tied", "workspace.parameters.tying:tie"),
    _changing(lab.Untie, "untying {c.target}", "Nothing was untied", "workspace.parameters.tying:untie"),
    _changing(
        lab.SetRequiresGrad,
        lambda c: f"{'unfreezing' if c.on else 'freezing'} {objects_text(c.targets)}",
        "Nothing was changed",
        "workspace.parameters.flags:set_requires_grad",
    ),
    CommandSpec(
        lab.ClearGradients,
        "clearing the gradients of {c.target}",
        "Nothing was changed",
        "workspace.parameters.flags:clear_gradients",
        undoable=True,
    ),
    _changing(
        lab.SetTraining,
        lambda c: f"putting {c.target} into {'training' if c.on else 'evaluation'} mode",
        "Nothing was changed",
        "workspace.parameters.flags:set_training",
    ),
    _changing(
        lab.MakeOptimizer,
        "giving {c.target} an optimizer",
        "There is no optimizer",
        "workspace.parameters.optimizers:make_optimizer",
    ),
    CommandSpec(
        lab.TrainStep,
        "training step of {c.target}",
        "No step was made",
        "workspace.parameters.training:train_step",
        undoable=True,
    ),
    _changing(
        lab.MoveOptimizer,
        "moving the optimizer state of {c.target}",
        "Nothing was moved",
        "workspace.parameters.optimizer_state:move_optimizer",
    ),
    # splitting
    CommandSpec(lab.PlanSplit, "planning how to split {c.target}", "There is no plan", "commands.split:plan_split"),
    _changing(lab.Split, "splitting {c.target}", "The model was not split", "commands.split:split"),
    _changing(lab.Join, "joining {c.target} on {c.device}", "Nothing was moved", "commands.split:join"),
    _changing(
        lab.InsertHops,
        lambda c: f"{'inserting' if c.on else 'removing'} hops in {c.target}",
        "Nothing was changed",
        "commands.split:insert_hops",
    ),
    # experiments
    CommandSpec(Ask, "asking {c.target}", "There is no answer", "experiments.ask:ask"),
    _changing(Replicate, "replicating {c.target}", "Nothing was replicated", "experiments.replicate:replicate"),
    CommandSpec(TimeWork, "timing work on {c.device}", "Nothing was timed", "experiments.time_work:time_work"),
    CommandSpec(
        Crossover, "comparing {c.device} with the CPU", "Nothing was measured", "experiments.crossover:crossover"
    ),
    # doctor, planner
    CommandSpec(
        ApplyPatch,
        lambda c: f"changing {os.path.basename(c.file)}",
        lambda c: f"{os.path.basename(c.file)} was not changed",
        "commands.doctor:apply_patch",
        in_script=False,
    ),
    CommandSpec(Check, "checking {c.target}", "The model was not checked", "commands.doctor:check"),
    CommandSpec(
        PlanFit, lambda c: f"planning {c.target or c.spec.source}", "There is no plan", "commands.planner:plan_fit"
    ),
)
REGISTRY: dict[type, CommandSpec] = {spec.record: spec for spec in SPECS}
"""Every command by its record."""
