"""The model benchmark: steps of a model, forward alone or forward, backward and optimizer. Runs on the thread that runs
the benchmark.

How a step is timed: on the CPU by the wall, on CUDA by events between the steps of a block, on a virtual GPU by its
simulated clock.

A virtual GPU runs the model without values where the model lets it (its tensors have shapes, memory and costs, and the
CPU computes nothing); a model that looks at its values runs with them, as slowly as the CPU is. The same step always
costs the same there: after the warm-up there are five.

A loss is the sum of what the model returns, and the optimizer's rate is so small that no value runs away: a step costs
the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from devexplorer.core.base import AUTOCAST, OPTIMIZERS, BadInput, Clock, Unavailable, first_line, parse_seconds
from devexplorer.core.benchmark.spec import Checks, free_bytes
from devexplorer.core.benchmark.statistics import Samples, block_length, spread
from devexplorer.core.benchmark.timing import Runner, TimedBlock, timer_for
from devexplorer.core.devices import accelerator
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.model_steps.kind import ModelResult, ModelSpec
from devexplorer.core.models import (
    RunFailed,
    clone_model,
    failed_backward,
    is_uninitialised,
    make_optimizer,
    parameters_and_buffers,
    parse_inputs,
    samples,
    specs_for,
    tensors_for,
    total,
)
from devexplorer.core.models.run import run
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.records import BenchPoint
from devexplorer.core.virtual.backend import backward_guard, meta_empty

Sample = Callable[[nn.Module, int], Sequence[Tensor] | None]
"""Called with a model and a batch size: inputs of the model on the CPU; None where it does not know the model."""


def sample_of(model: nn.Module, batch: int) -> Sequence[Tensor] | None:
    """Inputs of a sample model, whatever it is called and wherever it was moved; None for any other model."""
    for name, recipe in samples.recipes().items():
        built = samples.meta(name)
        if type(built) is type(model) and _outline(built) == _outline(model):
            return recipe.sample(batch)
    return None


def _outline(model: nn.Module) -> list[tuple[object, ...]]:
    """Every module by path and type, with its own parameters by name and shape (None where a lazy one has none yet)."""
    return [
        (
            path,
            type(module),
            [
                (name, None if is_uninitialised(p) else tuple(p.shape))
                for name, p in module.named_parameters(recurse=False)
            ],
        )
        for path, module in model.named_modules()
    ]


def fed(model: nn.Module, inputs: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Inputs on a device and, where they are floating, in the model's dtype."""
    first = next(model.parameters(), None)
    dtype = None if first is None else first.dtype
    return [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in inputs]


def count_flop(model: nn.Module, sample: Sequence[Tensor], batch: int, *, backward: bool) -> int | None:
    """FLOP of a forward (and backward) of a batch; `sample` are inputs of a batch of 1. None where the model cannot run
    on `meta`.

    The model is left as it is. None as well where there is nothing that the counter counts.
    """
    meta = torch.device("meta")
    inputs = [
        torch.empty((batch, *tensor.shape[1:]), dtype=tensor.dtype, device=meta) for tensor in fed(model, sample, meta)
    ]
    try:
        copied = clone_model(model, lambda tensor: torch.empty_like(tensor, device=meta))
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
            loss = total(copied(*inputs))
            if loss is not None:
                loss.backward()
        return counter.get_total_flops() or None
    except (
        Exception,
        SystemExit,
    ):  # it looks at values, holds tensors that it has not registered, or is wrong, as a real step will tell
        return None


VIRTUAL_STEPS = 5
"""Measured steps on a virtual GPU: each costs the same."""
SLOW_SECONDS = 0.5
"""A model whose step takes longer is asked between its layers whether it shall stop."""
LARGEST_BATCH = 1 << 24


