"""What a command is called while it runs ("moving mlp to vgpu:1") and when it was refused ("mlp was not moved"). Pure,
any thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

_DOING: Mapping[str, Callable[[Any], str]] = {
    "BuildModel": lambda c: f"building {c.recipe}",
    "NewTensor": lambda c: f"creating {c.name or 'a tensor'}",
    "Move": lambda c: _moving(c),
    "Undo": lambda c: "undoing the last change",
    "Redo": lambda c: "doing again what was undone",
    "Remove": lambda c: f"removing {', '.join(c.names)}",
    "Forward": lambda c: f"forward of {c.target}",
    "Backward": lambda c: f"backward of {c.target}",
    "EditElement": lambda c: f"editing {c.target}",
    "Combine": lambda c: f"computing {c.left} {c.operator} {c.right}",
    "StartBenchmark": lambda c: f"benchmark on {c.spec.device}",
    "StopBenchmark": lambda c: "stopping",
    "Cancel": lambda c: "stopping",
    "AddVirtual": lambda c: f"adding {c.spec}",
    "SetThreads": lambda c: f"setting {c.threads} threads",
    "ReleaseCache": lambda c: f"releasing the cache of {c.device}",
    "RecordAllocator": lambda c: "starting to record allocations" if c.on else "ending the recording of allocations",
    "SaveSnapshot": lambda c: f"saving the allocator snapshot of {c.device}",
    "OpenSnapshot": lambda c: (
        f"reading a snapshot of {c.device}" if c.device else f"opening {os.path.basename(c.path or 'a snapshot')}"
    ),
    "OpenModel": lambda c: f"opening {os.path.basename(c.source)}",
    "CompareCheckpoint": lambda c: f"comparing a checkpoint with {c.target}",
    "LoadCheckpoint": lambda c: f"loading a checkpoint into {c.target}",
    "Save": lambda c: f"saving {_things(c.targets) if c.targets else 'everything'}",
    "ListFile": lambda c: "looking into a file",
    "Load": lambda c: "loading a file",
    "Describe": lambda c: f"looking at the values of {c.target}",
    "Initialise": lambda c: f"initialising {c.target}",
    "Tie": lambda c: f"tying {c.second} to {c.first}",
    "Untie": lambda c: f"untying {c.target}",
    "SetRequiresGrad": lambda c: f"{'unfreezing' if c.on else 'freezing'} {_things(c.targets)}",
    "ClearGradients": lambda c: f"clearing the gradients of {c.target}",
    "SetTraining": lambda c: f"putting {c.target} into {'training' if c.on else 'evaluation'} mode",
    "MakeOptimizer": lambda c: f"giving {c.target} an optimizer",
    "TrainStep": lambda c: f"training step of {c.target}",
    "MoveOptimizer": lambda c: f"moving the optimizer state of {c.target}",
    "PlanSplit": lambda c: f"planning how to split {c.target}",
    "Split": lambda c: f"splitting {c.target}",
    "Join": lambda c: f"joining {c.target} on {c.device}",
    "InsertHops": lambda c: f"{'inserting' if c.on else 'removing'} hops in {c.target}",
    "Ask": lambda c: f"asking {c.target}",
    "Replicate": lambda c: f"replicating {c.target}",
    "TimeWork": lambda c: f"timing work on {c.device}",
    "Crossover": lambda c: f"comparing {c.device} with the CPU",
    "Check": lambda c: f"checking {c.target}",
    "PlanFit": lambda c: f"planning {c.target or c.spec.source}",
}

_REFUSED: Mapping[str, str] = {
    "BuildModel": "No model was built",
    "NewTensor": "No tensor was created",
    "Undo": "Nothing was undone",
    "Redo": "Nothing was done again",
    "Remove": "Nothing was removed",
    "Forward": "The model did not run",
    "Backward": "The model did not run",
    "EditElement": "Nothing was changed",
    "Combine": "There is no result",
    "AddVirtual": "No virtual GPU was added",
    "ReleaseCache": "No cache was released",
    "RecordAllocator": "Nothing is recorded",
    "SaveSnapshot": "No snapshot was saved",
    "OpenSnapshot": "No snapshot was opened",
    "OpenModel": "No model was opened",
    "CompareCheckpoint": "The checkpoint could not be read",
    "LoadCheckpoint": "Nothing was loaded",
    "Save": "Nothing was saved",
    "ListFile": "The file could not be read",
    "Load": "Nothing was loaded",
    "Describe": "There are no values to look at",
    "Initialise": "Nothing was changed",
    "Tie": "Nothing was tied",
    "Untie": "Nothing was untied",
    "SetRequiresGrad": "Nothing was changed",
    "ClearGradients": "Nothing was changed",
    "SetTraining": "Nothing was changed",
    "MakeOptimizer": "There is no optimizer",
    "TrainStep": "No step was made",
    "MoveOptimizer": "Nothing was moved",
    "PlanSplit": "There is no plan",
    "Split": "The model was not split",
    "Join": "Nothing was moved",
    "InsertHops": "Nothing was changed",
    "Ask": "There is no answer",
    "Replicate": "Nothing was replicated",
    "TimeWork": "Nothing was timed",
    "Crossover": "Nothing was measured",
    "Check": "The model was not checked",
    "PlanFit": "There is no plan",
}


def doing(command: object) -> str:
    """What the status bar shows while the command runs."""
    return _DOING[type(command).__name__](command)


def refused(command: object) -> str:
    """The title of the answer to a command that was refused or failed."""
    if type(command).__name__ == "Move":
        targets = command.targets  # type: ignore[attr-defined]  # records are known by their names here
        what = "copied" if command.copy else "cast" if command.dtype else "moved"  # type: ignore[attr-defined]
        return f"{_things(targets)} {'was' if len(targets) == 1 else 'were'} not {what}"
    return _REFUSED.get(type(command).__name__, "That did not work")


def _moving(command: Any) -> str:
    """A dtype makes it a cast, whether or not the device changes too: the command does not say where the targets
    are."""
    things = _things(command.targets)
    if command.copy:
        return f"copying {things} to {command.device}{f' as {command.dtype}' if command.dtype else ''}"
    if command.dtype:
        return f"casting {things} to {command.dtype} on {command.device}"
    return f"moving {things} to {command.device}"


def _things(targets: tuple[str, ...]) -> str:
    return targets[0] if len(targets) == 1 else f"{len(targets)} objects"
