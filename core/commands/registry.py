"""Every command: what carries it out, what it is called, and what becomes of it afterwards. Pure, any thread; no torch.

A new command is its record, its handler and one `CommandSpec` here. A handler is named rather than imported: the
window reads the titles and what the journal repeats, and must not load torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from devexplorer.core.records import laboratory as lab
from devexplorer.core.records import messages as msg
from devexplorer.core.records.base import BaseCommand
from devexplorer.core.records.doctor import Check
from devexplorer.core.records.experiments import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.records.planner import PlanFit

if TYPE_CHECKING:
    from devexplorer.core.workspace.command_result import Handler

Text = str | Callable[[Any], str]
"""A title, or what makes one from the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One kind of command."""

    record: type[BaseCommand]
    title: Text
    """What it is called while it runs: "moving mlp to vgpu:1"."""
    refused: Text = "That did not work"
    """The title of the answer when it failed: "mlp was not moved"."""
    handler: Handler | str | None = None
    """What carries it out, or where that is: `package.module:function` below core. None: the engine itself does."""
    undoable: bool = False
    """What it changes is one step of Undo, and is taken back when it fails half-way."""
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
    """The specification of a command; `KeyError` for what is none."""
    return REGISTRY[type(command)]


def title_of(command: object) -> str:
    """What a command is called while it runs."""
    return _text(spec_of(command).title, command)


def refused_title(command: object | None) -> str:
    """The title of the answer to a command that was refused or failed."""
    return "That did not work" if command is None else _text(spec_of(command).refused, command)


def _text(text: Text, command: object) -> str:
    return text if isinstance(text, str) else text(command)


def _moving(command: msg.Move) -> str:
    """A dtype makes it a cast, whether or not the device changes too: the command does not say where the targets
    are."""
    things = _things(command.targets)
    if command.copy:
        return f"copying {things} to {command.device}{f' as {command.dtype}' if command.dtype else ''}"
    if command.dtype:
        return f"casting {things} to {command.dtype} on {command.device}"
    return f"moving {things} to {command.device}"


def _not_moved(command: msg.Move) -> str:
    done = "copied" if command.copy else "cast" if command.dtype else "moved"
    return f"{_things(command.targets)} {'was' if len(command.targets) == 1 else 'were'} not {done}"


def _opening_snapshot(command: msg.OpenSnapshot) -> str:
    if command.device:
        return f"reading a snapshot of {command.device}"
    return f"opening {os.path.basename(command.path or 'a snapshot')}"


def _things(targets: tuple[str, ...]) -> str:
    return targets[0] if len(targets) == 1 else f"{len(targets)} objects"


SPECS = (
    # objects
    CommandSpec(
        record=msg.BuildModel,
        handler="commands.objects:build",
        title=lambda c: f"building {c.recipe}",
        refused="No model was built",
        undoable=True,
        replayed=True,
        names_result=True,
    ),
    CommandSpec(
        record=lab.OpenModel,
        handler="commands.models:open_model",
        title=lambda c: f"opening {os.path.basename(c.source)}",
        refused="No model was opened",
        undoable=True,
        replayed=True,
        names_result=True,
    ),
    CommandSpec(
        record=msg.NewTensor,
        handler="commands.objects:new_tensor",
        title=lambda c: f"creating {c.name or 'a tensor'}",
        refused="No tensor was created",
        undoable=True,
        replayed=True,
        names_result=True,
    ),
    CommandSpec(
        record=msg.Combine,
        handler="commands.objects:combine",
        title=lambda c: f"computing {c.left} {c.operator} {c.right}",
        refused="There is no result",
        undoable=True,
        replayed=True,
        names_result=True,
    ),
    CommandSpec(
        record=msg.EditElement,
        handler="commands.objects:edit",
        title=lambda c: f"editing {c.target}",
        refused="Nothing was changed",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=msg.Move,
        handler="commands.objects:move",
        title=_moving,
        refused=_not_moved,
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=msg.Remove,
        handler="commands.objects:remove",
        title=lambda c: f"removing {', '.join(c.names)}",
        refused="Nothing was removed",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=msg.Forward,
        handler="commands.objects:run",
        title=lambda c: f"forward of {c.target}",
        refused="The model did not run",
        undoable=True,
    ),
    CommandSpec(
        record=msg.Backward,
        handler="commands.objects:run",
        title=lambda c: f"backward of {c.target}",
        refused="The model did not run",
        undoable=True,
    ),
    CommandSpec(
        record=msg.Undo,
        handler="commands.dispatch:undo",
        title="undoing the last change",
        refused="Nothing was undone",
    ),
    CommandSpec(
        record=msg.Redo,
        handler="commands.dispatch:redo",
        title="redoing what was undone",
        refused="Nothing was redone",
    ),
    # devices
    CommandSpec(
        record=msg.AddVirtual,
        handler="commands.devices:add_virtual",
        title=lambda c: f"adding {c.spec}",
        refused="No virtual GPU was added",
        replayed=True,
    ),
    CommandSpec(
        record=msg.SetThreads,
        handler="commands.devices:set_threads",
        title=lambda c: f"setting {c.threads} threads",
        replayed=True,
    ),
    # torch's own memory, which is no part of the workspace; its Python is for CUDA devices alone
    CommandSpec(
        record=msg.ReleaseCache,
        handler="memory.commands:release_cache",
        title=lambda c: f"releasing the cache of {c.device}",
        refused="No cache was released",
        in_script=False,
    ),
    CommandSpec(
        record=msg.RecordAllocator,
        handler="memory.commands:record_allocator",
        title=lambda c: "starting to record allocations" if c.on else "ending the recording of allocations",
        refused="Nothing is recorded",
        in_script=False,
    ),
    CommandSpec(
        record=msg.SaveSnapshot,
        handler="memory.commands:save_snapshot",
        title=lambda c: f"saving the allocator snapshot of {c.device}",
        refused="No snapshot was saved",
        in_script=False,
    ),
    CommandSpec(
        record=msg.OpenSnapshot,
        handler="memory.commands:open_snapshot",
        title=_opening_snapshot,
        refused="No snapshot was opened",
        in_script=False,
    ),
    # the queue
    CommandSpec(record=msg.StartBenchmark, title=lambda c: f"benchmark on {c.spec.device}"),
    CommandSpec(record=msg.StopBenchmark, title="stopping"),
    CommandSpec(record=msg.Cancel, title="stopping"),
    # files
    CommandSpec(
        record=lab.Save,
        handler="files.save:save",
        title=lambda c: f"saving {_things(c.targets) if c.targets else 'everything'}",
        refused="Nothing was saved",
    ),
    CommandSpec(
        record=lab.ListFile,
        handler="files.listing:list_file",
        title="looking into a file",
        refused="The file could not be read",
    ),
    CommandSpec(
        record=lab.Load,
        handler="files.load:load",
        title="loading a file",
        refused="Nothing was loaded",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.CompareCheckpoint,
        handler="files.into_model:compare",
        title=lambda c: f"comparing a checkpoint with {c.target}",
        refused="The checkpoint could not be read",
    ),
    CommandSpec(
        record=lab.LoadCheckpoint,
        handler="files.into_model:load_checkpoint",
        title=lambda c: f"loading a checkpoint into {c.target}",
        refused="Nothing was loaded",
        undoable=True,
        replayed=True,
    ),
    # parameters
    CommandSpec(
        record=lab.Describe,
        handler="workspace.parameters.describing:describe",
        title=lambda c: f"looking at the values of {c.target}",
        refused="There are no values to look at",
    ),
    CommandSpec(
        record=lab.Initialise,
        handler="workspace.parameters.initialising:initialise",
        title=lambda c: f"initialising {c.target}",
        refused="Nothing was changed",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.Tie,
        handler="workspace.parameters.tying:tie",
        title=lambda c: f"tying {c.second} to {c.first}",
        refused="Nothing was tied",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.Untie,
        handler="workspace.parameters.tying:untie",
        title=lambda c: f"untying {c.target}",
        refused="Nothing was untied",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.SetRequiresGrad,
        handler="workspace.parameters.flags:set_requires_grad",
        title=lambda c: f"{'unfreezing' if c.on else 'freezing'} {_things(c.targets)}",
        refused="Nothing was changed",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.ClearGradients,
        handler="workspace.parameters.flags:clear_gradients",
        title=lambda c: f"clearing the gradients of {c.target}",
        refused="Nothing was changed",
        undoable=True,
    ),
    CommandSpec(
        record=lab.SetTraining,
        handler="workspace.parameters.flags:set_training",
        title=lambda c: f"putting {c.target} into {'training' if c.on else 'evaluation'} mode",
        refused="Nothing was changed",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.MakeOptimizer,
        handler="workspace.parameters.optimizers:make_optimizer",
        title=lambda c: f"giving {c.target} an optimizer",
        refused="There is no optimizer",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.TrainStep,
        handler="workspace.parameters.training:train_step",
        title=lambda c: f"training step of {c.target}",
        refused="No step was made",
        undoable=True,
    ),
    CommandSpec(
        record=lab.MoveOptimizer,
        handler="workspace.parameters.optimizer_state:move_optimizer",
        title=lambda c: f"moving the optimizer state of {c.target}",
        refused="Nothing was moved",
        undoable=True,
        replayed=True,
    ),
    # splitting
    CommandSpec(
        record=lab.PlanSplit,
        handler="commands.split:plan_split",
        title=lambda c: f"planning how to split {c.target}",
        refused="There is no plan",
    ),
    CommandSpec(
        record=lab.Split,
        handler="commands.split:split",
        title=lambda c: f"splitting {c.target}",
        refused="The model was not split",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.Join,
        handler="commands.split:join",
        title=lambda c: f"joining {c.target} on {c.device}",
        refused="Nothing was moved",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=lab.InsertHops,
        handler="commands.split:insert_hops",
        title=lambda c: f"{'inserting' if c.on else 'removing'} hops in {c.target}",
        refused="Nothing was changed",
        undoable=True,
        replayed=True,
    ),
    # experiments
    CommandSpec(
        record=Ask,
        handler="commands.experiments:ask_question",
        title=lambda c: f"asking {c.target}",
        refused="There is no answer",
    ),
    CommandSpec(
        record=Replicate,
        handler="experiments.replicate:replicate",
        title=lambda c: f"replicating {c.target}",
        refused="Nothing was replicated",
        undoable=True,
        replayed=True,
    ),
    CommandSpec(
        record=TimeWork,
        handler="experiments.time_work:time_work",
        title=lambda c: f"timing work on {c.device}",
        refused="Nothing was timed",
    ),
    CommandSpec(
        record=Crossover,
        handler="experiments.crossover:crossover",
        title=lambda c: f"comparing {c.device} with the CPU",
        refused="Nothing was measured",
    ),
    # doctor, planner
    CommandSpec(
        record=Check,
        handler="commands.doctor:check",
        title=lambda c: f"checking {c.target}",
        refused="The model was not checked",
    ),
    CommandSpec(
        record=PlanFit,
        handler="commands.planner:plan_fit",
        title=lambda c: f"planning {c.target or c.spec.source}",
        refused="There is no plan",
    ),
)
REGISTRY: dict[type, CommandSpec] = {spec.record: spec for spec in SPECS}
"""Every command by its record."""
