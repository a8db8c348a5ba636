"""What a host says, made fit to be shown: a text cannot move the cursor, hide or turn around what is beside it, a
number is one that an axis can show, and a time is by this window's clock. Pure functions, any thread."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.engine.link import sane
from devexplorer.core.records import Row

T = TypeVar("T")
TIME = "_unix_s"
"""How the names of fields end that hold a time of the other clock."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with signs in place of control and escape characters; lines and tabs stay."""
    return text if text.isprintable() else _HIDDEN.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def admitted(record: T, ahead_s: float = 0.0) -> T:
    """The record as it can be shown; `LinkError` when it holds what cannot be."""
    if not sane(record):
        raise LinkError(
            f"a {type(record).__name__} was refused: it holds a number that is not finite or a text that is too long"
        )
    shown: T = _shown(record, ahead_s)
    return shown


def _shown(value: Any, ahead_s: float) -> Any:
    """The same object where nothing is to be changed."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Row):
        return value if _is_plain(value) else _struct(value, ahead_s)
    if isinstance(value, msgspec.Struct):
        return _struct(value, ahead_s)
    if isinstance(value, tuple):
        if value and type(value[0]) is int:
            return value
        parts = tuple([_shown(part, ahead_s) for part in value])
        return value if all(map(_same, parts, value)) else parts
    if isinstance(value, dict):
        items = {_shown(key, ahead_s): _shown(part, ahead_s) for key, part in value.items()}
        return value if items == value else items
    return value


def _is_plain(row: Row) -> bool:
    words = f"{row.path}{row.name}{row.kind}{row.type}{row.dtype}{row.tied_to}{row.grad_fn}{''.join(row.devices)}"
    return words.isprintable()


def _struct(value: msgspec.Struct, ahead_s: float) -> msgspec.Struct:
    changed = {}
    for name, is_time in _fields(type(value)):
        part = getattr(value, name)
        if is_time:
            if part and ahead_s:
                changed[name] = part - ahead_s
        elif not isinstance(part, (int, float)) and part is not None and not _same(now := _shown(part, ahead_s), part):
            changed[name] = now
    return msgspec.structs.replace(value, **changed) if changed else value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    return tuple((name, name.endswith(TIME)) for name in kind.__struct_fields__)


def _same(one: object, other: object) -> bool:
    return one is other
