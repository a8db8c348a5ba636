"""The commands of the experiments and who carries them out. Runs on the jobs thread."""

from __future__ import annotations

from devexplorer.core.records.experiments import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.workspace.experiments.ask import Questions, ask
from devexplorer.core.workspace.experiments.crossover import crossover
from devexplorer.core.workspace.experiments.identity import device_of_module, device_of_tensor, is_leaf, type_of_module, type_of_tensor
from devexplorer.core.workspace.experiments.python_values import cpu_numpy, item, numpy, tolist
from devexplorer.core.workspace.experiments.replicate import replicate
from devexplorer.core.workspace.experiments.time_work import time_work
from devexplorer.core.workspace.moves import Watch
from devexplorer.core.workspace.outcome import Outcome, Topic
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


def _ask(workspace: Workspace, command: Ask, watch: Watch) -> Outcome:
    return Outcome(ask(workspace, command, QUESTIONS))


TOPIC: Topic = {Ask: _ask, Replicate: replicate, TimeWork: time_work, Crossover: crossover}
