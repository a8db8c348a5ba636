"""What was done and still stands: every acknowledged command with what it made and how it was told. Main thread of the
window.

A command enters when the engine has acknowledged it, so that the one that killed the engine is not among them. Undo
takes one out, Redo puts it in again under another number. From what stands a new engine is given the commands that made
the workspace what it is, and the session is written as Python (`script`). Sample models and random tensors carry seeds
and come back with the same values; what a seed cannot bring back is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from devexplorer.core.commands.registry import spec_of
from devexplorer.core.records.laboratory import ClearGradients
from devexplorer.core.records.messages import Answer, Command, Forward, Move, Remove
from devexplorer.core.session.script import Action


@dataclass(slots=True, eq=False)
class Entry:
    """One acknowledged command."""

    command: Command
    """With the number under which the engine knows it, which is another one after a rebuild."""
    created: str | None = None
    """The name that the engine gave to what it made."""
    effects: tuple[str, ...] = ()
    """What it did that cannot be repeated, in short phrases."""
    action: Action | None = None
    """How it was told, with its Python; None: there is none."""

    @property
    def replayed(self) -> bool:
        """Whether a new engine is given it."""
        return spec_of(self.command).replayed

    @property
    def changes(self) -> bool:
        """Whether it changed something, rather than asked, ran or saved what was there."""
        return self.replayed or bool(self.effects) or getattr(self.command, "output", None) is not None


class Journal:
    """An ordered list of acknowledged commands, without those that were undone."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(
        self, command: Command, created: str | None = None, effects: Sequence[str] = (), answer: Answer | None = None
    ) -> None:
        """Take over an acknowledged command; one that neither changed anything nor has Python to show is left out."""
        action = None
        if answer is not None and answer.code and spec_of(command).in_script:
            action = Action(answer.title, answer.words, answer.code, answer.time_unix_s)
        if spec_of(command).names_result and created is not None:
            named: Any = command
            command = msgspec.structs.replace(named, name=created)
        entry = Entry(command, created, tuple(effects), action)
        if entry.changes or action is not None:
            self._entries.append(entry)

    def take_back(self, request: int) -> None:
        """The command of that number was undone: what was only asked since then was about something that stands no
        more."""
        at = next((at for at, entry in enumerate(self._entries) if entry.command.request == request), None)
        if at is not None:
            self._entries[at:] = [entry for entry in self._entries[at + 1 :] if entry.changes]

    @property
    def actions(self) -> tuple[Action, ...]:
        """What stands, as Python, in its order."""
        return tuple(entry.action for entry in self._entries if entry.action is not None)

    def replay(self) -> list[Entry]:
        """What to send to a new engine, in order; each gets the number that it is sent with.

        Of several moves of one thing in a row only the last is kept, here and from now on.
        """
        again = [entry for entry in self._entries if entry.replayed]
        kept = [
            entry
            for entry, following in pairwise([*again, None])
            if entry is not None and not _replaced(entry, following)
        ]
        self.forget([entry for entry in again if entry not in kept])
        return kept

    def lost(self) -> list[str]:
        """What cannot be made again, each with its reason."""
        found: dict[str, str] = {}
        for entry in self._entries:
            command = entry.command
            if isinstance(command, Forward) and command.output is not None:
                found[entry.created or command.output] = "the result of a forward pass"
            target = getattr(command, "target", "").partition(":")[0]
            for effect in entry.effects:
                found[f"{target}, {effect}"] = "it cannot be repeated"
            if isinstance(command, ClearGradients) and ":" not in command.target:  # so that it need not be repeated
                found.pop(f"{target}, gradients of a backward pass", None)
            if isinstance(command, Remove):
                found = {key: why for key, why in found.items() if key.partition(",")[0] not in command.names}
        return [f"{name}: {why}" for name, why in found.items()]

    def forget(self, entries: Sequence[Entry]) -> None:
        """Drop what is not made again, so that it is not tried a second time."""
        self._entries = [entry for entry in self._entries if entry not in entries]

    def rebuilt(self) -> None:
        """The workspace stands again, without what cannot be repeated: that was named as lost, and is no part of it any
        more."""
        self._entries = [entry for entry in self._entries if entry.replayed]
        for entry in self._entries:
            entry.effects = ()


def _replaced(entry: Entry, following: Entry | None) -> bool:
    """Whether the next command moves the same things on, so that this move need not be made."""
    if following is None:
        return False
    move, then = entry.command, following.command
    return (
        isinstance(move, Move)
        and isinstance(then, Move)
        and not (move.copy or then.copy or move.dtype or then.dtype)
        and (move.targets, move.optimizer) == (then.targets, then.optimizer)
    )
