"""What the workspace did, as plain values that messages are made from. Jobs thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base.errors import DevExplorerError
from devexplorer.core.models.gradient_cuts import NOTHING_MISSING, WithoutGradient
from devexplorer.core.models.run import Operand


class Built(NamedTuple):
    """A new sample model."""

    name: str
    recipe: str
    device: str
    dtype: str | None
    seed: int
    seconds: float
    """Wall time of building and of the move to its device."""


class Created(NamedTuple):
    """A new tensor."""

    name: str
    device: str
    fell_back: str | None
    """Why it is on the CPU, when it was asked for elsewhere."""


class Ran(NamedTuple):
    """A forward (and backward) that worked."""

    target: str
    inputs: tuple[Operand, ...]
    given: tuple[str, ...]
    """Names of the workspace tensors that were fed; empty: a sample input."""
    output: Operand | None
    """None when the model returned no tensor."""
    kept_as: str | None
    grad_fn: str | None
    seconds: float
    """On the device's clock."""
    wall_seconds: float
    simulated: bool
    gradients: int = 0
    """Backward: parameters that have a gradient now."""
    accumulated: bool = False
    """Backward: some had one before, and the new one was added."""
    changed_buffers: bool = False
    """The forward wrote into buffers: running statistics of batch norm in training mode, and whatever else a model
    keeps there."""
    initialised: bool = False
    """The forward gave lazy parameters their shape and first values."""
    bare: bool = True
    """The model returned one tensor and nothing around it."""
    missing: WithoutGradient = NOTHING_MISSING
    """Backward: what it did not reach."""
    reached: tuple[str, ...] = ()
    """Backward: objects beside the model that a gradient arrived in, because they are inputs or led to one."""
    retained: bool = False
    """Backward: an input has a graph of its own, which was kept, so that there can be another backward through it."""


class Edited(NamedTuple):
    """One element that was set."""

    target: str
    position: tuple[int, ...]
    before: float
    after: float
    also: tuple[str, ...]
    """Other paths of the same tensor."""


class Combined(NamedTuple):
    """The result of an operator."""

    name: str
    left: str
    operator: str
    right: str
    result: Operand


class CombineFailed(DevExplorerError):
    """Two tensors cannot be combined; `devices` when they are on different ones."""

    def __init__(self, message: str, *, left: Operand, right: Operand) -> None:
        super().__init__(message)
        self.left, self.right = left, right

    @property
    def mixed(self) -> bool:
        """Whether they are on different devices."""
        return self.left.device != self.right.device
