"""The commands of the experiments and who carries them out. Runs on the jobs thread."""

from __future__ import annotations

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.experiments.ask import Questions, ask
from devexplorer.core.experiments.crossover import crossover
from devexplorer.core.experiments.identity import (
    device_of_module,
    device_of_tensor,
    is_leaf,
    type_of_module,
    type_of_tensor,
)
from devexplorer.core.experiments.python_values import cpu_numpy, item, numpy, tolist
from devexplorer.core.experiments.replicate import replicate
from devexplorer.core.experiments.time_work import time_work
from devexplorer.core.records.experiments import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.workspace.command_result import CommandResult, Topic
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


def _ask(workspace: Workspace, command: Ask, progress: ProgressMonitor) -> CommandResult:
    return CommandResult(ask(workspace, command, QUESTIONS))


TOPIC: Topic = {Ask: _ask, Replicate: replicate, TimeWork: time_work, Crossover: crossover}
