"""A copy of unsaved work, for the case that the window ends without being closed. Main thread, but for the functions
that look through the folder; the engine writes the copy, a workspace file, at a quiet moment.

Each window has a file of its own, named by its process, so two windows never touch each other's. A file whose process
is gone was left by a window that crashed; the next window to start takes it over by renaming it.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import platformdirs
import psutil

from devexplorer.core.base import Clock
from devexplorer.core.files.records import SaveWorkspace
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import Answer, BaseEvent, Cancel, Command, EventSink, JobEnded, Log
from devexplorer.core.session.state import State

MOST_BYTES = 1 << 30
"""A larger workspace is not copied: writing it would take too long."""
QUIET_S = 3.0
"""How long nothing has happened before a copy is made."""
INTERVAL_S = 30.0
"""At least so long between two copies."""
SHARE = 20
"""And so many times as long as the last one took."""
KEPT = 3
"""Copies that crashed windows left; older ones are removed."""
_NAME = re.compile(r"\.?(?P<host>.*)-(?P<pid>\d+)-(?P<began>\d+)(-found)?\.devexplorer(\.\d+\.part)?")


class FoundCopy(NamedTuple):
    """A copy that a crashed window has left."""

    path: Path
    saved_unix_s: float


class Autosave:
    """`beat` at each beat of the window, `take` for each event of its own commands, `end` when the window ends."""

    def __init__(
        self,
        state: Callable[[], State],
        send: Callable[[Command, Callable[[BaseEvent], None]], int],
        note: EventSink,
        remove: Callable[[Path], None],
        layout: Callable[[], str],
        folder: Path | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`send` is `Session.send_aside`; `note` gets a line for the log; `remove` removes a file without waiting for
        the disk; `layout` gives that of the window. `folder`: where copies are, None: the user's state folder."""
        self._state, self._send, self._note, self.remove, self._clock = state, send, note, remove, clock
        self._layout = layout
        self._folder = folder or Path(platformdirs.user_state_dir("devexplorer", appauthor=False)) / "autosave"
        began = int(psutil.Process().create_time())
        self._path = self._folder / f"{platform.node()}-{os.getpid()}-{began}.devexplorer"
        self.restored: Path | None = None
        """What was left by another window, and is in this one now."""
        self._running = 0
        """The number of the command that writes the copy now; 0: none."""
        self._writing: int | None = None
        """The contents that it has."""
        self.copied: int | None = None
        """The contents of which there is a copy."""
        self._refused: int | None = None
        self._contents = 0
        self._quiet_since_s = self._due_s = self._began_s = clock()
        self._said = ""

    def beat(self) -> None:
        """Make a copy if it is time, and remove one that is not needed any more."""
        state, now = self._state(), self._clock()
        if state.engine is None:
            self._running, self.copied, self._refused = 0, None, None
        if state.engine is None or self._running:
            return
        files = state.part(FilesState)
        contents = files.contents
        if contents != self._contents or state.jobs or state.active_runs:
            self._contents, self._quiet_since_s = contents, now
        if not files.changed:
            self._drop()
        elif now >= max(self._quiet_since_s + QUIET_S, self._due_s):
            self.copy()

    def copy(self) -> bool:
        """Make a copy now, if there is work of which there is none; returns whether one is being made."""
        files = self._state().part(FilesState)
        contents = files.contents
        if not files.unsaved_work or contents in (self.copied, self._refused):
            return bool(self._running)
        if not self._running:
            with suppress(OSError):  # the engine says what is wrong with the folder
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._writing, self._began_s = contents, self._clock()
            command = SaveWorkspace(path=str(self._path), overwrite=True, most_bytes=MOST_BYTES, layout=self._layout())
            if (file := files.workspace_file) is not None:
                command = msgspec.structs.replace(command, copy_of=file.path, copy_of_far=file.sent_from)
            self._running = self._send(command, self.take)
        return True

    def make_way(self) -> None:
        """The user wants something of the engine: it need not wait for the copy."""
        if self._running:
            self._send(Cancel(job=self._running), self.take)

    def take(self, event: BaseEvent) -> None:
        """An event of one of its commands."""
        if event.request != self._running:
            return
        if isinstance(event, Answer) and event.failed and not event.cancelled:
            self._refused = self._writing
            if event.words != self._said:
                self._said = event.words
                text = f"No copy of the workspace is kept in case of a crash: {event.words}"
                self._note(Log(level="info", text=text, time_unix_s=event.time_unix_s))
        elif isinstance(event, JobEnded):
            now = self._clock()
            self._running, self._due_s = 0, now + max(INTERVAL_S, SHARE * (now - self._began_s))
            if event.ok:
                self.copied = self._writing

    def end(self, *, keep: bool) -> None:
        """The window ends. `keep`: nobody was asked, so the copy stays for the next start."""
        if self.restored is not None and (not keep or self.copied is not None):
            discard(self.restored)
        if not keep:
            discard(self._path)

    def _drop(self) -> None:
        if self.copied is not None:
            self.copied = None
            self.remove(self._path)

    # --- what other windows have left; any thread

    def look(self) -> FoundCopy | None:
        """Take over the newest copy that a crashed window has left; remove old ones, and files that were never
        completed."""
        left: list[FoundCopy] = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                if (name := _NAME.fullmatch(path.name)) is None or not _is_gone(name):
                    continue
                with suppress(OSError):
                    if path.suffix == ".part":
                        path.unlink()
                    else:
                        left.append(FoundCopy(path, path.stat().st_mtime))
        left.sort(key=lambda found: found.saved_unix_s, reverse=True)
        for found in left[KEPT:]:
            discard(found.path)
        mine = self._path.with_name(f"{self._path.stem}-found{self._path.suffix}")
        for found in left[:KEPT]:
            with suppress(OSError):  # another window was faster
                found.path.rename(mine)
                return FoundCopy(mine, found.saved_unix_s)
        return None


def discard(path: Path) -> None:
    """Remove a copy; one that is gone is no error."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _is_gone(name: re.Match[str]) -> bool:
    """Whether the window that wrote a file of this name was of this machine, and has ended."""
    if name["host"] != platform.node():
        return False
    try:
        process = psutil.Process(int(name["pid"]))
        began_unix_s: float = process.create_time()
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
    return abs(began_unix_s - int(name["began"])) > 2
