"""What keeps a tensor alive, as an answer to a window. Jobs thread of the engine; of a script its own thread
or `observe-answer`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.observe.alive import MOST_SECONDS, search
from devexplorer.core.observe.records import ScriptPlacement, StepMemory, WhatHolds
from devexplorer.core.records import Answer
from devexplorer.core.workspace import CommandResult, Workspace
from devexplorer.core.workspace.placement import Target


def holders_answer(target: Target, names: Mapping[str, Any] = MappingProxyType({}), *, autograd: bool = True) -> Answer:
    """As a window shows it; `names` and `autograd`: see `search`."""
    found = search([target.thing], names=names, autograd=autograd)[id(target.thing)]
    words = "\n".join(f"• {holder}" for holder in found)
    if any(holder.stopped for holder in found):
        words += f"\nThe search ended after {MOST_SECONDS:g} s; there can be others."
    if not autograd:
        words += (
            "\nGradients and graphs were not checked: they can be read safely only between two steps of the script."
        )
    return Answer(title=f"What keeps {target.title} alive", words=words, subject=target.name, part=target.path)


def what_holds(workspace: Workspace, command: WhatHolds, progress: ProgressMonitor) -> CommandResult:
    """What keeps something of the workspace alive: its names there, and what else there is."""
    names = {name: workspace.get(name) for name in workspace.names}
    return CommandResult(holders_answer(workspace.find(command.target), names))


def only_scripts(workspace: Workspace, command: StepMemory | ScriptPlacement, progress: ProgressMonitor) -> NoReturn:
    """An engine has no steps. Raises `BadInput`."""
    raise BadInput("only a running script has steps: start one with devexplorer run")
