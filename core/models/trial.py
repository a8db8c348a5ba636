"""Tries unknown code in its own process first, so that nothing it does can harm the engine. Jobs thread; the worker's
main thread."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

import msgspec

from devexplorer.core.base import NO_PROGRESS, BadInput, Cancelled, ProgressMonitor, Report
from devexplorer.core.isolation.model_source import Source, parse
from devexplorer.core.isolation.model_worker import ModelWorker
from devexplorer.core.models import loading
from devexplorer.core.models.walk import parameters_and_buffers

LIMIT_SECONDS = 60.0


class TrialRequest(msgspec.Struct, frozen=True):
    """What to try."""

    source: str
    folder: str


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of it."""

    type: str
    sizes: tuple[tuple[str, int, int], ...] = ()
    """Its tensors: dtype, number of elements, how many of this kind."""
    files: tuple[tuple[str, str, int, int], ...] = ()
    """The files of the user that were imported: path, folder, time of change in ns, size."""


WORKER = ModelWorker(
    "devexplorer.core.models.trial", TrialRequest, TrialResult, "no model; a factory returns its model"
)


@dataclass(slots=True)
class Trials:
    """What was tried and worked, for as long as its files stay as they are."""

    limit_seconds: float = LIMIT_SECONDS
    _known: dict[tuple[str, str], TrialResult] = field(default_factory=dict)

    def demand(self, source: Source, folder: str, progress: ProgressMonitor = NO_PROGRESS) -> TrialResult:
        """Try a source, or remember that it worked. Raises `BadInput` with what went wrong, `Cancelled`."""
        key = source.text, os.path.abspath(folder or os.curdir)
        known = self._known.get(key)
        if known is not None and loading.unchanged(
            {file: (home, time_ns, size) for file, home, time_ns, size in known.files}
        ):
            return known
        self._known.pop(key, None)
        progress.report(0.0, f"trying {source.text} in its own process")
        result = tried(source, folder, progress, self.limit_seconds)
        if result.files:
            self._known[key] = result
        return result


def tried(
    source: Source, folder: str, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS
) -> TrialResult:
    """Try a source in a new process. Raises `BadInput` with what went wrong, `Cancelled`."""
    try:
        return WORKER.ask(TrialRequest(source.text, folder), progress, seconds=seconds)
    except Cancelled as error:
        raise Cancelled("cancelled; no model was opened") from error


# --- in the worker


def _tried(request: TrialRequest, progress: Report) -> TrialResult:
    """Make the model; it reports no progress: how long the code takes is unknown."""
    source = parse(request.source)
    factory = loading.factory_of(source, request.folder)
    model = _made(source, factory, request.folder)
    from torch.nn.parameter import is_lazy  # only now: code that does not even import is refused before torch is

    kinds: dict[tuple[str, int], int] = {}
    for tensor in parameters_and_buffers(model):
        if is_lazy(tensor):
            continue
        kind = str(tensor.dtype).removeprefix("torch."), tensor.numel()
        kinds[kind] = kinds.get(kind, 0) + 1
    files = tuple((file, *stamp) for file, stamp in loading.stamps(source.home(request.folder)).items())
    sizes = tuple((dtype, elements, count) for (dtype, elements), count in kinds.items())
    return TrialResult(type=type(model).__name__, sizes=sizes, files=files)


def _made(source: Any, factory: Any, folder: str) -> Any:
    """The model without values where its code lets it be made so, which needs no memory however large it is; else with
    values."""
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            with torch.device("meta"):
                return loading.make(source, factory, folder)
        except BadInput:  # perhaps because there are no values; a mistake of the code's own shows again
            sys.stdout.flush()
    return loading.make(source, factory, folder)


if __name__ == "__main__":
    WORKER.serve(_tried)
