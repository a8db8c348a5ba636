"""The machine that is shown, as the rest of the window asks it about its files and its Pythons. Main thread; nothing
waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QDialog, QWidget

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.environments.records import Environment, Probe
from devexplorer.core.files.kinds import FileKind
from devexplorer.core.files.script import marked
from devexplorer.core.isolation.model_classes import Candidate
from devexplorer.core.machines.records import (
    FindModels,
    FindPythons,
    ProbePython,
    PythonsFound,
    RecogniseFiles,
    Text,
    WriteScript,
)
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.forms.far_side import Wanted
from devexplorer.gui.machines.far_file_dialog import FarFileDialog, FarFiles

if TYPE_CHECKING:
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.gui.actions import WindowContext
    from devexplorer.gui.machines.file_copies import FileCopies


class Side:
    """See `gui.forms.far_side.FarSide`."""

    folder = "~"

    def __init__(self, context: WindowContext, machine: FarMachine, copies: FileCopies) -> None:
        self._context, self._machine, self._copies = context, machine, copies
        self.name = machine.name
        self._ask: Any = machine.session.ask
        self.send, self.bring = copies.send, copies.bring
        self.save, self.fetch = copies.save, copies.fetch

    def files(self, parent: QObject, listed: Callable[[], object]) -> FarFiles:
        known = FarFiles(self._machine, parent)
        known.listed.connect(listed)
        return known

    def choose(
        self,
        parent: QWidget,
        title: str,
        wanted: Wanted,
        chosen: Callable[[list[Path]], object],
        *,
        folder: str | None = None,
        elsewhere: Callable[[], object] | None = None,
        **more: Any,
    ) -> QDialog:
        folders = self._copies.folders
        begin = folders.get(self.name, "") if folder is None else folder
        here_too = elsewhere is not None
        dialog = FarFileDialog(parent, title, self._machine, wanted, begin, here_too=here_too, **more)

        def accepted(paths: list[Path]) -> None:
            if folder is None:
                folders[self.name] = str(paths[0].parent)
            chosen(paths)

        dialog.chosen.connect(accepted)
        if elsewhere is not None:
            dialog.elsewhere.connect(elsewhere)
        dialog.open()
        return dialog

    def recognise(self, paths: Sequence[Path], then: Callable[[list[FileKind]], object]) -> None:
        self._ask(
            RecogniseFiles(paths=tuple(map(str, paths))),
            lambda found: then([FileKind(Path(file.path), file.kind, file.reason) for file in found.files]),
            lambda problem: self._context.hint(f"The files on {self.name} could not be looked at: {problem}"),
        )

    def models_in(self, path: Path, then: Callable[[list[Candidate]], object]) -> None:
        self._ask(
            FindModels(path=str(path)),
            lambda found: then([Candidate(one.name, one.is_class, one.needs) for one in found.models]),
            lambda _: then([]),
        )

    def script(self, *, notebook: bool, then: Callable[[str], object]) -> None:
        def failed(problem: str) -> None:
            self._context.banner.say(problem, error=True)

        def came(answer: Text) -> None:
            try:
                text = marked(answer.text, self.name, is_notebook=notebook)
            except BadInput as error:
                failed(sentence(str(error)))
            else:
                then(text)

        self._ask(WriteScript(notebook=notebook), came, failed)

    # --- its Pythons

    @property
    def current_python(self) -> str:
        return self._machine.link.python

    def remember_python(self, python: str) -> None:
        known = self._context.settings.machines
        machines = (KnownMachine(one.host, python) if one.host == self.name else one for one in known)
        self._context.save_settings(machines=tuple(machines))

    def find_pythons(
        self, folder: str, then: Callable[[tuple[Environment, ...]], None], failed: Callable[[str], None]
    ) -> None:
        self._find(FindPythons(folder=folder), then, failed)

    def given_python(self, path: str, then: Callable[[Environment], None], failed: Callable[[str], None]) -> None:
        self._find(FindPythons(path=path), lambda found: then(found[0]), failed)

    def probe_python(self, python: str, then: Callable[[Probe], None]) -> None:
        self._ask(ProbePython(path=python), lambda said: then(said.probe), lambda problem: then(Probe(problem=problem)))

    def _find(
        self, question: FindPythons, then: Callable[[tuple[Environment, ...]], None], failed: Callable[[str], None]
    ) -> None:
        def came(answer: PythonsFound) -> None:
            then(answer.environments) if answer.environments else failed("There is none.")

        self._ask(question, came, failed)
