"""The session as Python: all actions that were not undone, as a script or a notebook. Pure functions, any
thread; no torch.

Each action's answer carries the equivalent Python. Here the pieces are joined: imports once at the top, then virtual
GPUs, then each piece below a comment or a cell with its description.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import BadInput, printable, replacing


class Action(NamedTuple):
    """One action of the session."""

    title: str
    """`mlp is now on vgpu:1`."""
    words: str
    code: str
    """The equivalent Python."""
    time_unix_s: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the session ran on."""

    python_version: str = ""
    torch_version: str = ""
    virtual_spec: str | None = None
    """Virtual GPUs present from the start."""
    visible_devices: str | None = None
    """The CUDA_VISIBLE_DEVICES that was chosen; None: as inherited."""


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
