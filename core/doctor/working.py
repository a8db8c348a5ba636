"""What the doctor lets a model do, a forward, and for training a backward and a step; and how its code runs meanwhile:
uncompiled, with the random generators put back afterwards. The main thread."""

from __future__ import annotations

import linecache
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from devexplorer.core.base import BadInput, Report, no_report
from devexplorer.core.doctor.failures import Failure, failure_of
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.trials import ComparedValues, alike, values_of
from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.models import Builder, error_text, let_go, named_modules, total
from devexplorer.core.models.class_source import file_of
from devexplorer.core.models.guard import as_written
from devexplorer.core.virtual.backend import backward_guard
from devexplorer.core.virtual.cuda.on_cpu import OnCpu


@contextmanager
def generators_kept(kind: str) -> Iterator[None]:
    """Of every device of a kind (`cuda`, `vgpu`), where its module can read and set them."""
    module: Any = None if kind == "cpu" else torch.get_device_module(kind)
    read, put = getattr(module, "get_rng_state", None), getattr(module, "set_rng_state", None)
    if read is None or put is None:
        yield
        return
    # The one device of mps takes no index.
    places: list[tuple[int, ...]] = [()] if kind == "mps" else [(index,) for index in range(module.device_count())]
    states = [read(*place) for place in places]
    try:
        yield
    finally:
        for state, place in zip(states, places, strict=True):
            put(state, *place)


def seed_all(seed: int) -> None:
    """Two calls get the same random numbers; `kept` puts the generators back in the end."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


LEVELS = 5000
"""Frames that may be in each other: PyTorch alone runs some 200 modules within modules in Python's 1000."""


@contextmanager
def deep() -> Iterator[None]:
    """Within, watching takes no frames from what the model has: hooks and copies need several for each module."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, LEVELS))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


COMPILE = "torch.compile"


@contextmanager
def eagerly(collector: FindingCollector) -> Iterator[None]:
    """Within, nothing is compiled, and what `torch.compile` compiled before runs as it was written."""
    dynamo = sys.modules.get("torch._dynamo.config")
    disabled = nullcontext() if dynamo is None else patch.object(dynamo, "disable", True)
    with as_written(collector.left_uncompiled), patch.dict(os.environ, {"TORCHDYNAMO_DISABLE": "1"}), disabled:
        yield


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


MODES = {True: "training", False: "evaluation"}
FORWARD, BACKWARD, STEP = "the forward", "the backward", "the step of the optimizer"
RATE = 1e-3
"""Of the step; small, so that values stay finite."""


class ForwardWork:
    """One forward, in evaluation mode without gradients; or in training mode with the backward of the sum of its
    output, and a step."""

    def __init__(
        self,
        model: nn.Module,
        train: bool,
        device: str,
        progress: Report = no_report,
        keep: bool = False,
        training: bool | None = None,
    ) -> None:
        """`keep`: some of the values that forward returns are kept. `training`: a forward alone, in this mode."""
        self._training = train if training is None else training
        self._forward_only = training is not None or not train
        self._model, self._train, self._device, self._progress = model, train, device, progress
        self._keep = keep
        self.output: list[ComparedValues] | None = None
        """What was kept."""
        self.stage = FORWARD
        """What is being done."""
        self.without_gradient = False
        """Whether there is something to train, and nothing in the output leads back to it."""
        self.went_back = False
        """Whether a backward was run to its end."""
        self.modules: set[int] = set()
        """`id()` of those that took part."""

    @property
    def is_over(self) -> bool:
        """Whether it is known which parameters get a gradient."""
        return self.went_back or self.without_gradient

    def run(self, inputs: Sequence[Tensor]) -> None:
        """Forward, and backward for training. Raises whatever the model's code raises."""
        self._model.train(self._training)
        paths = {id(module): path for path, module in self._model.named_modules()}

        def enter(module: nn.Module, given: object) -> None:
            self.modules.add(id(module))
            done = 0.4 + 0.2 * min(len(self.modules) / len(paths), 1.0)
            self._progress(done, f"forward on {self._device}", paths.get(id(module), ""))

        hook = register_module_forward_pre_hook(enter)
        try:
            with nullcontext() if self._training else torch.no_grad():
                output = self._model(*inputs)
                if self._keep:
                    self.output = values_of(output)
                loss = total(output)
                del output
        finally:
            hook.remove()
        if self._forward_only:
            return
        if loss is None:
            self.without_gradient = any(item.requires_grad for item in self._model.parameters())
            return
        self.stage = BACKWARD
        self._progress(0.6, f"backward on {self._device}")
        with backward_guard() if self._device.startswith("vgpu") else nullcontext():
            loss.backward()
        self.went_back = True

    def step(self) -> None:
        """A step of SGD with the gradients there are; none after a forward without."""
        trained = [item for item in self._model.parameters() if item.requires_grad and item.grad is not None]
        if not self._forward_only and trained:
            self.stage = STEP
            torch.optim.SGD(trained, lr=RATE).step()


def reads_mode(model: nn.Module) -> bool:
    """Whether the user's code may do something else in training than in evaluation: torch's own layers do it right."""
    kinds = {kind for _, module in named_modules(model) for kind in type.mro(type(module))}
    files = {file for kind in kinds if (file := file_of(kind)) is not None and kind_of(file) == "user"}
    return any(
        word in line for file in files for line in linecache.getlines(file) for word in ("training", "def train(")
    )


class CpuTwin:
    """The same model once more, where there is only the CPU; with the random numbers that the device gets."""

    def __init__(
        self,
        builder: Builder,
        collector: FindingCollector,
        seed: int,
        dtype: torch.dtype | None,
        train: bool,
        training: bool | None,
    ) -> None:
        """`train`, `training`: see `ForwardWork`."""
        self._builder, self._collector, self._seed, self._dtype = builder, collector, seed, dtype
        self._train, self._training = train, training
        self._model: nn.Module | None = None

    def failure(self, inputs: Sequence[Tensor]) -> tuple[Failure | None, str]:
        """How it fails (None: it works), and why that is unknown (empty: it is known)."""
        with OnCpu():
            try:
                work = self._made()
                self._run(work, inputs, self._seed)
                work.step()
            except (Exception, SystemExit) as error:
                if isinstance(error, BadInput):
                    return None, f"it could not be made a second time ({error_text(error)})"
                failure = failure_of(error, self._model, "cpu")
                return (None, failure.description) if failure.kind in ("memory", "host") else (failure, "")
        return None, ""

    def output(self, inputs: Sequence[Tensor], weights: list[ComparedValues] | None) -> list[ComparedValues] | None:
        """What forward returns; None where it fails, or differs from the device by chance: other weights than these,
        random numbers in forward."""
        with OnCpu(), self._collector.ignoring():
            try:
                work = self._made()
                assert self._model is not None
                own = values_of(list(self._model.parameters()))
                first, second = (self._run(work, inputs, seed) for seed in (self._seed, self._seed + 1))
            except (Exception, SystemExit) as error:
                let_go(error)
                return None
        if weights is None or own is None or first is None or second is None:
            return None
        return first if alike(own, weights) and alike(first, second) else None

    def _made(self) -> ForwardWork:
        self._model = single(unwrapped(self._builder.build_on_cpu(self._seed), self._collector))
        if self._dtype is not None:
            self._model = self._model.to(self._dtype)
        return ForwardWork(self._model, self._train, "cpu", keep=True, training=self._training)

    def _run(self, work: ForwardWork, inputs: Sequence[Tensor], seed: int) -> list[ComparedValues] | None:
        torch.default_generator.manual_seed(seed)
        work.run([item.clone() for item in inputs])
        return work.output
