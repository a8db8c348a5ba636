"""Which command of this package is carried out by what. Runs on the jobs thread."""

from __future__ import annotations

from devexplorer.core.records.laboratory import (
    ClearGradients,
    Describe,
    Initialise,
    MakeOptimizer,
    MoveOptimizer,
    SetRequiresGrad,
    SetTraining,
    Tie,
    TrainStep,
    Untie,
)
from devexplorer.core.workspace.command_result import Topic
from devexplorer.core.workspace.parameters.describing import describe
from devexplorer.core.workspace.parameters.flags import clear_gradients, set_requires_grad, set_training
from devexplorer.core.workspace.parameters.initialising import initialise
from devexplorer.core.workspace.parameters.making import make_optimizer
from devexplorer.core.workspace.parameters.state import move_optimizer
from devexplorer.core.workspace.parameters.training import train_step
from devexplorer.core.workspace.parameters.tying import tie, untie

TOPIC: Topic = {
    Describe: describe,
    Initialise: initialise,
    Tie: tie,
    Untie: untie,
    SetRequiresGrad: set_requires_grad,
    ClearGradients: clear_gradients,
    SetTraining: set_training,
    MakeOptimizer: make_optimizer,
    TrainStep: train_step,
    MoveOptimizer: move_optimizer,
}
