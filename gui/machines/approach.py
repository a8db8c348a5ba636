"""How a machine is being reached: what is being done, what ssh asks, what it said. Main thread; `beat` takes what the
connection's threads have reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QObject, Signal

from devexplorer.core.records.ssh import Failure, Progress, Prompt, Report, Said, Withdrawn

MOST_LINES = 500
"""Of what ssh and the login scripts said; the newest are kept."""


class Way(Protocol):
    """A connection over ssh that is being made, as often as it takes."""

    host: str
    """As ssh takes it."""
    failure: Failure | None
    """Why the last attempt failed."""

    def reports(self) -> Sequence[Report]:
        """What was reported since the last call."""

    def answer(self, number: int, text: str | None) -> None:
        """Answer a prompt; None: the user does not."""


class FarWay(Way, Protocol):
    """A way that a machine can be reached by."""

    def open(self, *, unasked: bool) -> object:
        """See `Route`."""

    def cancel(self) -> None:
        """See `Route`."""


class Approach(QObject):
    """`prompt` is what waits for the user, `step` what is being done."""

    changed = Signal()
    asked = Signal()
    """ssh has begun to wait for the user."""

    def __init__(self, way: Way, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.way = way
        self.step: Progress | None = None
        self.said: deque[str] = deque(maxlen=MOST_LINES)
        self._prompts: dict[int, Prompt] = {}
        self._answered = ""
        """What was asked and answered last in this attempt."""
        self._failure: Failure | None = None
        """The last one that was told."""

    @property
    def prompt(self) -> Prompt | None:
        """The oldest one that was not answered."""
        return next(iter(self._prompts.values()), None)

    @property
    def asks_again(self) -> bool:
        """Whether the prompt is the one that was answered just now: ssh did not accept the answer, and need not say
        so."""
        return self.prompt is not None and self.prompt.text == self._answered

    def beat(self) -> None:
        """Take what was reported."""
        before = self.prompt
        reports = self.way.reports()
        failed, self._failure = self.way.failure is not self._failure, self.way.failure
        for report in reports:
            if isinstance(report, Prompt):
                self._prompts[report.number] = report
            elif isinstance(report, Withdrawn):
                self._prompts.pop(report.number, None)
            elif isinstance(report, Said):
                self.said.append(report.text)
            else:
                self.step = report
        if reports or failed:
            self.changed.emit()
        if self.prompt is not None and self.prompt is not before:
            self.asked.emit()

    def begin(self) -> None:
        """Another attempt: what the last one said is no longer of interest."""
        self.step = None
        self.said.clear()
        self._prompts.clear()
        self._answered = ""
        self.changed.emit()

    def answer(self, text: str | None) -> None:
        """Answer the prompt; None refuses. Nothing is kept."""
        prompt = self.prompt
        if prompt is not None:
            del self._prompts[prompt.number]
            self._answered = prompt.text
            self.way.answer(prompt.number, text)
            self.changed.emit()
