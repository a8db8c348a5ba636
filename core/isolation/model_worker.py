"""Work on a model in its own process: one declaration for the side that asks and the side that works. Any thread that
may wait; no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Report
from devexplorer.core.isolation.child import serve
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.isolation.parent import run_in_subprocess


class ModelRequest(Protocol):
    """A request names a model and the folder that its code is imported from."""

    @property
    def source(self) -> str:
        """A sample model's name, or a source as `core.isolation.model_source` reads it."""
        ...

    @property
    def folder(self) -> str:
        """Empty: the current folder."""
        ...


Q = TypeVar("Q", bound=ModelRequest)
R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True)
class ModelWorker(Generic[Q, R]):
    """One kind of work. The `__main__` of `module` calls `serve`; everyone else calls `ask`."""

    module: str
    """What `python -P -m` runs."""
    request: type[Q]
    result: type[R]
    lacking: str = "no result"
    """Ends the sentence about a process that ended early."""
    longer: str = ""
    """Ends the sentence about one whose time was over: how to give it longer."""

    def ask(self, request: Q, progress: ProgressMonitor = NO_PROGRESS, *, seconds: float, virtual: bool = False) -> R:
        """Wait for the result. Raises what `run_in_subprocess` raises; a malformed source needs no process."""
        if ":" in request.source:
            parse(request.source)
        folder = os.path.abspath(request.folder or os.curdir)
        return run_in_subprocess(
            self.module,
            replace(request, folder=folder),  # type: ignore[type-var, arg-type]
            self.result,
            title=f"'{request.source}'",
            seconds=seconds,
            progress=progress,
            lacking=self.lacking,
            virtual=virtual,
            longer=self.longer,
        )

    def serve(self, work: Callable[[Q, Report], R | Iterator[R]]) -> NoReturn:
        """Do the work of this process and end it."""
        serve(self.request, work, _home)  # type: ignore[type-var]


def _home(request: ModelRequest) -> str:
    """The folder of the model's code; empty for a sample model, whose code is not the user's."""
    return parse(request.source).home(request.folder) if ":" in request.source else ""
