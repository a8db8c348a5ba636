"""Files that were sent from another machine, or go there: the command with the name that people know, and where that
is. Pure, jobs thread."""

from __future__ import annotations

from pathlib import PurePath
from typing import TypeVar

import msgspec

from devexplorer.core.files.entries import TensorFile
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.records import ListFile, Load, LoadCheckpoint, OpenWorkspace, Save, SaveWorkspace
from devexplorer.core.records import SentFrom

C = TypeVar("C", ListFile, Load, LoadCheckpoint, OpenWorkspace)
Writes = TypeVar("Writes", Save, SaveWorkspace)


def as_known(command: C) -> C:
    """The command as if the file were beside the script: what messages and Python name. Read `command.path` itself."""
    sent = command.sent_from
    return command if sent is None else msgspec.structs.replace(command, path=PurePath(sent.path).name)


def as_named(command: Writes) -> Writes:
    """A command that writes a file as if it wrote it beside the script: what messages and Python name. Write
    `command.path` itself."""
    sent = command.sent_to
    return command if sent is None else msgspec.structs.replace(command, path=PurePath(sent.path).name)


def destination(command: Save | SaveWorkspace) -> str:
    """Where the file is that people know."""
    sent = command.sent_to
    return command.path if sent is None else f"{sent.machine}: {sent.path}"


def goes_to(command: Save | SaveWorkspace) -> str:
    """A sentence for a file that is not yet where people know it; empty: it is."""
    return "" if command.sent_to is None else f" The window copies it to {command.sent_to.machine}."


def origin(command: ListFile | Load | LoadCheckpoint | OpenWorkspace) -> str:
    """Where the file is that people know."""
    sent = command.sent_from
    return command.path if sent is None else f"{sent.machine}: {sent.path}"


def with_origin(code: str, sent: SentFrom | None) -> str:
    """The Python below its imports with a comment that says how the file gets there."""
    if sent is None:
        return code
    name = PurePath(sent.path).name
    how = f"save it there as {name} and" if sent.objects else f"{sent.path};"
    line = f"# From {sent.machine}: {how} put the file beside this script"
    return code.replace("\n\n", f"\n\n{' '.join(line.split())}\n", 1)


def with_destination(code: str, sent: SentFrom | None) -> str:
    """The Python below its imports with a comment that says where the file went."""
    if sent is None:
        return code
    line = f"# Written beside this script; the window brought it to {sent.machine}: {sent.path}"
    return code.replace("\n\n", f"\n\n{' '.join(line.split())}\n", 1)


def plain_prefix(sent: SentFrom | None, file: TensorFile) -> str:
    """What the keys of one model that was sent begin with: where people save that model alone they begin with
    nothing."""
    objects = () if sent is None or not sent.objects or file.document is None else file.document.objects
    alone = len(objects) == 1 and objects[0].kind != "tensor"
    return f"{objects[0].name}{SEPARATOR}" if alone else ""
