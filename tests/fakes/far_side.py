"""A machine that answers questions about its files when the test lets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from devexplorer.core.machines.records import Folder, FolderEntry, ListFolder, Question

GIB = 1 << 30
HOME = "/home/ada"


def file(name: str, size: int = 100) -> FolderEntry:
    return FolderEntry(name, False, size, 1_700_000_000.0)


def folder(name: str) -> FolderEntry:
    return FolderEntry(name, True, 0, 1_700_000_000.0)


FOLDERS: dict[str, tuple[FolderEntry, ...]] = {
    HOME: (folder(".cache"), folder("models"), file(".bashrc"), file("net.py"), file("notes.txt")),
    f"{HOME}/models": (folder("old"), file("large.safetensors", 2 * GIB), file("small.pt"), file("strange\x1b[31m.pt")),
    f"{HOME}/models/old": (),
    "/home": (folder("ada"),),
    "/": (folder("home"),),
}


class FarSideFake:
    """`answer` gives what was asked for; `asked` has the questions that wait."""

    name = "gpu1"

    def __init__(self) -> None:
        self.session = self
        self.folders = dict(FOLDERS)
        self.left_out = 0
        self.asked: list[tuple[Question, Callable[[Any], None]]] = []
        self.others: Callable[[Question], Any] = lambda question: f"not asked here: {question}"

    def ask(self, question: Question, then: Callable[[Any], None], failed: Callable[[str], None] | None = None) -> None:
        def answered(answer: Any) -> None:
            (failed if failed is not None and isinstance(answer, str) else then)(answer)

        self.asked.append((question, answered))

    def answer(self, count: int = 100) -> None:
        """Answer so many of the waiting questions, those that come with the answers too."""
        while self.asked and count:
            count -= 1
            question, then = self.asked.pop(0)
            then(self._list(question.path) if isinstance(question, ListFolder) else self.others(question))

    def _list(self, path: str) -> Folder | str:
        path = str(PurePosixPath(path.replace("~", HOME, 1)))
        if path not in self.folders:
            return f"{path}: no such file or directory"
        return Folder(path=path, entries=self.folders[path], left_out=self.left_out)
