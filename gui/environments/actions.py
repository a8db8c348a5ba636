"""Choosing the Python of the engine. Main thread only; the dialog's module is loaded when it is first opened."""

from __future__ import annotations

from functools import partial

from devexplorer.core.session import Change
from devexplorer.gui.actions import MACHINE, ActionSpec, WindowContext
from devexplorer.gui.widgets import NOT_READY, why_fixed


def actions(context: WindowContext) -> list[ActionSpec]:
    """Of the menu of machines."""
    return [
        ActionSpec("python", "Python environment…", "Choose the Python, and with it the torch, that the engine runs in",
                   partial(choose_python, context), partial(_why_no_python, context), menu=MACHINE,
                   asks=Change.ENGINE),
    ]  # fmt: skip


def _why_no_python(context: WindowContext) -> str | None:
    return why_fixed(context.state) or (None if context.session is not None else NOT_READY)


def choose_python(context: WindowContext) -> None:
    """Choose the Python of the engine of the machine shown."""
    from devexplorer.gui.environments.python_choice import open_dialog

    open_dialog(context)
