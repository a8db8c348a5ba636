"""Objects on their way between machines, as files: saved for another machine, or arrived from one. Main thread, but for
what `FileWork` is given to do.

All of them are in one folder below the cache, which goes when the host does.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import psutil

from devexplorer.core.base import BadInput
from devexplorer.core.host.files import FileWork, Reply
from devexplorer.core.records import Answer, BaseEvent, Cancel, JobEnded, Save
from devexplorer.core.records.host import Done, ForgetCopy, PlaceCopy, Result, SaveCopy, Text

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session

SUFFIX = ".safetensors"
Later = Callable[[Callable[[], None]], None]
"""Has something done on the main thread, soon."""


class Copies:
    """`ask` what it `takes`; `close` at the end."""

    def __init__(self, session: Session, folder: Path | None = None) -> None:
        """`folder`: where those of all processes are; None: in the user's cache."""
        self._session = session
        base = folder or Path(platformdirs.user_cache_dir("devexplorer", appauthor=False)) / "copies"
        self._folder = base / str(os.getpid())
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
        if self._saving is not None:
            reply(None, "objects are being saved for another machine already; wait until they are")
            return
        self._saving = 0

        def prepared(result: Result | None, why_not: str) -> None:
            later(lambda: self._begin(question, why_not if result is None else "", reply))

        files.do(self._prepared, prepared)

    def _begin(self, question: SaveCopy, why_not: str, reply: Reply) -> None:
        if why_not:
            self._saving = None
            reply(None, why_not)
            return
        path = str(self._new())
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
        self._saving = self._session.send_aside(command, take)

    def _place(self, files: FileWork, _: Later, __: PlaceCopy, reply: Reply) -> None:
        def work() -> Result:
            self._prepared()
            return Text(text=str(self._new()))

        files.do(work, reply)

    def _forget(self, files: FileWork, _: Later, question: ForgetCopy, reply: Reply) -> None:
        if not question.path:
            if self._saving:
                self._session.send_aside(Cancel(job=self._saving), lambda _: None)
            reply(Done(), "")
            return

        def work() -> Result:
            path = Path(question.path)
            if path.parent != self._folder or path.suffix != SUFFIX:
                raise BadInput(f"{path} is no copy of the host's")
            path.unlink(missing_ok=True)
            return Done()

        files.do(work, reply)

    def _new(self) -> Path:
        return self._folder / f"{secrets.token_hex(8)}{SUFFIX}"

    def _prepared(self) -> Result:
        """The folder, and none of processes that are gone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):
            for other in self._folder.parent.iterdir():
                if other.name.isdecimal() and not psutil.pid_exists(int(other.name)):
                    shutil.rmtree(other, ignore_errors=True)
        return Done()
