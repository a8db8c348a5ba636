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
from devexplorer.core.isolation.worker import ModelWorker
from devexplorer.core.models import loading
from devexplorer.core.models.walk import parameters_and_buffers
from devexplorer.core.virtual.backend import add_virtual_gpus
from devexplorer.core.virtual.cuda.emulation import asks_for_cards, served, virtual_cards
from devexplorer.core.virtual.cuda.on_cpu import OnCpu

LIMIT_SECONDS = 60.0


class TrialRequest(msgspec.Struct, frozen=True):
    """What to try."""

    source: str
    folder: str
    virtual: tuple[str, ...] = ()
    """Profiles of the virtual GPUs that code gets when it asks for CUDA."""


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
class TriedSources:
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
        result = tried(source, folder, progress, self.limit_seconds, tuple(gpu.profile.name for gpu in virtual_cards()))
        if result.files:
            self._known[key] = result
        return result


def tried(
    source: Source,
    folder: str,
    progress: ProgressMonitor = NO_PROGRESS,
    seconds: float = LIMIT_SECONDS,
    virtual: tuple[str, ...] = (),
) -> TrialResult:
    """Try a source in a new process. Raises `BadInput` with what went wrong, `Cancelled`."""
    try:
        request = TrialRequest(source.text, folder, virtual)
        return WORKER.ask(request, progress, seconds=seconds, virtual=bool(virtual))
    except Cancelled as error:
        raise Cancelled("cancelled; no model was opened") from error


# --- in the worker


def _tried(request: TrialRequest, progress: Report) -> TrialResult:
    """Make the model; it reports no progress: how long the code takes is unknown."""
    source = parse(request.source)
    try:
        model = _made(source, request.folder)
    except BadInput as error:
        if not asks_for_cards(error):
            raise
        if not request.virtual:
            raise BadInput(*error.findings, virtual_helps=True) from error
        model = _made_on_cards(source, request)
    from torch.nn.parameter import is_lazy  # only now: code that does not even import is refused before torch is

    kinds: dict[tuple[str, int], int] = {}
    for tensor in parameters_and_buffers(model):
        if is_lazy(tensor):
            continue
        kind = str(tensor.dtype).removeprefix("torch."), tensor.numel()
        kinds[kind] = kinds.get(kind, 0) + 1
    read = loading.stamps(source.home(request.folder)) | loading.config_stamps(source, request.folder)
    files = tuple((file, *stamp) for file, stamp in read.items())
    sizes = tuple((dtype, elements, count) for (dtype, elements), count in kinds.items())
    return TrialResult(type=type(model).__name__, sizes=sizes, files=files)


def _made_on_cards(source: Source, request: TrialRequest) -> Any:
    """The same by code that sees the virtual GPUs; what it puts there stays where it is."""
    add_virtual_gpus(", ".join(request.virtual))
    with served(), OnCpu():
        return _made(source, request.folder)


def _made(source: Source, folder: str) -> Any:
    """The model without values where its code lets it be made so, which needs no memory however large it is; else with
    values."""
    factory = loading.factory_of(source, folder)
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
