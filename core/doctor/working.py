"""What the doctor lets a model do (a forward, and for training a backward and a step), how its code runs meanwhile, and
what an exception out of it means: which line of whose code, and what would help. The main thread."""

from __future__ import annotations

import inspect
import linecache
import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from devexplorer.core.base import BadInput, Report, bytes_text, no_report, out_of_host_memory
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.trials import ComparedValues, alike, values_of
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, place_at, raised_at
from devexplorer.core.models import Builder, error_text, let_go, named_modules, total
from devexplorer.core.models.class_source import file_of
from devexplorer.core.models.guard import as_written
from devexplorer.core.models.inputs import needs
from devexplorer.core.records import DeviceInfo
from devexplorer.core.virtual.backend import backward_guard
from devexplorer.core.virtual.cuda.on_cpu import OnCpu

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TRIED = re.compile(
    r"you tried to allocate (?P<bytes>\d+) bytes|[Tt]ried to allocate (?P<size>[\d.]*\d) ?(?P<unit>[KMGT]?i?B)\b"
)
"""How CUDA, virtual GPUs and the CPU's allocator say how much was asked for."""
_NO_GRADIENTS = "does not require grad and does not have a grad_fn"
_IMITATION = (
    "virtual GPU",
    "VirtualTensor",
    "PrivateUse1",
    "privateuseone",
    "weak reference",
    "weakref",
    "compiled with CUDA",
    "support for cuda",
    "'CUDA' backend",
    "ATen_cuda",
    "attribute '_cuda",
    "Couldn't swap",
    "CUDA tensor",
    "active drivers",
    '_cpu" not implemented for',
    '_cpu_" not implemented for',
    "NestedTensorImpl",
    "data is not allocated yet",
    "have storage",
    "allocated storage",
    "Cannot access data pointer",
)
"""Words of errors that a virtual GPU raises and a real card would not, those of extensions in C++ and Triton among
them."""


class Failure(NamedTuple):
    """What an exception says, without the exception: its frames hold the activations."""

    description: str
    """`ValueError: first line`."""
    place: SourceLocation | None
    """The user's line."""
    path: str
    """The module whose code raised."""
    kind: str
    """`memory` (of the device), `host` (of this machine), `imitation` (of virtual GPUs only), `values` (`meta` has
    none), `other`."""
    wanted: int
    """Bytes that were asked for and not there; 0 where the error does not say."""
    error: type[BaseException] = RuntimeError
    no_forward: bool = False
    """Whether the model only holds modules."""

    @property
    def at(self) -> str:
        """` (net.py, line 7)`; empty where there is no line."""
        return "" if self.place is None else f" ({os.path.basename(self.place.file)}, line {self.place.line})"

    @property
    def fix(self) -> str:
        """What to do where the same works on the CPU."""
        if issubclass(self.error, StopIteration):
            return (
                "In a replica of nn.DataParallel the parameters are plain tensors, and parameters() is empty: take the"
                " device from an input (`x.device`)."
            )
        return (
            "Let this line work with the device that its operands are on (`x.device`), or do it on the CPU and move the"
            " result."
        )


def failure_of(error: BaseException, model: nn.Module | None, device: str) -> Failure:
    """Read an exception, and let go of its frames."""
    text = str(error)
    description = f"it called sys.exit({error})" if isinstance(error, SystemExit) else error_text(error)
    no_forward = isinstance(error, NotImplementedError) and 'missing the required "forward"' in text
    if no_forward:
        kind = description.partition("[")[2].partition("]")[0] or type(model).__name__
        description = f"{kind} has no forward: it holds modules that other code runs"
    if _NO_GRADIENTS in description:
        description += " (with --train it runs with gradients)"
    wanted = 0
    tried = _TRIED.search(text)
    if tried is not None:
        wanted = int(tried["bytes"] or float(tried["size"]) * _UNITS.get(tried["unit"], 0))
    where, path, cause = raised_at(error), _module_that_raised(error, model), _kind(error, device)
    failure = Failure(description, where, path, cause, wanted, type(error), no_forward)
    let_go(error)
    return failure


def _module_that_raised(error: BaseException, model: nn.Module | None) -> str:
    """Path of the innermost module of the model among the frames of a traceback; empty: the model itself, or none."""
    paths = {} if model is None else {id(module): path for path, module in named_modules(model)}
    path = ""
    trace = error.__traceback__
    while trace is not None:  # outermost first, so that the last one is the innermost
        path = paths.get(id(trace.tb_frame.f_locals.get("self")), path)
        trace = trace.tb_next
    return path


def _kind(error: BaseException, device: str) -> str:
    text = str(error)
    if out_of_host_memory(error):
        return "memory" if device == "cpu" else "host"
    if is_out_of_memory(error):
        return "memory"
    if "meta tensor" in text or "device='meta'" in text:
        return "values"
    if device.startswith("vgpu") and any(word in text for word in _IMITATION):
        return "imitation"
    return "other"


def out_of_memory(failure: Failure, info: DeviceInfo, what: str) -> tuple[str, str]:
    """What to say about a device that is full: what happened, what would help."""
    total = "" if info.memory_total_bytes is None else f", {bytes_text(info.memory_total_bytes)}"
    asked = f": another {bytes_text(failure.wanted)} did not fit" if failure.wanted else ""
    return (
        f"{what} needs more memory than {info.id} ({info.name}{total}) has{asked}.",
        "Take a smaller batch (--input), a dtype of fewer bytes, or a card with more memory (for a virtual one,"
        " --virtual).",
    )


def arguments_hint(model: nn.Module, given: int) -> str:
    """What to say after an error of a forward that got the wrong number of arguments; empty where the number is
    right."""
    wanted = needs(model)
    required = sum(need.required for need in wanted)
    if required <= given <= len(wanted) or not wanted:
        return ""
    names = ", ".join(need.name for need in wanted if need.required)
    return (
        f"; its forward takes {names}, and {given} {'was' if given == 1 else 'were'} given: give each one's shape, as"
        f" in --input {','.join(['2x16'] * required)}"
    )


def definition_of(function: object) -> SourceLocation | None:
    """Where a function or method is defined; None for what has no source."""
    try:
        raw = inspect.unwrap(function)  # type: ignore[arg-type]
        file = inspect.getsourcefile(raw)
        _, line = inspect.getsourcelines(raw)
    except (OSError, TypeError, ValueError):
        return None
    return place_at(file, line, getattr(raw, "__name__", "")) if file else None


@contextmanager
def generators_kept(kind: str) -> Iterator[None]:
    """Of every device of a kind (`cuda`, `vgpu`), where its module can read and set them."""
    module: Any = None if kind == "cpu" else torch.get_device_module(kind)
    if not hasattr(module, "get_rng_state") or not hasattr(module, "set_rng_state"):
        yield
        return
    # The one device of mps takes no index.
    places: list[tuple[int, ...]] = [()] if kind == "mps" else [(index,) for index in range(module.device_count())]
    states = [module.get_rng_state(*place) for place in places]
    try:
        yield
    finally:
        for state, place in zip(states, places, strict=True):
            module.set_rng_state(state, *place)


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
    files: set[str] = set()
    for _, module in named_modules(model):
        files.update(filter(None, map(file_of, type.mro(type(module)))))
    for file in files:
        if kind_of(file) == "user":
            text = "".join(linecache.getlines(file))
            if "training" in text or "def train(" in text:
                return True
    return False


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
