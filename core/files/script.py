"""The session as Python: all actions that were not undone, as a script or a notebook. Pure functions, any
thread; no torch.

Each action's answer carries the equivalent Python. Here the pieces are joined: imports once at the top, then virtual
GPUs, then each piece below a comment or a cell with its description. A window opens a script again from the commands in
its last line, so that none of its Python is run.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from devexplorer.core.base import BadInput, printable, replacing
from devexplorer.core.feature import Listener, command_types, converted
from devexplorer.core.files.records import WorkspaceFile
from devexplorer.core.records import AddVirtual, Command, EngineLost
from devexplorer.core.session import steps_of
from devexplorer.core.session.journal import Action, Surroundings, can_repeat
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.session import Session


class _Piece(NamedTuple):
    title: str
    words: str
    code: str


def script(actions: Sequence[Action], around: Surroundings) -> str:
    """A Python script that repeats the session."""
    setup, pieces = _pieces(actions, around)
    parts = [f'"""A session of DevExplorer as Python.\n\n{_versions(around)}\n"""', setup]
    parts += [f"# {piece.title}\n{piece.code}" for piece in pieces]
    return "\n\n".join(parts) + "\n"


def notebook(actions: Sequence[Action], around: Surroundings) -> str:
    """The same as a Jupyter notebook (format 4.5): for each action a text cell, then a code cell."""
    setup, pieces = _pieces(actions, around)
    cells = [_text_cell("intro", "A session of DevExplorer as Python", _versions(around)), _code_cell("setup", setup)]
    for number, piece in enumerate(pieces, start=1):
        cells += [_text_cell(f"words-{number}", piece.title, piece.words), _code_cell(f"code-{number}", piece.code)]
    document = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "version": around.python_version or "3"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def marked(text: str, machine: str, *, is_notebook: bool = False) -> str:
    """A script or notebook of another machine, which could say anything, with first lines or a cell that say where it
    is from, and that it is read as it is shown: no line of it can name another encoding. Raises `BadInput` where what
    should be a notebook is none."""
    words = f"This came from {printable(machine)} and was not checked: read it before you run it."
    if not is_notebook:
        return f"# -*- coding: utf-8 -*-\n# {words}\n{text}"
    try:
        document = json.loads(text)
        document["cells"].insert(0, _text_cell("origin", words, ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"what {printable(machine)} sent is not a notebook") from error
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def write(path: Path, text: str) -> None:
    """Write a script or a notebook atomically. Raises `BadInput` with one line when that fails."""
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{path} could not be written: {reason}; choose another folder") from error


def _versions(around: Surroundings) -> str:
    known = ((around.python_version, "Python"), (around.torch_version, "PyTorch"))
    ran_on = ", ".join(f"{name} {_NO_VERSION.sub('?', version)[:60]}" for version, name in known if version)
    return f"It ran on {ran_on}." if ran_on else "Undone actions are left out."


def _pieces(actions: Sequence[Action], around: Surroundings) -> tuple[str, list[_Piece]]:
    """The code for the top, and each action without its imports."""
    imports = {"import torch": None}
    after: list[str] = []
    if around.visible_devices is not None:
        imports["import os"] = None
        after.append(
            f'os.environ["CUDA_VISIBLE_DEVICES"] = {json.dumps(around.visible_devices)}  # read once, by the first use'
            " of CUDA"
        )
    if around.virtual_spec:
        imports["from devexplorer import add_virtual_gpus"] = None
        chosen = "" if around.visible_devices is None else f", visible={json.dumps(around.visible_devices)}"
        after.append(f"add_virtual_gpus({json.dumps(around.virtual_spec, ensure_ascii=False)}{chosen})  # simulated")
    pieces = []
    for action in actions:
        own, code = _without_imports(action.code)
        imports.update(dict.fromkeys(own))
        words = "\n".join(map(printable, action.words.split("\n")))
        pieces.append(_Piece(printable(" ".join(action.title.split())), words, code))
    groups = ("\n".join(group) for group in _grouped(imports))
    return "\n\n".join([*groups, *(["\n".join(after)] if after else [])]), pieces


@lru_cache(maxsize=4096)  # the window shows the whole session again after each action
def _without_imports(code: str) -> tuple[Sequence[str], str]:
    """Imports, and everything else; code that is not Python becomes a comment."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ValueError: a NUL
        return (), "\n".join(f"# {printable(line)}" for line in code.splitlines())
    lines: list[str | None] = [*_LINE_ENDS.split(code)]
    imports: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += map(ast.unparse, _each(node))
            for index in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[index] = None
    return tuple(imports), "\n".join(line for line in lines if line is not None).strip("\n")


def _each(node: ast.Import | ast.ImportFrom) -> list[ast.Import | ast.ImportFrom]:
    """One statement for each imported name."""
    if isinstance(node, ast.Import):
        return [ast.Import(names=[name]) for name in node.names]
    return [ast.ImportFrom(module=node.module, names=[name], level=node.level) for name in node.names]


