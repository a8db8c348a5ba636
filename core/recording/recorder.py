"""Writes a recording in the background, of what a session tells, including readings that the mailbox drops. Two
threads: `recorder` writes, `recorder-sync` calls fsync. No Qt, no torch.

Records reach the operating system within half a second, so a killed process loses less than the last second, and the
disk a second later. `put` never waits for a disk; the queue is bounded. When the disk is full or the file is deleted,
the recording ends with one sentence, and what was written until then can be read.

Readings are copied when they are put, on any thread; everything else when the window sees it, on the main thread.
Events that remain valid until replaced are retained, so that a recording that starts later begins with them.
"""

from __future__ import annotations

import errno
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import devexplorer
from devexplorer.core.base import BadInput, Clock, count_text
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import Listener
from devexplorer.core.recording.format import (
    Damaged,
    DeviceList,
    FrameKind,
    Header,
    Reading,
    Recorded,
    end_frame,
    entries_frame,
    header_frame,
    prefix,
)
from devexplorer.core.records import DeviceInfo, DeviceSample, Event, Log, Problem
from devexplorer.core.session.poll import RetainedEvents

if TYPE_CHECKING:
    from devexplorer.core.session.poll import PollResult
    from devexplorer.core.session.session import Session


FLUSH_S = 0.4
"""Longest time that records stay in this process."""
SYNC_S = 1.0
"""Between two calls of fsync."""
MOST_WAITING = 100_000
"""Most records that wait for the disk: two minutes of 8 devices. Further ones are dropped and counted."""
MOST_IN_A_FRAME = 2_000
_RECORDED = frozenset(get_args(Recorded))

Write = Callable[[int, memoryview], int]


