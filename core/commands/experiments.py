"""Carries out `Ask`: which of Python's questions there are, of tensors and of models. Runs on the jobs thread."""

from __future__ import annotations

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.experiments.ask import Questions, ask
from devexplorer.core.experiments.identity import (
    device_of_module,
    device_of_tensor,
    is_leaf,
    type_of_module,
    type_of_tensor,
)
from devexplorer.core.experiments.python_values import cpu_numpy, item, numpy, tolist
from devexplorer.core.records.experiments import Ask
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.workspace import Workspace

QUESTIONS = Questions(
    of_tensors={
        "type": type_of_tensor,
        "numpy": numpy,
        "cpu-numpy": cpu_numpy,
        "item": item,
        "tolist": tolist,
        "is-leaf": is_leaf,
        "device": device_of_tensor,
    },
    of_models={"type": type_of_module, "device": device_of_module},
)


def ask_question(workspace: Workspace, command: Ask, progress: ProgressMonitor) -> CommandResult:
    """The answer to one of Python's questions; changes nothing."""
    return CommandResult(ask(workspace, command, QUESTIONS))
