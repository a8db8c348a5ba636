"""What commands and events have in common. Plain frozen records, any thread.

Neither base has a tag, so a subclass has to name its own: msgspec refuses a union that holds a record without one. The
tag is what stands on the link and in recordings; a class can be renamed, its tag cannot.
"""

from __future__ import annotations

import msgspec


class BaseCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to be done by the engine; `request` is chosen by the sender, unique per command."""

    request: int = 0


class BaseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in the engine; `request` is that of the command that it answers, 0: nobody asked."""

    request: int = 0
