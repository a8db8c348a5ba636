"""Opens the dialog that chooses the Python of the engine, of whichever machine is on show, and remembers the choice.
Main thread only."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from devexplorer.core.session.python_choice import choice
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.machines.python_dialog import PythonDialog
from devexplorer.gui.machines.pythons import Pythons, PythonsHere, PythonsThere

if TYPE_CHECKING:
    from devexplorer.core.machines.remote_session import RemoteSession
    from devexplorer.core.session.session import Session


def open_dialog(context: WindowContext) -> PythonDialog:
    """Choose, then restart the engine."""
    is_here = context.machine.is_here
    folder = str(Path.cwd()) if is_here else "~"
    machine = context.machine
    if machine.link is not None:
        current = machine.link.python
    else:
        current = (machine.session is not None and cast("Session", machine.session).python) or sys.executable
    dialog = PythonDialog(context.state, _pythons(context), folder, current, context.window)
    dialog.chosen.connect(partial(_use, context, folder))
    dialog.browse_requested.connect(partial(_browse, context, dialog))
    context.open_dialog(dialog)
    return dialog


def _pythons(context: WindowContext) -> Pythons:
    machine = context.machine
    if machine.is_here or machine.session is None:
        return PythonsHere(context)
    return PythonsThere(cast("RemoteSession", machine.session))


def _browse(context: WindowContext, dialog: PythonDialog) -> None:
    context.choose_files("Choose a Python", "All files (*)", lambda paths: dialog.add(str(paths[0])))


def _use(context: WindowContext, folder: str, python: str, remember: bool) -> None:
    machine, settings = context.machine, context.settings
    if machine.session is None:
        return
    machine.session.set_python(python)
    if remember and machine.is_here:
        context.save_settings(pythons=choice(settings, Path(folder), python))
    elif remember:
        known = (KnownMachine(one.host, python) if one.host == machine.name else one for one in settings.machines)
        context.save_settings(machines=tuple(known))
