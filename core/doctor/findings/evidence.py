"""A finding as the rules state it: facts as fields. Pure; any thread.

What is only known when the run is over is a field, too; `told` makes the sentences of all fields, once.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation, code_lines
from devexplorer.core.records.doctor import Finding


class Effect(Enum):
    """What a tensor that stays behind did to a run that went through; the value is the sentence."""

    SLOW = " Forward copies it to the device at every call."
    COPIED_ONCE = " The first forward copies it to the device."
    ON_CPU = " Forward works with it there, and nothing failed."
    UNUSED = " Nothing in this run used it."


class Evidence(NamedTuple):
    """A finding with what the rules know about it."""

    finding: Finding
    """Its message is what can be said at once, without the end of the sentence where `frequency` is set."""
    place: SourceLocation = NOWHERE
    holder: str = "attribute"
    """What holds the tensors it is about: see `Hidden.holder`."""
    operands: frozenset[str] = frozenset()
    """Paths in the model of the tensors that took part."""
    frequency: bool = False
    """Whether the message ends with how often it happens."""
    first_call_only: bool = False
    effect: Effect | None = None
    failure: Finding | None = None
    """The first line at which the run fails because of this."""

    @property
    def rule(self) -> str:
        """The rule's key."""
        return self.finding.rule

    def failing(self, consequence: Finding) -> Evidence:
        """The same as an error that made the run fail."""
        consequences = (*self.finding.consequences, consequence)
        finding = replace(self.finding, severity="error", consequences=consequences)
        return self._replace(finding=finding, failure=self.failure or (consequence if consequence.line else None))

    def told(self) -> Finding:
        """The finding with its whole message and the lines around its place."""
        message = self.finding.message
        if self.frequency:
            message += " in the first call." if self.first_call_only else " at every call."
        elif self.first_call_only:
            message += " That happens in the first call only."
        if self.effect is not None:
            message += self.effect.value
        if self.failure is not None:
            where = f"{os.path.basename(self.failure.file)}, line {self.failure.line}"
            message += f" Because of that the run fails at {where}."
        return replace(self.finding, message=message, code=code_lines(self.place) if self.place.line else None)
