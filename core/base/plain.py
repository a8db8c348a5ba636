"""Records as plain values, with every field: encoded as they are, records may leave out what has its default. Pure
functions, any thread."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: object) -> Any:
    """A record as an object with every field by its name, null included; what is within it likewise."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(part) for part in value] if isinstance(value, tuple) else value
