"""Lets what `torch.compile` would compile run as it is written, so that each line can be watched, and tells that. The main thread."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from devexplorer.core.doctor.book import Book
from devexplorer.core.places import Place, here

WHAT = "the compiled code"
WHY = "torch.compile is left out here, so that every operation can be watched as it is written; nobody looked at what it compiles."


@contextmanager
def eagerly(book: Book) -> Iterator[None]:
    """Within, `torch.compile` compiles nothing, and what was compiled before runs as it was written."""

    def compile(model: Any = None, **options: Any) -> Any:
        place = here(2)

        def eager(code: Any) -> Any:
            if isinstance(code, nn.Module):
                book.not_checked(WHAT, WHY, place)
                return code

            @functools.wraps(code)
            def called(*given: Any, **named: Any) -> Any:
                book.not_checked(WHAT, WHY, place)
                return code(*given, **named)

            return called

        return eager if model is None else eager(model)

    dynamo = sys.modules.get("torch._dynamo.config")
    before = getattr(dynamo, "disable", None)
    with patch.object(torch, "compile", compile), patch.dict(os.environ, {"TORCHDYNAMO_DISABLE": "1"}):
        if dynamo is not None:
            dynamo.disable = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            if dynamo is not None:
                dynamo.disable = before  # type: ignore[attr-defined]


def unwrapped(model: nn.Module, book: Book, place: Place | None = None) -> nn.Module:
    """The model within wrappers that compile it, or run it in several processes."""
    while True:
        kind = type(model).__name__
        if kind == "OptimizedModule":
            book.not_checked(WHAT, WHY, place)
            model = model._orig_mod  # type: ignore[assignment]
        elif isinstance(model, nn.parallel.DistributedDataParallel):
            book.not_checked(kind, f"{kind} belongs to several processes; the model within it was checked in one.", place)
            model = model.module
        else:
            return model


def note_quantised(model: nn.Module, book: Book) -> None:
    """Say that a virtual GPU, which computes on the CPU, knows nothing of kernels that only the CPU has."""
    for path, module in model.named_modules():
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")):
            kind = type(module).__name__
            book.not_checked(
                "quantised layers", f"{path or kind} is quantised; a virtual GPU cannot tell which cards have kernels for that."
            )
            return


def single(model: nn.Module) -> nn.Module:
    """The model that `DataParallel` copies to several cards: where there is only the CPU, that runs alone."""
    while isinstance(model, nn.DataParallel):
        model = model.module
    return model
