"""Sends tensors, or the state dicts of models, from one machine to another: saved there as safetensors, sent as a file,
loaded here. Main thread; nothing waits."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.base import objects_text
from devexplorer.core.machines.questions import ForgetCopy, SaveCopy
from devexplorer.core.machines.records import Result, Text
from devexplorer.core.machines.window.file_copying import End, FileCopying, Stage
from devexplorer.core.records import Command, Load, SentFrom

NAME = "copy.safetensors"


class Copying(FileCopying):
    """`start`, then look at `stage`; `cancel` whenever."""

    stage: Stage = "saving"

    def __init__(
        self,
        names: tuple[str, ...],
        source: End,
        target: End,
        send: Callable[[Command], object],
        changed: Callable[[], None],
        *,
        device: str = "cpu",
    ) -> None:
        """`send` gives the other machine the command that loads them, to `device` there. `changed` is called when
        anything to be seen is another."""
        super().__init__("", NAME, source, target, self._load, changed)
        self.names, self.what = names, objects_text(names)
        self._send, self._device = send, device

    def start(self) -> None:
        """Have the objects saved."""
        self.source.ask(SaveCopy(targets=self.names), self._saved, self._failed)
        self._changed()

    def cancel(self) -> None:
        """Leave it; what was saved and written is removed."""
        if self.stage == "saving":
            self.source.ask(ForgetCopy(), lambda _: None)
        super().cancel()

    def _saved(self, result: Result) -> None:
        assert isinstance(result, Text)
        self._from = result.text
        if self.over:
            self._forget()
        else:
            self._place()

    def _load(self, path: str) -> None:
        file = f"{self.names[0] if len(self.names) == 1 else 'objects'}.safetensors"
        origin = SentFrom(machine=self.source.known_as or self.source.name, path=file, objects=True)
        self._send(Load(path=path, device=self._device, sent_from=origin))
        self.source.ask(ForgetCopy(path=self._from), lambda _: None)

    def _changed_words(self) -> str:
        return f"{self.source.name} sent something else than the file that it saved."

    def _forget(self) -> None:
        super()._forget()
        if self._from:
            self.source.ask(ForgetCopy(path=self._from), lambda _: None)
        self._from = ""
