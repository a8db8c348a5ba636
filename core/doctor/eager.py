"""Lets what would be compiled run as it is written, so that each line can be watched, and tells that. The main
thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import nn

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.models.as_written import as_written
from devexplorer.core.models.walk import named_modules

COMPILE = "torch.compile"


@contextmanager
def eagerly(collector: FindingCollector) -> Iterator[None]:
    """Within, nothing is compiled, and what `torch.compile` compiled before runs as it was written."""
    dynamo = sys.modules.get("torch._dynamo.config")
    before = getattr(dynamo, "disable", None)
    with as_written(collector.left_uncompiled), patch.dict(os.environ, {"TORCHDYNAMO_DISABLE": "1"}):
        if dynamo is not None:
            dynamo.disable = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            if dynamo is not None:
                dynamo.disable = before  # type: ignore[attr-defined]


def unwrapped(model: nn.Module, collector: FindingCollector) -> nn.Module:
    """The model within wrappers that compile it, or run it in several processes."""
    if any(type(module).__name__ == "OptimizedModule" for _, module in named_modules(model)):
        collector.left_uncompiled(COMPILE, None)
    while True:
        kind = type(model).__name__
        if kind == "OptimizedModule":
            model = model._orig_mod  # type: ignore[assignment]
        elif isinstance(model, nn.parallel.DistributedDataParallel):
            collector.not_checked(kind, f"{kind} belongs to several processes; the model within it was checked in one.")
            model = model.module
        else:
            return model


def note_quantised(model: nn.Module, collector: FindingCollector) -> None:
    """Say that a virtual GPU, which computes on the CPU, knows nothing of kernels that only the CPU has."""
    for path, module in model.named_modules():
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")):
            kind = type(module).__name__
            collector.not_checked(
                "quantised layers",
                f"{path or kind} is quantised; a virtual GPU cannot tell which cards have kernels for that.",
            )
            return


def single(model: nn.Module) -> nn.Module:
    """The model that `DataParallel` copies to several cards: where there is only the CPU, that runs alone."""
    while isinstance(model, nn.DataParallel):
        model = model.module
    return model