def _grouped(imports: dict[str, None]) -> list[list[str]]:
    """The standard library, other packages, our own; each sorted."""
    standard: list[str] = []
    others: list[str] = []
    ours: list[str] = []
    for line in sorted(imports, key=lambda line: (line.startswith("from"), line)):
        package = line.split()[1].partition(".")[0]
        if package in sys.stdlib_module_names:
            standard.append(line)
        elif package == "devexplorer":
            ours.append(line)
        else:
            others.append(line)
    return [group for group in (standard, others, ours) if group]


_NO_VERSION = re.compile(r"[^\w.+!-]", re.ASCII)
"""What no version holds, and a docstring could end with: what a machine says of itself need not be true."""
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""As Python counts lines; `splitlines` knows more of them."""
_MARKED = re.compile(r"([\\`*_{}\[\]<>#|$])")
_ESCAPED = r"\\\1"


def _text_cell(name: str, title: str, words: str) -> dict[str, object]:
    text = f"### {_MARKED.sub(_ESCAPED, title)}\n\n{_MARKED.sub(_ESCAPED, words)}".rstrip()
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text.splitlines(keepends=True)}


def _code_cell(name: str, code: str) -> dict[str, object]:
    source = code.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "id": name, "metadata": {}, "outputs": [], "source": source}


# --- what repeats it in a window

MARK = "# Commands for DevExplorer, which can open this file: "
MOST_BYTES = 64 << 20


def with_commands(text: str, commands: Sequence[Command], around: Surroundings) -> str:
    """A script with what repeats it in its last line, a comment."""
    if around.virtual_spec:
        commands = (AddVirtual(spec=around.virtual_spec), *commands)
    if not commands:
        return text
    return (
        f"{text}\n{MARK}{msgspec.json.encode([msgspec.structs.replace(one, request=0) for one in commands]).decode()}\n"
    )


class SavedSession(NamedTuple):
    """What a script has."""

    commands: tuple[Command, ...]
    left_out: int
    """Commands of features that are not here, or of a newer version."""


def commands_of(path: Path) -> SavedSession:
    """The commands of a script. Raises `BadInput` with one line where it has none that could be repeated."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"the file {path.name} is too large for a session's script")
        lines = path.read_text(encoding="utf-8").rstrip().rsplit("\n", 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file {path.name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not lines[-1].startswith(MARK):
        raise BadInput(f"the file {path.name} has nothing that can be repeated here; run it with Python")
    try:
        saved: list[dict[str, Any]] = _decode_saved(lines[-1].removeprefix(MARK))
        known = [command for command in saved if _is_known(command)]
        commands = tuple(_command(command) for command in known)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the last line of {path.name} is damaged; run it with Python") from error
    if saved and not known:
        raise BadInput(
            f"the commands of {path.name} are of a newer version, or of features that are not here; run it with Python"
        )
    for command in commands:
        if not all(map(can_repeat, steps_of(command))):
            raise BadInput(f"the file {path.name} was changed: it has a command that is no part of a session")
    return SavedSession(commands, len(saved) - len(known))


_decode_saved = msgspec.json.Decoder(list[dict[str, Any]]).decode


def _is_known(saved: object) -> bool:
    """Whether it, and all that it consists of, are commands here; what is no command at all is damaged, not unknown."""
    if not isinstance(saved, dict):
        return True
    tag, parts = saved.get("type"), saved.get("commands")
    if not isinstance(tag, str) or not isinstance(parts, list):
        return not isinstance(tag, str) or tag in _tags()
    return tag in _tags() and all(map(_is_known, parts))


@cache
def _tags() -> set[object]:
    return {kind.__struct_config__.tag for kind in command_types()}


def _command(saved: dict[str, Any]) -> Command:
    command: Command = converted(saved, Command)
    return command


class SessionFiles(Listener):
    """The session of this machine as Python, and whether its workspace has arrived where it was saved for."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._on_its_way: WorkspaceFile | None = None
        """The workspace as it was saved for another machine, until it is there."""

    def script(self, *, to_repeat: bool = False) -> str:
        """The session as a Python script; `to_repeat`: with what lets a window repeat it."""
        session = self.session
        text = script(session.actions, session.surroundings)
        return with_commands(text, session.commands, session.surroundings) if to_repeat else text

    def notebook(self) -> str:
        """The same as a Jupyter notebook."""
        return notebook(self.session.actions, self.session.surroundings)

    def drained(self, result: PollResult) -> None:
        """Note a file that is being sent."""
        for event in result.events:
            if isinstance(event, EngineLost):
                self._on_its_way = None
            elif isinstance(event, WorkspaceFile) and event.on_its_way:
                self._on_its_way = event

    def arrived(self, request: int) -> None:
        """The file that this `SaveWorkspace` wrote for another machine is whole there: the workspace is that file's
        from now on. Raises `BadInput` when the workspace was made again meanwhile: nobody knows whether it is the
        same."""
        file = self._on_its_way
        if file is None or file.request != request:
            raise BadInput("the engine was restarted while the file was being sent; save again to be sure")
        self._on_its_way = None
        self.session.put(msgspec.structs.replace(file, on_its_way=False))