def check_model(spec: ModelSpec, registry: DeviceRegistry) -> ModelSpec:
    """The specification with its device's canonical name. Raises `BadInput` with everything that is wrong; builds and
    allocates nothing (on a CUDA card the question for free memory makes the context).

    Whether there is such a model, and whether it fits, is known when it is made: `ModelRun.prepare` says so, before the
    device is touched.
    """
    checks = Checks(registry)
    device = next(iter(checks.devices((spec.device,))), None)
    if not 1 <= spec.batch <= LARGEST_BATCH:
        checks.add(f"a batch of {spec.batch} cannot be measured; it is from 1 to {LARGEST_BATCH}")
    if spec.optimizer not in OPTIMIZERS:
        checks.add(f"there is no optimizer '{spec.optimizer}' here; there are {', '.join(OPTIMIZERS)}")
    if spec.autocast not in (None, *AUTOCAST):
        checks.add(f"autocast computes in float16 or bfloat16, not in {spec.autocast}")
    checks.checked(lambda: parse_seconds(spec.seconds))
    if spec.inputs:
        checks.checked(lambda: parse_inputs(spec.inputs))
    if device is not None:
        kind = device.partition(":")[0]
        if spec.autocast is not None and not torch.amp.is_autocast_available(kind):
            checks.add(f"torch {torch.__version__} has no autocast for {kind}")
        if spec.compiled and registry.info(device).simulated:
            checks.add(f"torch.compile makes code for a chip, and behind {device} there is none; measure without it")
        checks.checked(partial(free_bytes, registry, device))
    checks.demand_none()
    return replace(spec, device=device or spec.device)


