"""Where the records of a zip archive lie that torch.save wrote: its directory, and the header of each record. Jobs
thread.

Stricter than `zipfile`, and with a tenth of its memory for an archive of a million records: what torch.save does not
write (compression, encryption, a comment, records that overlap) is refused, because readers disagree about it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from devexplorer.core.base import BadInput
from devexplorer.core.files.kinds import ZIP, zip_refusal

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s4x2H8x2I3H8xI")
_HEADER = struct.Struct("<4s22x2H")
_IN_EXTRA = 0xFFFFFFFF
"""A number that does not fit, and stands among the extra fields instead."""
_LIMIT = 1 << 30
"""Bytes of a directory: that of 900,000 records has 60 MB."""


def records(where: Path) -> dict[str, tuple[int, int]]:
    """Name of a record -> where its bytes begin in the file, and how many there are. `BadInput` says only why not.
    Raises `OSError`, and any exception for a damaged archive."""
    found: dict[str, tuple[int, int]] = {}
    with where.open("rb") as file:
        end = file.seek(0, 2) - _END.size
        file.seek(max(end - _LOCATOR.size, 0))
        tail = file.read()
        signature, _, _, _, count, length, begin, comment = _END.unpack(tail[-_END.size :])
        if signature != b"PK\5\6" or comment:
            raise BadInput("it is cut off, or something was added to its end")
        if tail.startswith(b"PK\6\7"):
            end = _LOCATOR.unpack(tail[: _LOCATOR.size])[2]
            file.seek(end)
            *_, count, length, begin = _END_64.unpack(file.read(_END_64.size))
        if begin + length != end or length > _LIMIT:
            raise BadInput("it is damaged: its directory is not at its end, or longer than that of any checkpoint")
        file.seek(begin)
        directory = file.read(length)
        at = last = 0
        coded = False
        while at < length:
            mark, flags, method, packed, size, named, extra, noted, offset = _ENTRY.unpack_from(directory, at)
            at += _ENTRY.size
            name = directory[at : at + named]
            if _IN_EXTRA in (packed, size, offset):
                size, packed, offset = _large(directory[at + named : at + named + extra], size, packed, offset)
            at += named + extra + noted
            coded = coded or bool(method or flags & 1 or packed != size)
            file.seek(offset)
            header = file.read(_HEADER.size + named)
            own_mark, own, extra = _HEADER.unpack_from(header)
            if mark != b"PK\1\2" or own_mark != ZIP or own != named or not header.endswith(name):
                raise BadInput("it is damaged: its directory names a record that is not there")
            if offset < last:
                raise BadInput("it is damaged: records in it overlap")
            start = offset + _HEADER.size + named + extra
            last = start + packed
            if last > begin:
                raise BadInput("a storage in it reaches beyond its end")
            found[name.decode()] = (start, packed)
    why = zip_refusal(found, next(iter(found), "").partition("/")[0])
    if why is None and coded:
        why = "it is compressed or encrypted, which torch.save does not do"
    if why is not None:
        raise BadInput(why)
    # torch looks names up without regard to case
    if len({name.lower() for name in found}) != count:
        raise BadInput("torch.save did not write it: it has two records of one name, or another number than it says")
    return found


def _large(extra: bytes, *numbers: int) -> list[int]:
    """The numbers, with those that are in the extra fields of an archive above 4 GiB."""
    at = 0
    while (kind := struct.unpack_from("<HH", extra, at))[0] != 1:
        at += 4 + kind[1]
    wide = iter(struct.unpack_from(f"<{kind[1] // 8}Q", extra, at + 4))
    found = []
    for number in numbers:
        found.append(next(wide) if number == _IN_EXTRA else number)
    return found
