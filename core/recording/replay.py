"""A session that plays a recording; the window uses it like `core.session` and can seek in it. Main thread only.

No method waits. A separate thread (`replay`) opens the file, makes the state of a moment that was sought, reads ahead
of what is played, and looks through the whole recording once for the coarse curves. `drain` hands out what has become
due.

Seeking builds a whole `State` of the target moment, which replaces the current one; playing continues from there with
the following records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import BadInput, Clock, bytes_text, elapsed_text, moment_text, sentence
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.recording.format import DeviceList, RecordedEntry, Recording, open_recording
from devexplorer.core.recording.timeline import RecordingTimeline
from devexplorer.core.records import Answer, Command, Event, Fact
from devexplorer.core.session import Settings, State
from devexplorer.core.session.poll import MOST_EVENTS, PollResult

REFUSED = "a recording cannot be changed; choose “Back to live” to close it"
SPEEDS = (1, 10, 60)
"""Times as fast as it happened."""
AHEAD_S = 2.0
"""So much of what will be played is read in advance."""
LONGEST_STEP_S = 2.0
"""A beat that was later than this does not make up for all of it: the machine slept, say."""


class ReplayView(NamedTuple):
    """The state of a replay at this moment."""

    file: str
    """Its name; of a copy, also the machine that it came from."""
    is_copy: bool
    host: str
    simulated: bool
    """Whether devices in it are."""
    opened: bool
    """False: it is being opened, or that failed."""
    failed: str | None
    """Why it could not be opened, one line."""
    progress: float
    """Of opening it, or afterwards of looking through it, 0 to 1."""
    length_ms: int
    position_ms: int
    now_unix_s: float
    """Wall-clock time at the position."""
    playing: bool
    speed: int
    seeking: bool
    """The state of the position is being read."""
    findings: tuple[str, ...]
    """What is missing in the file and why."""


class _Jump(NamedTuple):
    """A state that was asked for."""

    number: int
    at_ms: int
    state: State
    whole: bool
    """False: a better one of the same moment follows."""


class ReplaySession:
    """`start`, then `drain`; `seek`, `play`, `pause` and `set_speed` whenever; `close` at the end. It begins to play by
    itself."""

    def __init__(
        self,
        path: Path,
        settings: Settings | None = None,
        *,
        known_as: str = "",
        monotonic: Clock = time.monotonic,
        clock: Clock = time.time,
    ) -> None:
        """`known_as`: the file that people know, where this one is a copy of it."""
        self._path, self._known_as = path, known_as
        self.settings = settings or Settings()
        """What the states follow from the next jump on."""
        self._monotonic, self._clock = monotonic, clock
        self._said: list[Event] = []
        self._requests = 0
        self._playing, self._speed = True, SPEEDS[0]
        self._position = 0.0
        self._last_beat_s: float | None = None
        self._recording: Recording | None = None
        self._simulated, self._findings = False, tuple[str, ...]()
        self._reel: RecordingTimeline | None = None
        self._failed: str | None = None
        self._progress = 0.0
        # What both threads touch, under this lock:
        self._changed = threading.Condition()
        self._stopped = False
        self._jumps = 1
        """Number of the latest jump: what belongs to an earlier one is of no use any more."""
        self._wanted: int | None = 0
        self._arrived: _Jump | None = None
        self._pending = True
        """The whole state of the latest jump has not come yet."""
        self._ahead: deque[RecordedEntry] = deque()
        self._ahead_ms = -1
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> None:
        """Open the file; returns at once."""
        self._thread.start()

    def close(self, deadline_s: float = 2.5) -> bool:
        """End the thread; False when a disk that does not answer held it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # --- what a session can do, and a recording cannot

    def send(self, command: Command) -> int:
        """Nothing in a recording can be changed: says so."""
        self._requests += 1
        self._said.append(refusal(self._clock()))
        return self._requests

    def put(self, event: Event) -> None:
        """Let an event of the window's own arrive like any other. Any thread."""
        self._said.append(event)

    def restart_engine(self) -> None:
        """There is no engine in a recording: says so."""
        self._said.append(refusal(self._clock()))

    # --- winding

    @property
    def view(self) -> ReplayView:
        """Everything that the bar shows."""
        reel, recording = self._reel, self._recording
        header = recording.header if recording is not None else None
        return ReplayView(
            file=self._known_as or self._path.name,
            is_copy=bool(self._known_as),
            host=header.host if header is not None else "",
            simulated=self._simulated,
            opened=reel is not None,
            failed=self._failed,
            progress=self._progress,
            length_ms=reel.length_ms if reel is not None else 0,
            position_ms=round(self._position),
            now_unix_s=self.now(),
            playing=self._playing,
            speed=self._speed,
            seeking=self._pending,
            findings=self._findings,
        )

    def now(self) -> float:
        """Wall-clock time at the position: the end of the plots."""
        return self._reel.unix_s(round(self._position)) if self._reel is not None else self._clock()

    def play(self) -> None:
        """Go on; from the beginning when it is at its end."""
        if self._reel is not None and self._position >= self._reel.length_ms:
            self.seek(0)
        self._playing = True

    def pause(self) -> None:
        """Stay where it is."""
        self._playing = False

    def set_speed(self, speed: int) -> None:
        """Play so many times as fast as it happened."""
        self._speed = speed

    def seek(self, at_ms: int) -> None:
        """Go to a moment; `drain` brings its state when it is read."""
        if self._reel is None:
            return
        at_ms = min(max(at_ms, 0), self._reel.length_ms)
        self._position = float(at_ms)
        with self._changed:
            self._jump_to(at_ms)

    def _jump_to(self, at_ms: int) -> None:
        """The lock is held."""
        self._jumps += 1
        self._wanted, self._arrived, self._pending = at_ms, None, True
        self._ahead.clear()
        self._ahead_ms = -1
        self._changed.notify_all()

    def drain(self) -> PollResult:
        """What became due since the last call."""
        now = self._monotonic()
        step_s = 0.0 if self._last_beat_s is None else min(now - self._last_beat_s, LONGEST_STEP_S)
        self._last_beat_s = now
        events, self._said = self._said, []
        state, catalog = None, None
        with self._changed:
            if self._arrived is not None:
                state, self._pending = self._arrived.state, not self._arrived.whole
                self._position = float(self._arrived.at_ms)
                self._arrived = None
            elif not self._pending and self._playing:
                catalog = self._go_on(step_s, events)
        return PollResult(events, catalog, state)

    def _go_on(self, step_s: float, events: list[Event]) -> Catalog | None:
        """Move the position on and take what was passed. The lock is held."""
        assert self._reel is not None, "a jump has arrived, so it is open"
        catalog = None
        target = min(self._position + step_s * self._speed * 1000, self._ahead_ms)
        while self._ahead and self._ahead[0].at_ms <= target:
            record = self._ahead[0].record
            if len(events) >= MOST_EVENTS or (isinstance(record, DeviceList) and events):
                target = self._ahead[
                    0
                ].at_ms  # the rest comes with the next beat: a list of devices goes before its readings
                break
            self._ahead.popleft()
            if isinstance(record, DeviceList):
                catalog = Catalog(record.devices, record.problems)
            else:
                events.append(record)
        self._position = max(self._position, target)
        if self._position >= self._reel.length_ms and not self._ahead:
            self._playing = False
        if self._is_hungry():
            self._changed.notify_all()
        return catalog

    # --- the thread

    def _run(self) -> None:
        try:
            recording = open_recording(self._path, self._opening)
        except BadInput as error:
            self._failed = str(error).replace(str(self._path), self._known_as or str(self._path))
            return
        if recording is None:
            return  # closed in the meantime
        with recording:
            self._simulated, self._findings = recording.simulated, recording.findings
            self._recording = recording
            self._wind(RecordingTimeline(recording, lambda: initial_state(recording, self.settings, self._known_as)))

    def _opening(self, done: float) -> bool:
        self._progress = done
        return not self._stopped

    def _wind(self, reel: RecordingTimeline) -> None:
        self._progress = 0.0
        self._reel = reel
        follows: Iterator[tuple[int, list[RecordedEntry]]] = iter(())
        lacks_past = False
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped or self._wanted is not None or self._is_hungry() or not reel.complete
                )
                if self._stopped:
                    return
                wanted, number, self._wanted = self._wanted, self._jumps, None
                hungry = self._is_hungry()
            if wanted is not None:
                self._jump(reel, wanted, number)
                follows = reel.following(wanted)
                lacks_past = not reel.knows_before(wanted)
            elif hungry:
                self._read_ahead(follows, number)
            else:
                reel.advance()
                self._progress = reel.overview_done
                if lacks_past and reel.complete:
                    lacks_past = False
                    with self._changed:  # the same moment again, now with everything before it
                        self._jump_to(round(self._position))

    def _jump(self, reel: RecordingTimeline, at_ms: int, number: int) -> None:
        if not reel.is_near(at_ms):
            self._deliver(_Jump(number, at_ms, reel.state_at(at_ms, whole=False), whole=False))
            with self._changed:
                if self._stopped or number != self._jumps:
                    return
        self._deliver(_Jump(number, at_ms, reel.state_at(at_ms), whole=True))

    def _deliver(self, jump: _Jump) -> None:
        with self._changed:
            if jump.number == self._jumps:
                self._arrived = jump

    def _is_hungry(self) -> bool:
        """Whether more should be read ahead of the position. The lock is held."""
        if self._reel is None or self._wanted is not None or self._ahead_ms >= self._reel.length_ms:
            return False
        return self._ahead_ms < self._position + AHEAD_S * self._speed * 1000

    def _read_ahead(self, follows: Iterator[tuple[int, list[RecordedEntry]]], number: int) -> None:
        until_ms, entries = next(follows, (self._reel.length_ms if self._reel is not None else 0, []))
        with self._changed:
            if number == self._jumps:
                self._ahead.extend(entries)
                self._ahead_ms = until_ms


