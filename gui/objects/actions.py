"""Actions on tensors and models: create, run, edit, remove. Main thread only; a dialog's module is loaded when it is
first opened."""

from __future__ import annotations

from functools import partial

from devexplorer.core.records import Describe, Redo, Undo
from devexplorer.gui.actions import PARAMETERS, ActionSpec, WindowContext
from devexplorer.gui.objects.tab import TAB


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c, selection = context.controller, context.selection
    return [
        ActionSpec("new_tensor", "New tensor…", "Create a tensor on a device", partial(_new_tensor, context),
                   c.why_no_engine, "N"),
        ActionSpec("forward", "Forward", "Run the selected model on the selected tensor, or on a sample input",
                   c.forward, c.why_no_model, "F"),
        ActionSpec("backward", "Backward", "Forward, sum and backward: fills the gradients", c.backward, c.why_no_model,
                   "Shift+F"),
        ActionSpec("add", "Add tensors", "Add the two selected tensors", partial(c.combine, "+"), c.why_no_pair, "+"),
        ActionSpec("remove", "Remove", "Remove the selected objects and free their memory", c.remove,
                   c.why_no_selection, "Del"),
        ActionSpec("undo", "Undo", "Take back the newest change", partial(c.send, Undo()), c.why_no_undo, "Ctrl+Z"),
        ActionSpec("redo", "Redo", "Repeat what was undone last", partial(c.send, Redo()), c.why_no_redo,
                   "Ctrl+Shift+Z"),
        ActionSpec("values", "Values", "Histogram and statistics of the selected tensor",
                   partial(_show_values, context), selection.why_no_values, "V", menu=PARAMETERS),
        ActionSpec("initialise", "Initialise…", "Give a parameter, or all weights of a module, new values",
                   partial(initialise, context), selection.why_no_one_target, "I", menu=PARAMETERS),
        ActionSpec("edit", "Edit an element…", "Set one element of the selected tensor or parameter",
                   partial(edit_element, context), selection.why_no_values, "E", menu=PARAMETERS),
    ]  # fmt: skip


def _new_tensor(context: WindowContext) -> None:
    from devexplorer.gui.objects.new_tensor import NewTensorDialog

    dialog = NewTensorDialog(context.state, context.window)
    if context.device in context.state.usable_devices:
        dialog.choose_device(context.device)
    context.ask(dialog)


def _show_values(context: WindowContext) -> None:
    TAB.show(context)
    tensors = context.selection.tensors()
    if tensors:
        context.controller.send(Describe(target=tensors[0]))


def edit_element(context: WindowContext) -> None:
    """Index and value of one element of the selected tensor."""
    from devexplorer.gui.objects.edit_element import EditElementDialog

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
    from devexplorer.gui.objects.initialise import InitialiseDialog

    context.ask(InitialiseDialog(*rows[0], context.window))
