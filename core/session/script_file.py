"""A session that was saved as a script, as the window opens it again: from the commands in its last line, so that none
of its Python is run. Pure functions but for reading the file; any thread, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from devexplorer.core.base import BadInput
from devexplorer.core.records import AddVirtual, Command
from devexplorer.core.session.jobs import steps_of
from devexplorer.core.session.journal import can_repeat
from devexplorer.core.session.script import Surroundings

MARK = "# Commands for DevExplorer, which can open this file: "
MOST_BYTES = 64 << 20
_decode = msgspec.json.Decoder(tuple[Command, ...])


def with_commands(text: str, commands: Sequence[Command], around: Surroundings) -> str:
    """A script with what repeats it in its last line, a comment."""
    if around.virtual_spec:
        commands = (AddVirtual(spec=around.virtual_spec), *commands)
    if not commands:
        return text
    return (
        f"{text}\n{MARK}{msgspec.json.encode([msgspec.structs.replace(one, request=0) for one in commands]).decode()}\n"
    )


def commands_of(path: Path) -> tuple[Command, ...]:
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
        commands = _decode.decode(lines[-1].removeprefix(MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the last line of {path.name} is damaged, or of a newer version; run it with Python") from error
    for command in commands:
        if not all(map(can_repeat, steps_of(command))):
            raise BadInput(f"the file {path.name} was changed: it has a command that is no part of a session")
    return commands
