"""What has to be done again after the engine died: the commands that made the workspace what it is. Main thread of the window.

A command enters when the engine has acknowledged it, so that the one that killed the engine is not among them. Sample models and random
tensors carry seeds and come back with the same values; what a seed cannot bring back is named.
"""

from __future__ import annotations

from itertools import zip_longest

import msgspec

from devexplorer.core.records.messages import (
    AddVirtual,
    Backward,
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

_REPLAYED = BuildModel | NewTensor | Move | Remove | EditElement | Combine | AddVirtual | SetThreads


LONGEST = 10_000
"""Entries, before moves that later ones replaced are dropped for good (undo cannot reach that far back)."""


class Journal:
    """An ordered list of acknowledged commands, kept short."""

    def __init__(self) -> None:
        self._entries: list[Command] = []
        self._lost: dict[str, str] = {}

    def add(self, command: Command, created: str | None = None) -> None:
        """Take over an acknowledged command; `created` is the name that the engine gave to what it made."""
        command = msgspec.structs.replace(command, request=0)
        match command:
            case Undo():
                self._forget_last_move()
            case Forward(output=output) if output is not None:
                self._lost[created or output] = "the result of a forward pass"
            case Backward(target=target):
                self._lost[f"{target.partition(':')[0]}, gradients"] = "they come from a backward pass"
            case BuildModel() | NewTensor() | Combine():
                self._entries.append(msgspec.structs.replace(command, name=created or command.name))
            case _ if isinstance(command, _REPLAYED):
                self._entries.append(command)
        if len(self._entries) > LONGEST:
            self._entries = self.replay()
        if isinstance(command, Remove):
            for name in command.names:
                for lost in [key for key in self._lost if key.partition(",")[0] == name]:
                    del self._lost[lost]

    def _forget_last_move(self) -> None:
        for position in range(len(self._entries) - 1, -1, -1):
            if isinstance(self._entries[position], Move):
                del self._entries[position]
                return

    def replay(self) -> list[Command]:
        """The commands to send to a new engine, in order; of several moves of one thing in a row only the last."""
        pairs = zip_longest(self._entries, self._entries[1:])
        return [entry for entry, following in pairs if not _replaced(entry, following)]

    def lost(self) -> list[str]:
        """What cannot be made again, each with its reason."""
        return [f"{name}: {why}" for name, why in self._lost.items()]

    def after_rebuild(self, failed: list[Command]) -> None:
        """Forget what could not be made again, so that it is not tried a second time."""
        self._entries = [entry for entry in self._entries if entry not in failed]
        self._lost.clear()


def _replaced(entry: Command, following: Command | None) -> bool:
    """Whether the next command moves the same things on, so that this move need not be made."""
    return (
        isinstance(entry, Move)
        and isinstance(following, Move)
        and not (entry.copy or following.copy or entry.dtype or following.dtype)
        and entry.targets == following.targets
    )
