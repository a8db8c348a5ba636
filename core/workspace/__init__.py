"""Named live tensors and models: what is where, and what can be done with it. Runs on the jobs thread of the engine."""

from devexplorer.core.workspace.changes import (
    CommandResult,
    CreateChange,
    ElementChange,
    ExchangeChange,
    Handler,
    MoveChange,
    ObjectChange,
    Refused,
    StepFailed,
)
from devexplorer.core.workspace.placement import Target, named_tensors
from devexplorer.core.workspace.plan import check_new_model, check_sizes, model_sizes
from devexplorer.core.workspace.runs import Timing
from devexplorer.core.workspace.workspace import Workspace
