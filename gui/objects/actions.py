"""Actions on tensors and models: create, run, edit, remove. Main thread only; a dialog's module is loaded when it is
first opened."""

from __future__ import annotations

from functools import partial

from devexplorer.core.records import Redo, Undo
from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, WindowContext


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c = context.controller
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
        ActionSpec("undo", "Undo", "Take back the newest change", partial(c.send, Undo()), c.why_no_undo, "Ctrl+Z",
                   asks=Change.UNDO | Change.ENGINE),
        ActionSpec("redo", "Redo", "Repeat what was undone last", partial(c.send, Redo()), c.why_no_redo,
                   "Ctrl+Shift+Z", asks=Change.UNDO | Change.ENGINE),
    ]  # fmt: skip


def _new_tensor(context: WindowContext) -> None:
    from devexplorer.gui.objects.new_tensor import NewTensorDialog

    dialog = NewTensorDialog(context.state, context.window)
    if context.device in context.state.usable_devices:
        dialog.choose_device(context.device)
    context.ask(dialog)
