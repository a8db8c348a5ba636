"""A copy of unsaved work, for the case that the host ends: by itself, or because the machine does. The next host says
where it is, with a button that opens it. Main thread; the engine writes the copy, threads look for those that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import platformdirs

from devexplorer.core.base import Clock, moment_text
from devexplorer.core.machines.host.known import Known
from devexplorer.core.records import Answer, Offer, OpenWorkspace
from devexplorer.core.session.autosave import Autosave, Found, discard
from devexplorer.core.session.background import Background
from devexplorer.core.session.session import Session

LOOKS_S = (0.0, 5.0, 30.0)
"""After the start: the host that left a copy may be ending still."""
FINISH_S = 4.0
"""For the last copy, when the host ends."""


class UnsavedCopy:
    """`beat` with every look at the session, `finish` before the end."""

    def __init__(
        self,
        session: Session,
        known: Known,
        *,
        folder: Path | None = None,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`folder`: where the copies are; None: the user's state folder."""
        self._session, self._known, self._clock, self._monotonic = session, known, clock, monotonic
        self._background = Background(session.put)

        def remove(path: Path) -> None:
            self._background.ask("autosave", partial(discard, path), lambda _: None)

        folder = folder or Path(platformdirs.user_state_dir("devexplorer", appauthor=False)) / "autosave-host"
        self._autosave = Autosave(
            lambda: known.state, session.send_aside, session.put, remove, lambda: "", folder, monotonic
        )
        self._found: Found | None = None
        self._offered = False
        begun_s = monotonic()
        self._looks_s = [begun_s + later_s for later_s in LOOKS_S]

    def beat(self) -> None:
        """Copy what should be copied, offer what was found."""
        if self._looks_s and self._monotonic() >= self._looks_s[0]:
            del self._looks_s[0]
            self._background.ask("autosave", self._autosave.look, self._take)
        self._background.deliver()
        self._autosave.beat()
        state, found = self._known.state, self._found
        if found is None or state.engine is None:
            return
        file = state.workspace_file
        if not self._offered:
            self._offered = True
            self._offer(found)
        elif file is not None and isinstance(file.again, OpenWorkspace) and file.again.path == str(found.path):
            self._autosave.restored = found.path  # it is of no use any more once this host ends well

    def is_lacking(self) -> bool:
        """Whether there is unsaved work, and no copy of it: it is too large, say, or the disk is full."""
        state = self._known.state
        return state.engine is not None and state.unsaved_work and self._autosave.copied != state.unsaved.contents

    def make_way(self) -> None:
        """A window wants something of the engine."""
        self._autosave.make_way()

    def finish(self, go_on: Callable[[], None]) -> None:
        """The host ends: make the last copy, letting the session `go_on` meanwhile."""
        until = self._monotonic() + FINISH_S
        while self._autosave.copy() and self._monotonic() < until:
            go_on()
        state = self._known.state
        self._autosave.end(keep=state.engine is None or state.unsaved_work)
        self._background.join(1.0)

    def _take(self, found: Found | None) -> None:
        if found is not None:
            self._found = found
            self._looks_s.clear()

    def _offer(self, found: Found) -> None:
        answer = Answer(
            title="A host that ended here left unsaved work",
            words=f"It was copied on {moment_text(found.saved_unix_s)} to {found.path}.",
            offers=(Offer("Open the copy", OpenWorkspace(path=str(found.path), copy=True)),),
            time_unix_s=self._clock(),
        )
        self._session.put(answer)
