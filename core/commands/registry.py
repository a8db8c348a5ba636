"""Every command: what carries it out, its title, what becomes of it afterwards; and the one dispatcher. No torch.

A new command of the kernel is its record, its handler and one `CommandSpec` here; those of features are in their
`feature.py`. A handler is named rather than imported: the
window reads the titles and what the journal repeats, and must not load torch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, objects_text
from devexplorer.core.feature import CommandSpec, Text, command_specs
from devexplorer.core.records import Command
from devexplorer.core.records import benchmark as runs
from devexplorer.core.records import messages as msg

if TYPE_CHECKING:
    from devexplorer.core.workspace import CommandResult, Workspace


def spec_of(command: object) -> CommandSpec:
    """The specification of a command; `KeyError` for anything else."""
    return REGISTRY[type(command)]


def title_of(command: object) -> str:
    """What a command is called while it runs."""
    return _text(spec_of(command).title, command)


def refused_title(command: object | None) -> str:
    """The title of the answer to a command that was refused or failed."""
    return "That did not work" if command is None else _text(spec_of(command).refused, command)


def target_device(command: object) -> str | None:
    """The device that tensors go to with it, where that is one."""
    return getattr(command, "device", None) if spec_of(command).undoable else None


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
    title = workspace.history.state().redo_title
    with workspace.history.redoing(command.request) as again:
        result = spec_of(again).resolve()(workspace, again, progress)
    if not isinstance(again, msg.Move):  # which says where it is now, as its undoing does
        result = replace(result, answer=msgspec.structs.replace(result.answer, title=f"Redone: {title}"))
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
        return f"casting {things} to {command.dtype}{f' on {command.device}' if command.device else ''}"
    return f"moving {things} to {command.device}"


def _not_moved(command: msg.Move) -> str:
    if command.copy:
        done = "copied"
    elif command.dtype:
        done = "cast"
    else:
        done = "moved"
    return f"{objects_text(command.targets)} {'was' if len(command.targets) == 1 else 'were'} not {done}"


_changing = partial(CommandSpec, undoable=True, replayed=True)
"""A change of the workspace that can be repeated."""
_creating = partial(_changing, names_result=True)
"""A new object of the workspace."""

SPECS: tuple[CommandSpec, ...] = (
    # objects
    _creating(msg.BuildModel, "building {c.recipe}", "No model was built", "commands.handlers:build", verb="building"),
    _creating(
        msg.NewTensor,
        lambda c: f"creating {c.name or 'a tensor'}",
        "No tensor was created",
        "commands.handlers:new_tensor",
    ),
    _creating(
        msg.Combine, "computing {c.left} {c.operator} {c.right}", "There is no result", "commands.handlers:combine"
    ),
    _changing(msg.EditElement, "editing {c.target}", "Nothing was changed", "commands.handlers:edit"),
    _changing(msg.Move, _moving, _not_moved, "commands.handlers:move", verb="moving"),
    _changing(
        msg.Remove, lambda c: f"removing {', '.join(c.names)}", "Nothing was removed", "commands.handlers:remove"
    ),
    CommandSpec(
        msg.Forward,
        "forward of {c.target}",
        "The model did not run",
        "commands.handlers:run",
        undoable=True,
        verb="running",
        runs="run forward",
    ),
    CommandSpec(
        msg.Backward,
        "backward of {c.target}",
        "The model did not run",
        "commands.handlers:run",
        undoable=True,
        verb="running",
        runs="run backward",
    ),
    _changing(
        msg.Steps,
        lambda c: f"repeating {c.title}" if c.title else ", then ".join(map(title_of, c.commands)),
        lambda c: f"{c.title[:1].upper()}{c.title[1:]} was not repeated" if c.title else refused_title(c.commands[-1]),
        "commands.handlers:steps",
    ),
    CommandSpec(msg.Undo, "undoing the last change", "Nothing was undone", "commands.handlers:undo"),
    CommandSpec(msg.Redo, "redoing what was undone", "Nothing was redone", "commands.registry:redo"),
    # devices
    CommandSpec(
        msg.AddVirtual, "adding {c.spec}", "No virtual GPU was added", "commands.handlers:add_virtual", replayed=True
    ),
    CommandSpec(msg.SetThreads, "setting {c.threads} threads", handler="commands.handlers:set_threads", replayed=True),
    # the queue
    CommandSpec(runs.StartBenchmark, "benchmark on {c.spec.device}", verb="measuring"),
    CommandSpec(runs.BeginBenchmark, "beginning"),
    CommandSpec(runs.StopBenchmark, "stopping"),
    CommandSpec(msg.Cancel, "stopping"),
)
REGISTRY: dict[type, CommandSpec] = {spec.record: spec for spec in (*SPECS, *command_specs())}
"""Every command by its record."""
