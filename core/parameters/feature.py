"""Parameters: their values, new values, ties, flags, optimizers, training steps. Data; any thread."""

from __future__ import annotations

from functools import partial

from devexplorer.core.base import objects_text
from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.parameters import records as rec
from devexplorer.core.records import MoveOptimizer

_changing = partial(CommandSpec, undoable=True, replayed=True)

FEATURE = Feature(
    commands=(
        CommandSpec(
            rec.Describe,
            "looking at the values of {c.target}",
            "There are no values to look at",
            "parameters.describing:describe",
        ),
        _changing(
            rec.Initialise, "initialising {c.target}", "Nothing was changed", "parameters.initialising:initialise"
        ),
        _changing(rec.Tie, "tying {c.second} to {c.first}", "Nothing was tied", "parameters.flags:tie"),
        _changing(rec.Untie, "untying {c.target}", "Nothing was untied", "parameters.flags:untie"),
        _changing(
            rec.SetRequiresGrad,
            lambda c: f"{'unfreezing' if c.on else 'freezing'} {objects_text(c.targets)}",
            "Nothing was changed",
            "parameters.flags:set_requires_grad",
        ),
        CommandSpec(
            rec.ClearGradients,
            "clearing the gradients of {c.target}",
            "Nothing was changed",
            "parameters.flags:clear_gradients",
            undoable=True,
            clears="gradients of a backward pass",
        ),
        _changing(
            rec.SetTraining,
            lambda c: f"putting {c.target} into {'training' if c.on else 'evaluation'} mode",
            "Nothing was changed",
            "parameters.flags:set_training",
        ),
        _changing(
            rec.MakeOptimizer,
            "giving {c.target} an optimizer",
            "There is no optimizer",
            "parameters.training:make_optimizer",
        ),
        CommandSpec(
            rec.TrainStep,
            "training step of {c.target}",
            "No step was made",
            "parameters.training:train_step",
            undoable=True,
            verb="training",
            runs="step",
        ),
        _changing(
            MoveOptimizer,
            "moving the optimizer state of {c.target}",
            "Nothing was moved",
            "parameters.training:move_optimizer",
        ),
    ),
    results=(rec.ValuesDescribed,),
    state="core.parameters.state:ValuesState",
    tab="gui.parameters.tab:TAB",
    actions="gui.parameters.tab:actions",
    offers="core.parameters.state:offers",
)
