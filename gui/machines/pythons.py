"""Where the Python environments of a machine are asked for: of this one on a thread, of another through its link. Main
thread; every answer comes at a later beat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.records.environments import (
    Environment,
    FindPythons,
    Probe,
    ProbePython,
    PythonProbed,
    PythonsFound,
)
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.machines.remote_session import RemoteSession

Found = Callable[[tuple[Environment, ...]], None]
Probed = Callable[[Probe], None]


class Pythons(Protocol):
    """The Python environments of one machine."""

    machine: str
    """As a sentence says it: `on NAME`."""

    def find(self, folder: str, then: Found, failed: Callable[[str], None]) -> None:
        """Those that concern somebody who works in that folder."""

    def given(self, path: str, then: Callable[[Environment], None], failed: Callable[[str], None]) -> None:
        """The one that this path names, of an interpreter or of a folder."""

    def probe(self, python: str, then: Probed) -> None:
        """What one of them has; it is started for that."""


class PythonsHere:
    """Of this machine."""

    machine = "this machine"

    def __init__(self, context: WindowContext) -> None:
        self._in_background = context.in_background

    def find(self, folder: str, then: Found, failed: Callable[[str], None]) -> None:
        """See `Pythons`."""
        from devexplorer.core.environments.environment import find

        self._in_background("pythons", lambda: find(folder), then)

    def given(self, path: str, then: Callable[[Environment], None], failed: Callable[[str], None]) -> None:
        """See `Pythons`."""

        def show(answer: Environment | str) -> None:
            failed(answer) if isinstance(answer, str) else then(answer)

        self._in_background("pythons", lambda: _given(path), show)

    def probe(self, python: str, then: Probed) -> None:
        """See `Pythons`."""
        from devexplorer.core.environments.environment import probe

        self._in_background("pythons", lambda: probe(python), then)


class PythonsThere:
    """Of another machine."""

    def __init__(self, session: RemoteSession) -> None:
        self.machine = session.name
        self._session = session

    def find(self, folder: str, then: Found, failed: Callable[[str], None]) -> None:
        """See `Pythons`."""
        self._ask(FindPythons(folder=folder), then, failed)

    def given(self, path: str, then: Callable[[Environment], None], failed: Callable[[str], None]) -> None:
        """See `Pythons`."""
        self._ask(FindPythons(path=path), lambda found: then(found[0]), failed)

    def probe(self, python: str, then: Probed) -> None:
        """See `Pythons`."""

        def probed(answer: PythonProbed) -> None:
            then(answer.probe)

        self._session.ask(ProbePython(path=python), probed, lambda problem: then(Probe(problem=problem)))

    def _ask(self, question: FindPythons, then: Found, failed: Callable[[str], None]) -> None:
        def came(answer: PythonsFound) -> None:
            then(answer.environments) if answer.environments else failed("There is none.")

        self._session.ask(question, came, failed)


def _given(path: str) -> Environment | str:
    from devexplorer.core.environments.environment import given

    try:
        return given(path)
    except BadInput as error:
        return sentence(str(error))