class Recorder:
    """Records what is `put` (any thread, never waits) into the file at `path` until `close`.

    Raises `BadInput` if the file cannot be created, or exists and `overwrite` is False. `on_problem` is called at most
    once, on a thread of the recorder, with the text of `problem`.
    """

    def __init__(
        self,
        path: Path,
        devices: Sequence[DeviceInfo] = (),
        *,
        on_problem: Callable[[str], None],
        problems: Sequence[Problem] = (),
        overwrite: bool = False,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        write: Write = os.write,
    ) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the recording ended, when it ended by itself."""
        self._on_problem = on_problem
        self._clock, self._monotonic, self._write = clock, monotonic, write
        self.started_unix_s = clock()
        self._began = monotonic()
        self._waiting: deque[tuple[int, Recorded]] = deque()
        self._left_out = self._unwritable = 0
        self._written = 0
        self._failed = threading.Lock()
        self._wake, self._closing, self._over = threading.Event(), threading.Event(), threading.Event()
        self._file = _open(path, overwrite)
        self._first = Header(
            host=platform.node(),
            time_unix_s=self.started_unix_s,
            devexplorer=devexplorer.__version__,
            devices=tuple(devices),
        )
        self.put_devices(devices, problems)
        self._writer = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._syncer = threading.Thread(target=self._keep_on_disk, name="recorder-sync", daemon=True)
        self._writer.start()
        self._syncer.start()

    @property
    def bytes_written(self) -> int:
        """Length of the file so far."""
        return self._written

    @property
    def closed(self) -> bool:
        """Whether the file is closed and nothing more will be done."""
        return not self._writer.is_alive() and not self._syncer.is_alive()

    def put(self, event: Event) -> None:
        """Queue an event, if its kind is recorded."""
        if type(event) in _RECORDED and not (isinstance(event, Log) and event.level not in ("warning", "error")):
            self._put(cast("Recorded", event))

    def put_devices(self, devices: Sequence[DeviceInfo], problems: Sequence[Problem] = ()) -> None:
        """Queue the list of devices that holds from now on."""
        self._put(DeviceList(tuple(devices), tuple(problems)))

    def close(self, deadline_s: float = 1.0) -> bool:
        """Write the queue and the end of the file; False if the disk has not taken everything in time."""
        until = time.monotonic() + deadline_s
        self._closing.set()
        self._wake.set()
        self._writer.join(deadline_s)
        self._syncer.join(max(until - time.monotonic(), 0))
        return self.problem is None and self.closed

    def _put(self, record: Recorded) -> None:
        if self._closing.is_set() or self.problem is not None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._left_out += 1
            return
        self._waiting.append((self._now_ms(), record))

    def _now_ms(self) -> int:
        return max(int((self._monotonic() - self._began) * 1000), 0)

    # --- threads -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._append(prefix() + header_frame(self._first))
            while self.problem is None:
                last = self._closing.is_set()
                for frame in self._frames():
                    self._append(frame)
                if last:
                    self._append(end_frame(self._now_ms(), self._clock()))
                    return
                self._wake.wait(FLUSH_S)
        except OSError as error:
            self._cut_back()
            self._fail(_why(error))
        finally:
            self._over.set()

    def _frames(self) -> Iterator[bytes]:
        """The queue as frames, readings and events separately."""
        readings: list[tuple[int, Recorded]] = []
        events: list[tuple[int, Recorded]] = []
        while self._waiting:
            entry = self._waiting.popleft()
            (readings if isinstance(entry[1], Reading) else events).append(entry)
        if self._left_out:
            lost, self._left_out = self._left_out, 0
            missing = f"{count_text(lost, 'reading')} before this moment are missing in it."
            events.append(self._warning(f"The disk was too slow for the recording: {missing}"))
        for kind, entries in ((FrameKind.EVENTS, events), (FrameKind.READINGS, readings)):
            for start in range(0, len(entries), MOST_IN_A_FRAME):
                yield from self._encode(kind, entries[start : start + MOST_IN_A_FRAME])
        if self._unwritable:
            lost, self._unwritable = self._unwritable, 0
            missing = f"{count_text(lost, 'record')} before this moment are missing in the recording"
            yield from self._encode(FrameKind.EVENTS, [self._warning(f"{missing}: they hold what cannot be written.")])

    def _warning(self, words: str) -> tuple[int, Recorded]:
        return self._now_ms(), Log(level="warning", text=words, time_unix_s=self._clock())

    def _encode(self, kind: FrameKind, entries: list[tuple[int, Recorded]]) -> Iterator[bytes]:
        unix_s = self._clock() - (self._now_ms() - entries[-1][0]) / 1000
        try:
            yield entries_frame(kind, entries, max(unix_s, 0.0))
        # a number above 64 bits, half a surrogate pair, a frame that is too large
        except (Damaged, OverflowError, ValueError):
            if len(entries) == 1:
                self._unwritable += 1
                return
            for entry in entries:  # so that only the one that cannot be written is missing
                yield from self._encode(kind, [entry])

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._write(self._file, rest) :]
        self._written += len(data)

    def _cut_back(self) -> None:
        """Remove an unfinished frame from the file."""
        with suppress(OSError):  # a reader finds the end as well
            os.ftruncate(self._file, self._written)

    def _keep_on_disk(self) -> None:
        """Call fsync once a second, on its own thread: it can take many seconds on a busy disk."""
        try:
            _sync_folder(self.path.parent)
            while not self._over.wait(SYNC_S):
                _sync(self._file)
                if os.name == "posix" and os.fstat(self._file).st_nlink == 0:
                    self._fail("the file was deleted", kept=False)
            _sync(self._file)
        except OSError as error:
            self._fail(_why(error))
        finally:
            self._over.wait()  # until the writer has ended
            os.close(self._file)

    def _fail(self, why: str, *, kept: bool = True) -> None:
        """End the recording and report it once; `kept`: whether the file is still there."""
        with self._failed:
            if self.problem is not None:
                return
            hint = " What was recorded until then can be opened." if kept else ""
            self.problem = f"The recording {self.path.name} stopped: {why}.{hint}"
        self._waiting.clear()
        self._wake.set()
        self._on_problem(self.problem)


def _open(path: Path, overwrite: bool) -> int:
    """A new file, open for writing; `BadInput` says why there can be none."""
    try:
        if overwrite and os.path.exists(path) and not os.path.isfile(path):
            raise BadInput(f"{path} is no file; choose another name for the recording")
        mode = os.O_TRUNC if overwrite else os.O_EXCL
        return os.open(
            path, os.O_WRONLY | os.O_CREAT | mode | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o666
        )
    except FileExistsError:
        raise BadInput(f"{path} exists already and is not overwritten; choose another name for the recording") from None
    except FileNotFoundError:
        raise BadInput(f"there is no folder {path.parent}; make it first, or record to another place") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"{path} cannot be written: {_why(error)}") from None


def _why(error: Exception) -> str:
    """The system's reason in plain words."""
    number = getattr(error, "errno", None)
    if number == errno.ENOSPC:
        return "the disk is full"
    if number == errno.EDQUOT:
        return "your share of the disk is used up"
    if number == errno.EFBIG:
        return "the file has reached the largest size that is allowed here"
    words = getattr(error, "strerror", None) or str(error)
    return words[:1].lower() + words[1:]


