"""Frames between the process that is attached to a cluster and the one that started it. Any thread."""

from __future__ import annotations

from typing import BinaryIO, Generic, TypeVar

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.codec import decoder
from devexplorer.core.engine.link import read_payload, sane
from devexplorer.core.fleet.cluster.messages import LIMIT

T = TypeVar("T")


class Frames(Generic[T]):
    """Reads records of one union; `next` waits."""

    def __init__(self, stream: BinaryIO, union: type[T]) -> None:
        self._stream = stream
        self._decode = decoder(union).decode

    def next(self) -> T | None:
        """The next record; None at the end. Raises `LinkError` for what is none."""
        payload = read_payload(self._stream, LIMIT)
        if payload is None:
            return None
        try:
            record: T = self._decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LinkError(str(error)) from error
        if not sane(record):
            raise LinkError("a number is out of range")
        return record
