"""Carries out `Ask`: asks a tensor or a model one of Python's questions, really, and explains what it answers. Runs on
the jobs thread."""

from __future__ import annotations

from torch import nn

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor
from devexplorer.core.experiments.asked import Asked
from devexplorer.core.experiments.identity import (
    device_of_module,
    device_of_tensor,
    is_leaf,
    type_of_module,
    type_of_tensor,
)
from devexplorer.core.experiments.python_values import cpu_numpy, item, numpy, tolist
from devexplorer.core.experiments.records import Ask
from devexplorer.core.models import is_uninitialised
from devexplorer.core.records import Answer
from devexplorer.core.workspace import CommandResult, Target, Workspace

OF_TENSORS = {
    "type": type_of_tensor,
    "numpy": numpy,
    "cpu-numpy": cpu_numpy,
    "item": item,
    "tolist": tolist,
    "is-leaf": is_leaf,
    "device": device_of_tensor,
}
OF_MODELS = {"type": type_of_module, "device": device_of_module}
CALLS = {"item": "item()", "tolist": "tolist()", "numpy": "numpy()", "cpu-numpy": "cpu().numpy()", "type": "type()"}
"""What each question is in Python, behind the tensor."""
WITHOUT_VALUES = ("device", "is-leaf")
"""What a lazy parameter can answer before its first forward."""


def ask(workspace: Workspace, command: Ask, progress: ProgressMonitor) -> CommandResult:
    """The answer to one question; changes nothing. Raises `BadInput` where there is nothing to ask, or no such
    question."""
    if command.question not in OF_TENSORS:
        raise BadInput(f"there is no question '{command.question}'; there are {', '.join(OF_TENSORS)}")
    target = workspace.find(command.target)
    if isinstance(target.thing, nn.Module):
        if command.question in OF_MODELS:
            return CommandResult(OF_MODELS[command.question](target, target.thing))
        path = next((path for path, _ in target.parameters()), None)
        hint = f"; ask one of its parameters, for example '{target.name}:{path}'" if path else ""
        raise BadInput(f"'{command.target}' is a module, and '{command.question}' is a question for a tensor{hint}")
    return CommandResult(_of_tensor(workspace, command, target))


def _of_tensor(workspace: Workspace, command: Ask, target: Target) -> Answer:
    tensor = target.tensor
    if is_uninitialised(tensor) and command.question not in WITHOUT_VALUES:
        raise BadInput(
            f"'{command.target}' has no shape and no values before its first forward; run the model once, then ask"
            " again"
        )
    asked = Asked(command.target, target.code(), tensor, workspace)
    try:
        return OF_TENSORS[command.question](asked)
    except DevExplorerError:
        raise
    # of a kind of tensor that can be in a model and answers next to nothing: sparse, quantised, without values
    except Exception as error:
        layout = str(tensor.layout).removeprefix("torch.")
        why = (
            f"It is {layout}, {str(tensor.dtype).removeprefix('torch.')}, and not every tensor can answer every"
            " question."
        )
        return asked.refused(CALLS.get(command.question, command.question), error, why)
