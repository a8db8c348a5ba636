"""Commands about parameters and training, and what answers them. Any thread.

A target is `name`, or `name:path` for a module, parameter or buffer of a model.
"""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import AnyNumbers, BaseCommand, BaseEvent


class Describe(BaseCommand, tag="Describe"):
    """Compute what the values of a tensor, parameter or buffer are like. Answered with `ValuesDescribed`; changes
    nothing."""

    target: str
    bins: int = 64
    exact: bool = False
    """Everything from every element, also where the tensor is so large that most of it would come from a sample."""
    quiet: bool = False
    """Not what the user did: answered without words, also where there are no values."""


class Values(AnyNumbers):
    """The values of one tensor, computed where it is."""

    target: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    elements: int
    simulated: bool
    mean: float | None = None
    """Of the finite values, as all that follow; None: there are none, or it has none (bool, complex)."""
    std: float | None = None
    """Of the population (divided by n)."""
    minimum: float | None = None
    maximum: float | None = None
    zeros: int = 0
    nans: int = 0
    infinities: int = 0
    counts: tuple[int, ...] = ()
    """Finite values per bin, from `low` to `high`, all bins equally wide."""
    low: float = 0.0
    high: float = 0.0
    first: str = ""
    """The first rows, as text."""
    norm: float | None = None
    """Euclidean."""
    gradient: Values | None = None
    seconds: float = 0.0
    sampled: int = 0
    """Elements, evenly spread, from which all but mean, NaN and Inf come in a large tensor; 0: every element."""


class ValuesDescribed(BaseEvent, tag="ValuesDescribed"):
    """What was asked with `Describe`, or what an `Initialise` left (`before` is what it found)."""

    values: Values
    before: Values | None = None

    @property
    def target(self) -> str:
        """What they are the values of."""
        return self.values.target


class Initialise(BaseCommand, tag="Initialise"):
    """Give a parameter, or every weight below a module, new initial values."""

    target: str
    rule: str
    """`normal`, `constant`, `uniform`, `xavier-uniform`, `xavier-normal`, `kaiming-uniform`, `kaiming-normal`, `zeros`,
    `ones` or `piecewise` (the tutorial's: uniform from `low` to `high`, kept where its size is at least `threshold`,
    else 0)."""
    options: dict[str, float] = msgspec.field(default_factory=dict)
    """`mean`, `std`; `value`; `low`, `high`; `gain`; `a`; `threshold`."""
    biases: bool = False
    """With a module: also parameters of one dimension, which get zeros under the Xavier and Kaiming rules."""
    seed: int = 0


class Tie(BaseCommand, tag="Tie"):
    """Let the second target be the very Parameter that the first one is. Two parameters of one model, of one shape."""

    first: str
    second: str


class Untie(BaseCommand, tag="Untie"):
    """Give this name a separate Parameter again, with the same values."""

    target: str


class SetRequiresGrad(BaseCommand, tag="SetRequiresGrad"):
    """Freeze (off) or unfreeze parameters, everything below modules, or tensors."""

    targets: tuple[str, ...]
    on: bool


class ClearGradients(BaseCommand, tag="ClearGradients"):
    """Set the gradients below the target to None and free their memory."""

    target: str


class SetTraining(BaseCommand, tag="SetTraining"):
    """`model.train()` or `model.eval()`."""

    target: str
    on: bool


class MakeOptimizer(BaseCommand, tag="MakeOptimizer"):
    """Give a model an optimizer over its parameters, instead of the one it has."""

    target: str
    kind: str = "adam"
    """`sgd`, `momentum` (SGD with momentum 0.9), `adam` or `adamw`; `none` removes it."""
    learning_rate: float = 1e-3


class TrainStep(BaseCommand, tag="TrainStep"):
    """zero_grad, forward, backward of the output's sum, step."""

    target: str
    input: str | None = None
