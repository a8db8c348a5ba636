"""Repeats a session that was saved as a script: asks before code of the user's runs, then sends its commands as one
change. Main thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.records import AddVirtual, Command, OpenModel, SetThreads, Steps
from devexplorer.core.session import steps_of
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.isolation.model_source import WhatRuns


def repeat_session(context: WindowContext, path: Path, was_read: Callable[[], None] = lambda: None) -> None:
    """Read the script on a thread, then repeat it on the machine on show; one line where that cannot be."""
    machine = context.machine

    def ask(commands: tuple[Command, ...] | str) -> None:
        was_read()
        if machine is context.machine:
            _ask(context, path, commands)

    context.in_background("recognise", partial(_read, path), ask)


def _read(path: Path) -> tuple[Command, ...] | str:
    from devexplorer.core.session.script_file import commands_of  # when first needed

    try:
        return commands_of(path)
    except BadInput as error:
        return sentence(str(error))


def _ask(context: WindowContext, path: Path, commands: tuple[Command, ...] | str) -> None:
    if isinstance(commands, str):
        context.hint(commands)
        return
    from devexplorer.core.isolation.model_source import describe

    steps = [step for one in commands for step in steps_of(one)]
    try:
        models = [step for step in steps if isinstance(step, OpenModel)]
        runs = [describe(step.source, step.folder, context.machine.name) for step in models]
    except BadInput as error:
        context.hint(sentence(str(error)))
        return
    trusted = context.settings.trusted_folders
    folders = {code.folder: code for code in runs if code.own_code and context.trust_of(code.folder) not in trusted}
    _next(context, path, deque(folders.values()), commands)


def _next(context: WindowContext, path: Path, questions: deque[WhatRuns], commands: tuple[Command, ...]) -> None:
    """Ask about the next folder; when each was allowed, repeat."""
    if not questions:
        _repeat(context, path, commands)
        return
    from devexplorer.gui.files.trust import TrustDialog

    code = questions.popleft()

    def allowed(remember: bool) -> None:
        if remember:
            context.save_settings(trusted_folders=(*context.settings.trusted_folders, context.trust_of(code.folder)))
        _next(context, path, questions, commands)

    dialog = TrustDialog(code, context.window)
    dialog.allowed.connect(allowed)
    context.open_dialog(dialog, about_machine=True)


def _repeat(context: WindowContext, path: Path, commands: tuple[Command, ...]) -> None:
    """What it needs first; virtual GPUs that are here stand for those of the session. The rest is all or none."""
    has_virtual = any(device.info.simulated for device in context.state.devices.values())
    changes = []
    for command in commands:
        if not isinstance(command, AddVirtual | SetThreads):
            changes.append(command)
        elif not (has_virtual and isinstance(command, AddVirtual)):
            context.controller.send(command)
    if changes:
        context.controller.send(Steps(commands=tuple(changes), title=f"the session of {path.name}"))
