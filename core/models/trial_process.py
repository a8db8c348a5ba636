"""A process in which code is tried that nobody ran before, through `core.isolation.child`. Its main thread."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from devexplorer.core.base.errors import BadInput
from devexplorer.core.isolation.child import Progress, serve
from devexplorer.core.models import loading
from devexplorer.core.models.source import parse


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


def _tried(request: TrialRequest, progress: Progress) -> TrialResult:
    """Make the model; `progress` is not told anything, since nobody knows how long the code will take."""
    source = parse(request.source)
    factory = loading.factory_of(source, request.folder)
    model = _made(source, factory, request.folder)
    kinds: dict[tuple[str, int], int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if _is_lazy(tensor):
            continue
        kind = str(tensor.dtype).removeprefix("torch."), tensor.numel()
        kinds[kind] = kinds.get(kind, 0) + 1
    files = tuple((file, *stamp) for file, stamp in loading.stamps(loading.home_of(source, request.folder)).items())
    sizes = tuple((dtype, elements, count) for (dtype, elements), count in kinds.items())
    return TrialResult(type=type(model).__name__, sizes=sizes, files=files)


def _is_lazy(tensor: Any) -> bool:
    """Whether a parameter has no shape yet."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


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


def _home(request: TrialRequest) -> str:
    return loading.home_of(parse(request.source), request.folder)


if __name__ == "__main__":
    serve(TrialRequest, _tried, _home)