# --- messages


def refusal(time_unix_s: float) -> Answer:
    """The answer to a command."""
    return Answer(title="A recording cannot be changed", words=sentence(REFUSED), failed=True, time_unix_s=time_unix_s)


def initial_state(recording: Recording, settings: Settings, known_as: str = "") -> State:
    """The state before any of the recording is read; its answer describes the recording."""
    state = State()
    state.follow(settings)
    header = recording.header
    state.recording = f"recording of {header.host}"
    words = [f"Recorded on {header.host}.", sentence(REFUSED), *recording.findings]
    state.answer = Answer(title=f"Recording of {header.host}", words=" ".join(words), facts=_facts(recording, known_as))
    return state


def _facts(recording: Recording, known_as: str) -> tuple[Fact, ...]:
    header, begin_s = recording.header, recording.first_unix_s
    devices = [f"{info.id} {info.name}{', simulated' if info.simulated else ''}" for info in recording.first_devices]
    return (
        Fact("file", known_as or recording.path.name),
        Fact("recorded on", header.host),
        Fact("from", moment_text(begin_s)),
        Fact("to", moment_text(recording.last_unix_s)),
        Fact("length", elapsed_text(recording.last_ms / 1000)),
        Fact("recorded by", f"DevExplorer {header.devexplorer}".rstrip()),
        Fact("size", bytes_text(recording.size_bytes)),
        *(Fact("device", device) for device in devices),
    )
