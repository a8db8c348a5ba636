"""What the process that is attached to a cluster is told, and what it says beside the events of the fleet: frozen
records in frames of `core.engine.link`. Any thread."""

from __future__ import annotations

from typing import BinaryIO, Generic, TypeVar

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.engine.link import read_payload, sane
from devexplorer.core.feature import decoder
from devexplorer.core.fleet.events import FleetEvent, MeasureOrder
from devexplorer.core.records.base import Record

LIMIT = 16 << 20
"""Bytes of one frame."""
T = TypeVar("T")


class Measure(Record, tag="Measure"):
    """Measure on cards of the cluster."""

    order: MeasureOrder


class CancelMeasuring(Record, tag="CancelMeasuring"):
    """End what is measured."""


ToCluster = Measure | CancelMeasuring


class CannotAttach(Record, tag="CannotAttach"):
    """The process ends: one line that says why."""

    reason: str


FromCluster = FleetEvent | CannotAttach


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
