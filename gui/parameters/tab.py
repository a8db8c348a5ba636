"""The tab Parameters, and actions on parameters, gradients and optimizers. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.base import OPTIMIZERS, object_name
from devexplorer.core.parameters.records import (
    ClearGradients,
    Describe,
    MakeOptimizer,
    SetRequiresGrad,
    SetTraining,
    Tie,
    TrainStep,
    Untie,
)
from devexplorer.core.records import MoveOptimizer
from devexplorer.core.session import Change
from devexplorer.gui.actions import MODEL, PARAMETERS, ActionSpec, TabSpec, WindowContext, follow_selection, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.parameters.page import ValuesPanel


def _connect(context: WindowContext, page: ValuesPanel) -> None:
    page.initialise_requested.connect(partial(initialise, context))
    page.edit_requested.connect(partial(edit_element, context))


TAB = TabSpec(
    "values",
    lazy_page("devexplorer.gui.parameters.page:ValuesPanel", follow_selection, _connect),
    "explore",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE,
    tooltip="The values of a tensor: numbers, statistics, histogram",
    order=10,
    also_in=("learn",),
)


OPTIMIZER_TITLES = {**{kind: known.title for kind, known in OPTIMIZERS.items()}, "none": "No optimizer"}
"""Titles of the kinds of `MakeOptimizer`."""


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the menus."""
    controller, selection, send = context.controller, context.selection, context.controller.send

    def set_requires_grad(on: bool) -> None:
        send(SetRequiresGrad(targets=tuple(target for target, _ in selection.rows()), on=on))

    def set_training(on: bool) -> None:
        send(SetTraining(target=selection.the_model(), on=on))

    def make_optimizer(kind: str) -> None:
        send(MakeOptimizer(target=selection.the_model(), kind=kind))

    def train_step() -> None:
        send(TrainStep(target=selection.the_model(), input=controller.selected_input()))

    def tie() -> None:
        first, second = selection.parameters()
        send(Tie(first=first, second=second))

    def why_no_flag(on: bool) -> str | None:
        if (reason := selection.why_no_target()) is not None:
            return reason
        if (not on) in selection.gradient_flags():
            return None
        return "Every selected parameter is trainable already." if on else "Every selected parameter is frozen already."

    def tied() -> list[str]:
        return [target for target, row in selection.rows() if row.tied_to is not None and row.kind == "parameter"]

    def why_no_tie() -> str | None:
        if (reason := controller.why_no_selection()) is not None:
            return reason
        two = selection.parameters()
        same = len(set(map(object_name, two))) == 1
        return None if len(two) == 2 and same else "Select two parameters of one model (hold Ctrl and click)."

    def why_no_untie() -> str | None:
        return controller.why_no_selection() or (
            None if len(tied()) == 1 else "Select one parameter that is tied to another."
        )

    def why_no_step() -> str | None:
        return selection.why_no_model() or (
            None if selection.model_has("optimizer") else "Give the model an optimizer first."
        )

    return [
        ActionSpec("values", "Values", "Histogram and statistics of the selected tensor",
                   partial(_show_values, context), selection.why_no_values, "V", menu=PARAMETERS),
        ActionSpec("initialise", "Initialise…", "Give a parameter, or all weights of a module, new values",
                   partial(initialise, context), selection.why_no_one_target, "I", menu=PARAMETERS),
        ActionSpec("edit", "Edit an element…", "Set one element of the selected tensor or parameter",
                   partial(edit_element, context), selection.why_no_values, "E", menu=PARAMETERS),
        ActionSpec("freeze", "Freeze", "requires_grad off: no gradient, no step", partial(set_requires_grad, False),
                   partial(why_no_flag, False), menu=PARAMETERS),
        ActionSpec("unfreeze", "Unfreeze", "requires_grad on", partial(set_requires_grad, True),
                   partial(why_no_flag, True), menu=PARAMETERS),
        ActionSpec("tie", "Tie", "Make the second selected parameter the same object as the first", tie, why_no_tie,
                   menu=PARAMETERS),
        ActionSpec("untie", "Untie", "Give the selected name its own parameter again",
                   lambda: send(Untie(target=tied()[0])), why_no_untie, menu=PARAMETERS),
        ActionSpec("clear_gradients", "Clear gradients", "Set gradients to None and free their memory",
                   lambda: send(ClearGradients(target=selection.rows()[0][0])), selection.why_no_one_target,
                   menu=PARAMETERS),
        ActionSpec("train_mode", "Training mode", "model.train(): dropout and batch statistics on",
                   partial(set_training, True), selection.why_no_model, menu=MODEL),
        ActionSpec("eval_mode", "Evaluation mode", "model.eval()", partial(set_training, False),
                   selection.why_no_model, menu=MODEL),
        ActionSpec("train_step", "Training step", "Forward, backward, optimizer step", train_step, why_no_step,
                   menu=MODEL),
        ActionSpec("move_optimizer", "Move optimizer state", "To the devices of its parameters",
                   lambda: send(MoveOptimizer(target=selection.the_model())), why_no_step, menu=MODEL),
        *(
            ActionSpec(f"optimizer_{kind}", title if kind == "none" else f"Optimizer: {title}",
                       "Over the model's trainable parameters", partial(make_optimizer, kind), selection.why_no_model,
                       menu=MODEL, section=1)
            for kind, title in OPTIMIZER_TITLES.items()
        ),
    ]  # fmt: skip


def _show_values(context: WindowContext) -> None:
    TAB.show(context)
    tensors = context.selection.tensors()
    if tensors:
        context.controller.send(Describe(target=tensors[0]))


def edit_element(context: WindowContext) -> None:
    """Index and value of one element of the selected tensor."""
    from devexplorer.gui.parameters.dialogs import EditElementDialog

    (target,) = context.selection.tensors()
    row = context.controller.row(target)
    assert row is not None
    assert row.shape is not None
    context.ask(EditElementDialog(target, row.shape, context.window))


def initialise(context: WindowContext) -> None:
    """New initial values for what is selected."""
    rows = context.selection.rows()
    if len(rows) != 1:
        return
    from devexplorer.gui.parameters.dialogs import InitialiseDialog

    context.ask(InitialiseDialog(*rows[0], context.window))
