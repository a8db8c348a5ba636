"""Opens a recording: checks every byte once, finds where each half second is, reads it when asked. Blocks on the
disk: no main thread.

A file that is damaged or cut off is opened as far as it can be believed, and `Recording.findings` says what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from devexplorer.core.base import BadInput, bytes_text, count_text, open_regular
from devexplorer.core.recording.feature import MAGIC
from devexplorer.core.recording.format import (
    HEAD_SIZE,
    MARK,
    PREFIX,
    VERSION,
    Damaged,
    DeviceList,
    FrameKind,
    Head,
    Header,
    RecordedEntry,
    by_time,
    check,
    decode_entries,
    decode_header,
    read_head,
)
from devexplorer.core.records import DeviceInfo

STEP = 1 << 20
"""Bytes that are searched at a time for the next frame."""
MOST_WASTED = 1 << 30
"""Bytes read in vain: a file of nothing but beginnings of frames would keep a machine busy for days."""


class Frame(NamedTuple):
    """Readings of half a second and where they are in the file."""

    offset: int
    """Of the payload."""
    head: Head


class Recording:
    """An open recording. Use it as a context manager, or `close` it; one thread at a time."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self.header = Header(host="unknown machine", time_unix_s=0.0)
        self.events: list[RecordedEntry] = []
        """Everything that is no reading, in the order in which it came."""
        self.frames: list[Frame] = []
        """The readings, in the order in which they came."""
        self.last_ms = 0
        """The end, since the recording began."""
        self.ended = False
        """Whether it was ended, and did not break off."""
        self.last_unix_s = 0.0
        """Wall-clock time at the end."""
        self.refused = 0
        """Records that were left out, each alone."""
        self.skipped: list[int] = []
        """Bytes of each damaged place."""
        self.cut_bytes = 0
        """At the end of the file, of a frame that was not finished."""
        self.size_bytes = 0
        self._skipping_since: int | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def findings(self) -> tuple[str, ...]:
        """What is missing in the file and why, a sentence each; empty: nothing."""
        result = []
        if self.skipped:
            places = count_text(len(self.skipped), "place")
            result.append(f"{bytes_text(sum(self.skipped))} in {places} of the file are damaged and were skipped.")
        if self.refused:
            result.append(f"{count_text(self.refused, 'record')} could not be read and were left out.")
        if not self.ended:
            until = datetime.fromtimestamp(self.last_unix_s).strftime("%H:%M:%S")
            tail = f"; its last {bytes_text(self.cut_bytes)} are an unfinished part" if self.cut_bytes else ""
            result.append(f"The recording was not closed properly or is still running; it ends at {until}{tail}.")
        return tuple(result)

    def readings(self, frame: Frame) -> list[RecordedEntry]:
        """The entries of a frame, in order; none when the file was changed since it was opened."""
        try:
            entries, _ = decode_entries(self._payload(frame.offset, frame.head))
        except (Damaged, OSError, ValueError):  # ValueError: it was closed
            return []
        return _ordered(entries, frame.head)

    @property
    def first_devices(self) -> tuple[DeviceInfo, ...]:
        """The devices at the beginning."""
        lists = (entry.record.devices for entry in self.events if isinstance(entry.record, DeviceList))
        return self.header.devices or next(lists, ())

    @property
    def simulated(self) -> bool:
        """Whether any device in it is."""
        lists = [entry.record.devices for entry in self.events if isinstance(entry.record, DeviceList)]
        return any(info.simulated for devices in (self.header.devices, *lists) for info in devices)

    @property
    def first_unix_s(self) -> float:
        """Wall-clock time at the beginning."""
        return self.header.time_unix_s or (self.frames[0].head.unix_s if self.frames else self.last_unix_s)

    def _payload(self, offset: int, head: Head) -> bytes:
        self._file.seek(offset)
        payload = self._file.read(head.length)
        if len(payload) < head.length:
            raise Damaged("the file ends inside a frame")
        check(head, payload)
        return payload

    # --- the one look at every byte

    def scan(self, progress: Callable[[float], bool]) -> bool:
        """Find every frame, and read those that hold no readings. `progress` gets 0 to 1; False from it gives up
        (returns False)."""
        size = self.size_bytes = os.fstat(self._file.fileno()).st_size
        offset, wasted = PREFIX.size, 0
        while offset < size:
            if not progress(offset / size):
                return False
            head = self._whole_frame(offset)
            if isinstance(head, Head):
                offset += HEAD_SIZE + head.length
                continue
            wasted += head
            result = self._next_mark(offset + 1, size) if wasted < MOST_WASTED else size
            if self._skipping_since is None:
                self._skipping_since = offset
            offset = result
        if self._skipping_since is not None:
            self.cut_bytes, self._skipping_since = size - self._skipping_since, None
        self.events.sort(key=by_time)
        self.frames.sort(key=lambda frame: frame.head.first_ms)
        return True

    def _whole_frame(self, offset: int) -> Head | int:
        """Take over the frame at `offset`; the bytes that were read in vain when it is damaged."""
        self._file.seek(offset)
        data = self._file.read(HEAD_SIZE)
        if len(data) < HEAD_SIZE:
            return len(data)
        try:
            head = read_head(data)
        except Damaged:
            return len(data)
        try:
            payload = self._payload(offset + HEAD_SIZE, head)
        except Damaged:
            return head.length
        if self._skipping_since is not None:
            self.skipped.append(offset - self._skipping_since)
            self._skipping_since = None
        try:
            self._take(head, offset + HEAD_SIZE, payload)
        except Damaged:  # it is what was written, and nothing that this version understands
            self.refused += 1
        return head

    def _take(self, head: Head, offset: int, payload: bytes) -> None:
        if head.kind == FrameKind.HEADER:
            self.header = decode_header(payload)
        elif head.kind == FrameKind.READINGS:
            self.frames.append(Frame(offset, head))
        elif head.kind == FrameKind.EVENTS:
            entries, refused = decode_entries(payload)
            self.events += _ordered(entries, head)
            self.refused += refused
        self.ended = head.kind == FrameKind.END
        self.last_ms = max(self.last_ms, head.last_ms)
        self.last_unix_s = head.unix_s

    def _next_mark(self, offset: int, size: int) -> int:
        """Where the next frame may begin; `size` when nowhere."""
        while offset < size:
            self._file.seek(offset)
            part = self._file.read(STEP)
            if not part:
                return size
            at = part.find(MARK)
            if at >= 0:
                return offset + at
            offset += max(len(part) - len(MARK) + 1, 1)
        return size