def _sync(file: int) -> None:
    getattr(os, "fdatasync", os.fsync)(file)


def _sync_folder(folder: Path) -> None:
    """So that after a power cut the file has its name."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # a folder that can be written and not read
        return
    with suppress(OSError):  # not every file system supports it
        os.fsync(handle)
    os.close(handle)


class RecordingTee(Listener):
    """Between `start_recording` and `stop_recording` everything is recorded."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._retained = RetainedEvents()
        self._catalog = Catalog()
        self._recorder: Recorder | None = None
        self._ending: list[Recorder] = []

    @property
    def recording(self) -> Recorder | None:
        """The current recorder; None if nothing is recorded or recording has failed."""
        return self._recorder if self._recorder is not None and self._recorder.problem is None else None

    @property
    def eager(self) -> bool:
        """Every reading is recorded."""
        return self.recording is not None

    def put(self, event: Event) -> None:
        """Any thread; never waits."""
        recorder = self._recorder
        if recorder is not None and isinstance(event, Reading):
            recorder.put(self.session.completed(event) if isinstance(event, DeviceSample) else cast("Event", event))

    def drained(self, result: PollResult) -> None:
        """What the window gets. Main thread; readings were taken by `put`."""
        if result.catalog is not None:
            self._catalog = result.catalog
            if self._recorder is not None:
                self._recorder.put_devices(self._catalog.devices, self._catalog.problems)
        for event in result.events:
            if not isinstance(event, Reading):
                self._retained.take(event)
                if self._recorder is not None:
                    self._recorder.put(event)

    def start_recording(self, path: Path, *, overwrite: bool = False) -> None:
        """Record everything from now on, instead of into another file. Raises `BadInput` with one line when the file
        cannot be made. When the disk is full or the file vanishes later, it ends with a `Log` of level error."""
        recorder = Recorder(
            path, self._catalog.devices, problems=self._catalog.problems, on_problem=self._failed, overwrite=overwrite
        )
        self._end()
        for event in self._retained.events():
            recorder.put(event)
        self._recorder = recorder
        self.session.on_event = (*self.session.on_event, self.put)
        self.session.set_pace()

    def stop_recording(self) -> None:
        """End the recording; the end of its file is written soon after."""
        self._end()
        self.session.set_pace()

    def _end(self) -> None:
        if self._recorder is not None:
            self._recorder.close(0.0)
            self._ending = [*(recorder for recorder in self._ending if not recorder.closed), self._recorder]
            self._recorder = None
            self.session.on_event = tuple(tell for tell in self.session.on_event if tell != self.put)

    def _failed(self, problem: str) -> None:
        self.session.put(Log(level="error", text=problem, time_unix_s=time.time()))

    def close(self, deadline_s: float) -> bool:
        """Stop recording and wait until every file is complete; False if a disk took too long."""
        self._end()
        in_time = True
        for recorder in self._ending:
            in_time &= recorder.close(deadline_s)
        return in_time
