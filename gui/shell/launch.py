"""Opens the window or the tour, hands every other command to `core.cli` before Qt is imported. Main thread."""

from __future__ import annotations

import argparse
import builtins
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput, DevExplorerError, open_regular
from devexplorer.core.cli.arguments import away, elsewhere, parse, window_options
from devexplorer.core.cli.display import missing_display
from devexplorer.core.cli.run import NO_THREAD, WINDOW_COMMANDS, can_start_threads, ended, run
from devexplorer.core.cli.startup import refuse
from devexplorer.core.feature import kind_of_head, pythons

if TYPE_CHECKING:
    from devexplorer.gui.actions import WindowContext


def launch(argv: list[str] | None = None) -> int:
    """Do what the arguments ask for, those of the process when there are none given; returns the exit code."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        if arguments.version:
            return run(arguments)
        files = _files(arguments)
        instead = _instead(arguments, files)
        if arguments.command not in WINDOW_COMMANDS:
            return run(arguments)
        option = away(arguments)
        if option is not None and (arguments.command is not None or (instead is not None and not files)):
            raise BadInput(f"--{option.name} is for the window, and for {', '.join(elsewhere())}")
        opens_on = _opens_on(arguments)
        if arguments.virtual is not None:
            from devexplorer.core.devices.profiles import parse_virtual

            parse_virtual(arguments.virtual)  # said here in one line, not later by the engine
        python = None if option is not None else arguments.python
        if python is not None:
            pythons().named(python)  # likewise
        missing = missing_display()
        if missing is not None:
            if arguments.command != "tour":
                raise BadInput(
                    f"{missing} Without a display try 'devexplorer tour', devices, watch, bench, place, doctor, fit or"
                    " env."
                )
            os.environ["QT_QPA_PLATFORM"] = "offscreen"
        screenshots = _screenshots(arguments)
    except DevExplorerError as error:
        return refuse(str(error))

    gc.disable()  # the heartbeat will collect; the imports below are a tenth faster without collections in between
    from devexplorer.gui.shell.font_scale import make_application

    import_plainly()
    application = make_application(sys.argv[:1])
    # Here, not forty frames deeper, where Python 3.11 maps and unmaps a piece of stack at every call of numpy's typing
    # that crosses its end: a fortieth of the time until the window answers.
    import numpy  # noqa: F401

    from devexplorer.gui.shell.app import open_window

    try:
        code = open_window(
            virtual_spec=arguments.virtual,
            python=python and os.path.abspath(os.path.expanduser(python)),
            away=option is not None,
            opens_on=opens_on,
            theme=arguments.theme,
            tour=arguments.command == "tour",
            screenshots=screenshots,
            instead=instead,
            files=() if instead is not None else files,
        )
    except RuntimeError:
        if can_start_threads():
            raise
        code = refuse(NO_THREAD)
    del application
    return ended(code)


def _files(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """The files to open, as whole paths. What a file is that is there, the window says: a file manager shows nothing of
    what is said here."""
    paths = tuple(Path(name) for name in getattr(arguments, "files", ()))
    missing = [str(path) for path in paths if not os.path.exists(path)]
    if missing:
        where = "" if away(arguments) is None else " on this machine"
        raise BadInput(f"there is no file {' and no file '.join(missing)}{where}")
    return tuple(path.absolute() for path in paths)


def _instead(arguments: argparse.Namespace, files: tuple[Path, ...]) -> tuple[str, str] | None:
    """What is shown in place of this machine: a function of gui, and the file that it is for."""
    for option in window_options():
        word: str | None = getattr(arguments, option.name) if option.kind else None
        if word is not None:
            flag = f"--{option.name}"
            if files:
                raise BadInput(f"{flag} names the {option.kind} already; leave the files away, or {flag}")
            if arguments.command is not None:
                raise BadInput(f"{flag} opens the window; leave {arguments.command} away, or {flag}")
            option.check(word, arguments)
            return option.run, word
        if option.kind and len(files) == 1:
            with suppress(OSError, BadInput), open_regular(files[0]) as file:
                if kind_of_head(file.read(64)) == option.kind:
                    return option.run, str(files[0])
    return None


def _opens_on(arguments: argparse.Namespace) -> tuple[Callable[[WindowContext], object], ...]:
    """What options of features ask for, to be done once the window is there."""
    found = []
    for option in window_options():
        word: str | None = getattr(arguments, option.name, None)
        if word is not None and not option.kind:
            option.check(word, arguments)
            found.append(partial(_open_on, option.run, arguments))
    return tuple(found)


def _open_on(run: str, arguments: argparse.Namespace, context: WindowContext) -> None:
    resolve_name(f"devexplorer.gui.{run}")(context, arguments)


def _screenshots(arguments: argparse.Namespace) -> Path | None:
    """The folder for the tour's pictures, made; `BadInput` before the tour runs where none can be written there."""
    text = getattr(arguments, "screenshots", None)
    if text is None:
        return None
    if not text.strip():
        raise BadInput("--screenshots names no folder")
    import tempfile  # for the tour alone

    folder = Path(text).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # permissions do not tell of disks that are full, or of root
            pass
    except FileExistsError:
        raise BadInput(f"--screenshots {text} is a file; name a folder, it is made when there is none") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"no picture can be saved in {text}: {getattr(error, 'strerror', None) or error}") from None
    return folder


def import_plainly() -> None:
    """Take back Python's `import` from PySide, which puts its own in place of it when it is imported.

    PySide's looks for `from __feature__ import`, which nothing here uses: every statement takes ten times as long, and
    of each new module the source is read, split into lines and kept: a sixth of the time until the window answers.
    What PySide needs for its lazy classes is a layer below, and stays.
    """
    own, of_pyside = (getattr(builtins, name, None) for name in ("__orig_import__", "__feature_import__"))
    if own is not None and builtins.__import__ is of_pyside:
        builtins.__import__ = own
