"""A session that was saved as a script, as the window opens it again: from the commands in its last line, so that none
of its Python is run. Pure functions but for reading the file; any thread, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from devexplorer.core.base import BadInput
from devexplorer.core.codec import converted
from devexplorer.core.feature import command_types
from devexplorer.core.records import AddVirtual, Command
from devexplorer.core.session.jobs import steps_of
from devexplorer.core.session.journal import can_repeat
from devexplorer.core.session.script import Surroundings

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
