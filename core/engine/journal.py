"""What has to be done again after the engine died: the commands that made the workspace what it is. Main thread of the window.

A command enters when the engine has acknowledged it, so that the one that killed the engine is not among them. Undo is a command like
the others: replayed in order, the engine's own stack of moves comes back as it was. Sample models and random tensors carry seeds and
come back with the same values; what a seed cannot bring back is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from devexplorer.core.records.messages import (
    AddVirtual,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Remove,
    SetThreads,
    Undo,
)

_NAMED = BuildModel | NewTensor | Combine
_REPLAYED = BuildModel | NewTensor | Combine | Move | Undo | Remove | EditElement | AddVirtual | SetThreads


class Journal:
    """An ordered list of acknowledged commands."""

    def __init__(self) -> None:
        self._entries: list[Command] = []
        self._lost: dict[str, str] = {}

    def add(self, command: Command, created: str | None = None, effects: Sequence[str] = ()) -> None:
        """Take over an acknowledged command.

        `created` is the name that the engine gave to what it made; `effects` is what it did that cannot be repeated, in short phrases.
        """
        command = msgspec.structs.replace(command, request=0)
        if isinstance(command, Forward) and command.output is not None:
            self._lost[created or command.output] = "the result of a forward pass"
        elif isinstance(command, _NAMED):
            self._entries.append(msgspec.structs.replace(command, name=created or command.name))
        elif isinstance(command, _REPLAYED):
            self._entries.append(command)
        if isinstance(command, Remove):
            for name in command.names:
                for lost in [key for key in self._lost if key.partition(",")[0] == name]:
                    del self._lost[lost]
        target = getattr(command, "target", "").partition(":")[0]
        for effect in effects:
            self._lost[f"{target}, {effect}"] = "it cannot be repeated"

    def replay(self) -> list[Command]:
        """The commands to send to a new engine, in order.

        Of several moves of one thing in a row, after the last Undo, only the last is kept, here and from now on.
        """
        last_undo = max((at for at, entry in enumerate(self._entries) if isinstance(entry, Undo)), default=-1)
        settled, rest = self._entries[: last_undo + 1], self._entries[last_undo + 1 :]
        rest = [entry for entry, following in pairwise([*rest, None]) if entry is not None and not _replaced(entry, following)]
        self._entries = settled + rest
        return list(self._entries)

    def lost(self) -> list[str]:
        """What cannot be made again, each with its reason."""
        return [f"{name}: {why}" for name, why in self._lost.items()]

    def forget(self, failed: Sequence[Command]) -> None:
        """Drop what could not be made again, so that it is not tried a second time; of several Undos the very ones that `replay` gave."""
        gone = [msgspec.structs.replace(command, request=0) for command in failed if not isinstance(command, Undo)]
        undos = {id(command) for command in failed if isinstance(command, Undo)}
        self._entries = [entry for entry in self._entries if entry not in gone and id(entry) not in undos]

    def rebuilt(self) -> None:
        """The workspace stands again: what was named as lost has been said."""
        self._lost.clear()


def _replaced(entry: Command, following: Command | None) -> bool:
    """Whether the next command moves the same things on, so that this move need not be made."""
    return (
        isinstance(entry, Move)
        and isinstance(following, Move)
        and not (entry.copy or following.copy or entry.dtype or following.dtype)
        and entry.targets == following.targets
    )