class ModelRun(Runner[ModelSpec]):
    """`resolve` gives a model that the run may change, `sample` its inputs."""

    def __init__(
        self,
        spec: ModelSpec,
        run: int,
        registry: DeviceRegistry,
        stop: threading.Event,
        clock: Clock = time.time,
        resolve: Callable[[str], nn.Module] = samples.build,
        *,
        sample: Sample = sample_of,
    ) -> None:
        super().__init__(spec, run, clock, simulated=registry.info(spec.device).simulated, on_cpu=spec.device == "cpu")
        self._registry, self._stop = registry, stop
        self._sample = sample
        self._resolve: Callable[[str], nn.Module] | None = resolve
        self._kind = spec.device.partition(":")[0]
        self._timer = timer_for(spec.device, registry, stop, paced=False)
        self._model: nn.Module | None = None
        self._call: Callable[..., object] | None = None
        """The model, or what torch.compile made of it."""
        self._inputs: Sequence[Tensor] = ()
        self._specs: Sequence[InputSpec] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._flop: int | None = None
        self._each = 0.0
        self._samples = Samples[float]()
        self._iterations, self._seconds = 0, 0.0
        self._hooks = ExitStack()

    # --- before

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Make the model and its inputs, count FLOP, warm up.

        Raises `DoesNotFit` before the device is touched, `RunFailed` for errors of the model.
        """
        try:
            self._make(lambda: stopped() or self._stop.is_set())
            self._allocator("reset_peak_memory_stats")  # what the model was made from is gone by now
        except Exception:
            if not self._stop.is_set() and not stopped():
                raise
        finally:
            if self._each < SLOW_SECONDS:
                self._hooks.close()  # asking costs a small model more than its work

    def _make(self, stopped: Callable[[], bool]) -> None:
        assert self._resolve is not None, "prepare() is called once"
        model = self._resolve(self.spec.target)
        self._resolve = None
        sample = self._sampled(model, 1)
        model.train(self.spec.train)
        if self.spec.train and not any(parameter.requires_grad for parameter in model.parameters()):
            raise BadInput(f"'{self.spec.target}' has no parameters to train; measure its forward")
        if any(is_uninitialised(tensor) for tensor in model.parameters()):  # shapes appear with the first forward
            with torch.no_grad():
                run(model, "", fed(model, sample, next(model.parameters()).device))
        self._check_fits(model, sample)
        self._flop = count_flop(model, sample, self.spec.batch, backward=self.spec.train)
        if self.simulated:
            try:
                self._arm(
                    clone_model(model, lambda tensor: self._without_values(tensor, tensor.shape)),
                    [
                        self._without_values(tensor, (self.spec.batch, *tensor.shape[1:]))
                        for tensor in fed(model, sample, torch.device("cpu"))
                    ],
                )
                self._warm_up(stopped)
            except Exception as error:
                if _full(error) or stopped():
                    raise
                self._check_fits(model, sample, values=True)
                self._on_device(
                    model, stopped
                )  # it looks at values, or is wrong: then the error is that of the model itself
        else:
            self._on_device(model, stopped)
        if self._flop is None and not stopped():
            self._flop = self._count_here()
        if self.spec.compiled and not stopped():
            self._compile()

    def _sampled(self, model: nn.Module, batch: int) -> Sequence[Tensor]:
        """Inputs on the CPU: as they were given, or those of a sample model, or a guess that works, which is made
        once."""
        known = None if self.spec.inputs else self._sample(model, batch)
        if known is not None:
            return known
        if self._specs is None:
            self._specs = specs_for(model, self.spec.target, self.spec.inputs)
        return tensors_for(model, self._specs, batch=batch)

    def _on_device(self, model: nn.Module, stopped: Callable[[], bool]) -> None:
        self._arm(None, ())
        device = torch.device(self.spec.device)
        model = model.to(device)
        self._arm(model, fed(model, self._sampled(model, self.spec.batch), device))
        self._warm_up(stopped)

    def _arm(self, model: nn.Module | None, inputs: Sequence[Tensor]) -> None:
        self._hooks.close()
        self._model, self._call, self._inputs, self._optimizer = model, model, inputs, None
        if model is None:
            return
        for module in model.modules():
            self._hooks.callback(module.register_forward_pre_hook(self._ask).remove)
        if self.spec.train:
            self._optimizer = make_optimizer(
                self.spec.optimizer, [p for p in model.parameters() if p.requires_grad], lr=1e-6
            )

    def _ask(self, module: nn.Module, inputs: object) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _without_values(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        return meta_empty(shape, tensor.dtype, self.spec.device)

    def _check_fits(self, model: nn.Module, sample: Sequence[Tensor], *, values: bool = False) -> None:
        """What the run needs at least: the model where it is not there yet, gradients, the optimizer's state,
        inputs."""
        tensors = parameters_and_buffers(model)
        trained = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
        needed = sum(
            tensor.nbytes for tensor in tensors if self.simulated or tensor.device != torch.device(self.spec.device)
        )
        needed += sum(tensor.nbytes for tensor in sample) * self.spec.batch
        if self.spec.train:
            needed += trained * (1 + OPTIMIZERS[self.spec.optimizer].state_per_value)
        checks = Checks(self._registry)
        what = f"{self._text} of {self.spec.target} in batches of {self.spec.batch} needs at least"
        checks.fits(self.spec.device, needed, what, values=values or not self.simulated)
        checks.demand_none()

    @property
    def _text(self) -> str:
        return "training" if self.spec.train else "forward"

    def _warm_up(self, stopped: Callable[[], bool]) -> None:
        """One step with the names of the layers at hand, then one that is timed."""
        assert self._model is not None, "arm first"
        model = self._model
        self._step(lambda *inputs: run(model, "", inputs))
        if not stopped():
            self._each = self._timer.block(self._step, 1).seconds

    def _compile(self) -> None:
        """Compile and run once; `Unavailable` with the reason where there is no compiler, or none for this model."""
        assert self._model is not None, "arm first"
        self._hooks.close()  # they would take the graph apart
        try:
            self._call = torch.compile(self._model)
            self._step()
            self._each = self._timer.block(self._step, 1).seconds
        except Exception as error:
            if _full(error):
                raise
            raise Unavailable(f"torch.compile does not work here: {first_line(error)}; measure without it") from error

    def _count_here(self) -> int | None:
        """FLOP of a step as the device runs it, where a model cannot be counted on `meta`; None where that fails
        too."""
        try:
            with FlopCounterMode(display=False) as counter:
                self._step()
            return counter.get_total_flops() or None
        except Exception as error:  # an operation that the counter, or a virtual GPU below it, does not take
            if _full(error):
                raise
            return None

    # --- the steps

    def _step(self, forward: Callable[..., object] | None = None) -> None:
        call = forward or self._call
        assert call is not None, "call prepare() first"
        dtype = None if self.spec.autocast is None else getattr(torch, self.spec.autocast)
        autocast = nullcontext() if dtype is None else torch.autocast(self._kind, dtype)
        if self._optimizer is None:
            with torch.no_grad(), autocast:
                call(*self._inputs)
            return
        self._optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = total(call(*self._inputs))
        if loss is None:
            raise BadInput(
                f"the output of '{self.spec.target}' does not depend on anything that requires a gradient; measure its"
                " forward"
            )
        try:
            with backward_guard() if self.simulated else nullcontext():
                loss.backward()
        except Exception as error:
            if _full(error):
                raise
            raise failed_backward(error) from error
        self._optimizer.step()

    def step(self) -> BenchPoint | None:
        """A block of steps; None when the run has had its seconds (on a virtual GPU: its five steps), or was
        stopped."""
        enough = self._iterations >= VIRTUAL_STEPS if self.simulated else self._seconds >= self.spec.seconds
        if enough or self._stop.is_set() or self._model is None:
            return None
        try:
            block = self._block()
        except _Stopped:
            return None
        self._each = block.seconds / block.iterations
        self._samples.add(block.samples)
        self._iterations += block.iterations
        self._seconds += block.seconds
        done = self._iterations / VIRTUAL_STEPS if self.simulated else self._seconds / self.spec.seconds
        return self._point(
            f"{self._text} of {self.spec.target}",
            tflops=None if self._flop is None else self._flop / self._each / 1e12,
            samples_per_s=self.spec.batch / self._each,
            iterations=block.iterations,
            seconds=block.seconds,
            done=min(done, 1.0),
        )

    def _block(self) -> TimedBlock:
        if self.simulated:
            return self._timer.block(self._step, 1)
        if self._on_cpu:
            return self._timer.singly(self._step, block_length(self._each), self._each)
        return self._timer.block(self._step, block_length(self._each))

    # --- after

    def result(self, *, stopped: bool, failure: str | None = None) -> ModelResult | None:
        """The figures of all steps so far; None when there was not one. The model is given up."""
        steps = self._samples.kept
        peak = self._allocator("max_memory_allocated") if steps else None
        self._arm(None, ())
        if not steps:
            return None
        return ModelResult(
            samples_per_s=spread([self.spec.batch / seconds for seconds in steps]),
            step_seconds=spread(steps),
            flop_per_step=self._flop,
            tflops=None if self._flop is None else spread([self._flop / seconds / 1e12 for seconds in steps]),
            peak_memory_bytes=None if peak is None else int(peak),
            iterations=self._iterations,
            seconds=self._seconds,
            **self._shared(stopped, failure),
        )

    def _allocator(self, question: str) -> Any:
        """The answer of the device's allocator; None on the CPU, and where the backend does not count."""
        if self._on_cpu:
            return None
        try:
            return accelerator.ask(self._kind, question, self.spec.device)
        except (RuntimeError, Unavailable):  # the card is lost; the backend does not count
            return None


def _full(error: Exception) -> bool:
    """Whether the device had no room, whatever the exception."""
    return accelerator.is_out_of_memory(error) or (isinstance(error, RunFailed) and error.reason == "memory")


class _Stopped(Exception):
    """Raised between two layers."""
