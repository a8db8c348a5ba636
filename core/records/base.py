"""What records have in common, and records as plain values. Any thread.

Neither base of commands and events has a tag, so a subclass has to name its own: msgspec refuses a union that holds a
record without one. The tag is what the link and recordings hold; a class can be renamed, its tag cannot.
"""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec


class RecordMeta(msgspec.StructMeta):
    """Makes every record frozen, with named fields only: msgspec does not pass `kw_only` on to subclasses."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """A class of records with these options of msgspec, unless it names others."""
        return super().__new__(cls, name, bases, namespace, **{"frozen": True, "kw_only": True} | options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, metaclass=RecordMeta):
    """A frozen record whose fields are named when it is made."""


class AnyNumbers(Record):
    """Holds numbers of the user's own, which can be of any size; those of all other records are checked on the link."""


class BaseCommand(Record, forbid_unknown_fields=True):
    """Something to be done by the engine; `request` is chosen by the sender, unique per command."""

    request: int = 0


class BaseEvent(Record):
    """Something that happened in the engine; `request` is that of the command that it answers, 0: there is none."""

    request: int = 0


class SentFrom(msgspec.Struct, frozen=True):
    """The file of another machine that one is a copy of, or that it becomes there (`sent_to`): people know that, not
    the copy, so answers, Undo and Python name it."""

    machine: str
    path: str
    """The file there; of objects: what a file with them would be called."""
    objects: bool = False
    """Objects of the workspace there, rather than a file."""


def plain(value: object) -> Any:
    """A record as an object with every field by its name, null included; what is within it likewise."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(part) for part in value] if isinstance(value, tuple) else value
