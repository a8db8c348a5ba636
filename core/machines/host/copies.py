"""Objects and files on their way between machines: saved for another machine, or arrived from one. Main thread, but for
what `FileWork` is given to do.

Each has a folder of its own, so that it keeps its name; all of them are in one folder below the cache, which goes when
the process does.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import psutil

from devexplorer.core.base import BadInput
from devexplorer.core.files.records import Save
from devexplorer.core.machines.host.files import FileWork, Reply
from devexplorer.core.machines.records import Done, ForgetCopy, PlaceCopy, Result, SaveCopy, Text
from devexplorer.core.records import Answer, BaseEvent, Cancel, JobEnded

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session

SAVED = "copy.safetensors"
"""What objects are saved as."""
LONGEST_NAME = 255
"""In bytes."""
Later = Callable[[Callable[[], None]], None]
"""Has something done on the main thread, soon."""


class HostCopies:
    """`ask` what it `takes`; `close` at the end."""

    def __init__(self, session: Session | None, folder: Path | None = None) -> None:
        """`session`: None where there is nothing to save. `folder`: where those of all processes are; None: in the
        user's cache."""
        self.session = session
        base = folder or Path(platformdirs.user_cache_dir("devexplorer", appauthor=False)) / "copies"
        self._folder = base / (platform.node() or "here") / str(os.getpid())  # machines can share a home folder
        self._saving: int | None = None
        """The command that saves now; 0: it is about to be sent."""
        self._handlers: dict[type, Callable[[FileWork, Later, Any, Reply], None]] = {
            SaveCopy: self._save, PlaceCopy: self._place, ForgetCopy: self._forget,
        }  # fmt: skip

    def takes(self, question: object) -> bool:
        """Whether it is one of these."""
        return type(question) in self._handlers

    def ask(self, files: FileWork, later: Later, question: object, reply: Reply) -> None:
        """Answer it, with `files` doing what can wait for a disk, and `later` what follows on the main thread; `reply`
        comes on whichever."""
        self._handlers[type(question)](files, later, question, reply)

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _save(self, files: FileWork, later: Later, question: SaveCopy, reply: Reply) -> None:
        if self.session is None:
            reply(None, "no engine was started on this machine")
            return
        if self._saving is not None:
            reply(None, "objects are being saved for another machine already; wait until they are")
            return
        self._saving, session = 0, self.session

        def prepared(result: Result | None, why_not: str) -> None:
            later(lambda: self._begin(session, question, result, why_not, reply))

        files.do(partial(self._new, SAVED), prepared)

    def _begin(self, session: Session, question: SaveCopy, place: Result | None, why_not: str, reply: Reply) -> None:
        if not isinstance(place, Text):
            self._saving = None
            reply(None, why_not)
            return
        path = place.text
        problems: list[str] = []

        def take(event: BaseEvent) -> None:
            if isinstance(event, Answer) and event.failed:
                problems.append(event.words)
            elif isinstance(event, JobEnded):
                self._saving = None
                if event.ok:
                    reply(Text(text=path), "")
                else:
                    reply(None, problems[-1] if problems else "the engine ended before the objects were saved")

        command = Save(targets=question.targets, path=path, named=True, overwrite=True)
        self._saving = session.send_aside(command, take)

    def _place(self, files: FileWork, _: Later, question: PlaceCopy, reply: Reply) -> None:
        files.do(partial(self._new, question.name), reply)

    def _forget(self, files: FileWork, _: Later, question: ForgetCopy, reply: Reply) -> None:
        if not question.path:
            if self._saving and self.session is not None:
                self.session.send_aside(Cancel(job=self._saving), lambda _: None)
            reply(Done(), "")
            return

        def work() -> Result:
            path = Path(question.path)
            if path.parent.parent != self._folder or path.parent.name == "..":
                raise BadInput(f"{path} is no copy of the host's")
            shutil.rmtree(path.parent, ignore_errors=True)
            return Done()

        files.do(work, reply)

    def _new(self, name: str) -> Result:
        """A path of this name in a new folder; what processes that are gone have left is removed."""
        if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > LONGEST_NAME:
            name = SAVED
        place = self._folder / secrets.token_hex(8) / name
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.parent.mkdir(mode=0o700)
        with suppress(OSError):
            for other in self._folder.parent.iterdir():
                if other.name.isdecimal() and not psutil.pid_exists(int(other.name)):
                    shutil.rmtree(other, ignore_errors=True)
        return Text(text=str(place))
