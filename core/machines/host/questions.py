"""Answers what a window asks, each question with one `Reply`. Main thread; files are asked on a thread of that window,
the history on its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devexplorer.core.base import BadInput, Clock, DevExplorerError
from devexplorer.core.machines.records import (
    DeleteRuns,
    Done,
    EngineChoice,
    ExportRuns,
    HostQuestion,
    ImportRuns,
    ListRuns,
    ListScripts,
    Reply,
    RestartEngine,
    Result,
    RunPage,
    SetHidden,
    SetPython,
    SetVisibleDevices,
    StartRecording,
    StopRecording,
    TagRuns,
    Text,
    WorkspaceArrived,
    WriteScript,
)
from devexplorer.core.records import Log, StoredRun
from devexplorer.core.session.session import Session

if TYPE_CHECKING:
    from devexplorer.core.machines.host.server import Client

MOST_RUNS = 1000
"""In one page of the history."""
NEEDS_CONTROL = (RestartEngine, SetVisibleDevices, SetPython, StartRecording, StopRecording)
"""What changes something for every window."""

Answer = Callable[[Result | None, str], None]


class Questions:
    """`answer` what a window asks."""

    def __init__(
        self,
        session: Session,
        clock: Clock = time.time,
    ) -> None:
        self._session = session
        self._clock = clock
        history = partial(session.listener, "history")
        self._later: dict[type, Callable[[Any, Answer], None]] = {
            ListRuns: self._list_runs,
            TagRuns: lambda asked, reply: history().tag(asked.tags, _said(reply), done=lambda: reply(Done(), "")),
            DeleteRuns: lambda asked, reply: history().delete(asked.ids, _said(reply)),
            ExportRuns: self._export_runs,
            ImportRuns: lambda asked, reply: history().import_file(_path(asked.path), _said(reply)),
        }
        """Those that are answered with the `deliver` of the history."""
        recording = partial(session.listener, "recording")
        self._orders: dict[type, Callable[[Any], object]] = {
            StartRecording: lambda asked: recording().start_recording(_path(asked.path), overwrite=asked.overwrite),
            StopRecording: lambda _: recording().stop_recording(),
            RestartEngine: lambda _: session.restart_engine(),
            SetVisibleDevices: lambda asked: session.set_visible_devices(asked.value),
            SetPython: lambda asked: session.set_python(asked.path or None),
            WorkspaceArrived: lambda asked: session.listener("files").arrived(asked.request),
        }
        """Those of which there is nothing to be said once they are done."""

    def answer(self, client: Client, ask: HostQuestion, *, controls: bool) -> None:
        """Answer now, or when it is known."""
        question = ask.question

        def reply(result: Result | None, problem: str) -> None:  # any thread
            client.tell(Reply(to=ask.id, result=result, problem=problem))

        if client.files.takes(question):
            client.files.ask(question, reply)
        elif isinstance(question, NEEDS_CONTROL) and not controls:
            reply(None, "another window controls that machine now; take over first")
        else:
            try:
                if type(question) in self._later:
                    self._later[type(question)](question, reply)
                elif isinstance(question, ListScripts):
                    client.files.do(self._session.listener("observe").scripts, reply)
                elif isinstance(question, WriteScript):
                    files = self._session.listener("files")
                    text = files.notebook() if question.notebook else files.script(to_repeat=True)
                    reply(Text(text=text), "")
                elif isinstance(question, SetHidden):
                    client.hidden = question.hidden
                    reply(Done(), "")
                else:
                    self._orders[type(question)](question)
                    reply(Done(), "")
            except DevExplorerError as error:
                reply(None, str(error))

    def engine_now(self) -> EngineChoice:
        """What the engine runs in."""
        return EngineChoice(
            python=self._session.python or sys.executable, visible_devices=self._session.visible_devices
        )

    def note(self, words: str, *, failed: bool) -> None:
        """Say something to every window."""
        level = "error" if failed else "info"
        self._session.put(Log(level=level, text=words, time_unix_s=self._clock()))

    def _list_runs(self, question: ListRuns, reply: Answer) -> None:
        def show(runs: Sequence[StoredRun], count: int) -> None:
            reply(RunPage(runs=tuple(runs), count=count), "")

        limit = min(max(question.limit, 0), MOST_RUNS)
        self._session.listener("history").request(question.kind, question.text, limit, show, _said(reply))

    def _export_runs(self, question: ExportRuns, reply: Answer) -> None:
        if question.kind not in ("csv", "json", "html"):
            raise BadInput(f"a history is exported as csv, json or html, not as {question.kind!r}")
        path, history = _path(question.path), self._session.listener("history")
        history.export(question.kind, path, question.ids, names=question.names, say=_said(reply))


def _said(reply: Answer) -> Callable[[str, bool], None]:
    """What the history says, as a reply."""

    def say(words: str, failed: bool) -> None:
        if failed:
            reply(None, words)
        else:
            reply(Done(words=words), "")

    return say


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise BadInput("name a file")
    return Path(os.path.abspath(os.path.expanduser(text)))