def open_recording(path: Path, progress: Callable[[float], bool] = lambda _done: True) -> Recording | None:
    """Open and check a recording; None when `progress` returned False.

    Raises `BadInput` with one line for a file that cannot be read, is no recording, is of a newer version, or holds no
    reading at all.
    """
    file = _file(path)
    recording = Recording(path, file)
    try:
        _demand_prefix(path, file.read(PREFIX.size))
        if not recording.scan(progress):
            recording.close()
            return None
        if not recording.frames and not recording.events:
            raise BadInput(
                f"{path} is a recording without a single reading: it broke off as it began, or all of it is damaged"
            )
    except OSError as error:
        recording.close()
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except BaseException:
        recording.close()
        raise
    return recording


def _file(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def peek(path: Path) -> None:
    """Raise `BadInput` for what is no recording, as `open_recording` does, after a look at the first bytes alone."""
    with _file(path) as file:
        _demand_prefix(path, file.read(PREFIX.size))


def _demand_prefix(path: Path, data: bytes) -> None:
    """Raise `BadInput` unless a recording of a version that can be read begins so."""
    if len(data) < PREFIX.size or not data.startswith(MAGIC):
        raise BadInput(
            f"{path} is no recording of DevExplorer; recordings are made with 'devexplorer watch --record FILE'"
        )
    _, version = PREFIX.unpack(data)
    if version > VERSION:
        raise BadInput(
            f"{path} was recorded by a newer DevExplorer (format {version}, this one reads up to {VERSION}): open it"
            " with that version"
        )


def _ordered(entries: list[RecordedEntry], head: Head) -> list[RecordedEntry]:
    """By time, and inside the time of their frame, whatever is written in them."""
    entries = [RecordedEntry(min(max(at_ms, head.first_ms), head.last_ms), record) for at_ms, record in entries]
    entries.sort(key=by_time)
    return entries
