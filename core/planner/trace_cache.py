"""What was run for one request, so that nothing is run twice; and what to do with models that need values. In the
planner's process."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from devexplorer.core.base import BadInput, Clock
from devexplorer.core.models import RunFailed, error_text
from devexplorer.core.planner.run import DeviceMap, OnlyWithValues, StepConfig, run_step
from devexplorer.core.planner.subject import EQUAL_SHARES, NOTE, Subject, has_experts, mixes_devices
from devexplorer.core.planner.trace import BatchScaling, Trace, fit_scaling
from devexplorer.core.virtual.cuda.emulation import names_cuda
from devexplorer.core.virtual.operators.kernels import has_flash

SCALING_BATCHES = (2, 3)
"""What the law of sizes is taken from, and a third one, which it has to foretell; a batch of 1 can run other operations
(nothing to copy where a dimension is 1)."""
THIRD_BATCH = 5
"""Where the request has no larger batch itself."""

WITH_VALUES = (
    "It cannot run without values, so it ran with them: on random inputs, which may take other branches than yours."
)


class TraceCache:
    """Runs of one model, by how, with which batch, and on which cards."""

    def __init__(self, subject: Subject, patience_seconds: float, now: Clock = time.monotonic) -> None:
        """Past `patience_seconds`, only what was asked for explicitly is done."""
        self.subject = self._first = subject
        self.notes: dict[str, None] = {}
        """What had to be assumed on the way, a sentence each."""
        self._values = False
        self._now, self._until = now, now() + patience_seconds
        self._longest = 0.0
        """Seconds of the longest run so far."""
        self._runs: dict[Any, tuple[Trace, ...]] = {}
        self._by_card: set[StepConfig] = set()
        """Steps with attention that runs as another kernel on older cards."""
        self._scalings: dict[Any, list[BatchScaling] | None] = {}

    @property
    def has_time(self) -> bool:
        """Whether there is time for one more run that is of use, but was not asked for."""
        return self._now() + self._longest < self._until

    def traces(self, config: StepConfig, batch: int, device_map: DeviceMap) -> tuple[Trace, ...]:
        """A trace per card. Raises `BadInput` with what the model says when it cannot run."""
        result = self._runs.get(self._key(config, batch, device_map))
        if result is None:
            began = self._now()
            result = self._ran(config, batch, device_map)
            self._longest = max(self._longest, self._now() - began)
            if any(trace.attention_by_card for trace in result):
                self._by_card.add(config)
            self._runs[self._key(config, batch, device_map)] = result
        return result

    def _key(self, config: StepConfig, batch: int, device_map: DeviceMap) -> Any:
        """Which one a single card is makes a difference to what happens on it for attention only."""
        profiles = device_map.profiles
        which: Any = None
        if len(profiles) > 1:
            which = tuple(profile.name for profile in profiles)
        elif config in self._by_card:
            which = has_flash(profiles[0].compute_capability)
        return config, batch, device_map.cards, which

    def _ran(self, config: StepConfig, batch: int, device_map: DeviceMap) -> tuple[Trace, ...]:
        """The first run of code that asks for CUDA is done again with emulated cards. Raises `BadInput`."""
        try:
            result = self._run(config, batch, device_map)
        except BadInput as error:
            if self._runs or self.subject.imitated or not (names_cuda(error) or mixes_devices(error)):
                raise
            try:
                self.subject, self._values = self._first.with_cuda_emulation(), False
                result = self._run(config, batch, device_map)
            except BadInput:
                raise error from None
        if self.subject.imitated:
            self.notes[NOTE] = None
        return result

    def _run(self, config: StepConfig, batch: int, device_map: DeviceMap) -> tuple[Trace, ...]:
        title = self.subject.title
        if not self._values:
            try:
                result = run_step(self.subject, config, batch, device_map)
            except OnlyWithValues as error:
                why = error.__cause__ or error
                if len(device_map.profiles) > 1:
                    raise BadInput(f"'{title}' failed on several cards: {_failure_text(why)}") from error
                if self._runs:  # what was asked for ran without; values now would be other figures, and slow ones
                    reason = _failure_text(why)
                    raise BadInput(f"'{title}' failed without values with a batch of {batch}: {reason}") from error
                return self._with_values(config, batch, device_map, why)
            if has_experts(self.subject.model):
                self.notes[EQUAL_SHARES] = None
            return result
        try:
            return run_step(self.subject, config, batch, device_map, values=True)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            raise BadInput(f"'{title}' failed with a batch of {batch}: {_failure_text(error)}") from error

    def _with_values(
        self, config: StepConfig, batch: int, device_map: DeviceMap, why: BaseException
    ) -> tuple[Trace, ...]:
        """Tensors that it holds unregistered may be all that needs values; else everything does."""
        had_values = self.subject.values
        self.subject = self.subject.with_values(why)
        if not had_values:
            try:
                return run_step(self.subject, config, batch, device_map)
            except OnlyWithValues:
                pass
        self._values = True
        result = self._run(config, batch, device_map)
        self.notes[WITH_VALUES] = None
        return result

    def scalings(self, config: StepConfig, device_map: DeviceMap, known: int) -> list[BatchScaling] | None:
        """How the blocks of each card grow with the batch; None where no law holds to the byte. `known` is a batch that
        was run already."""
        key = self._key(config, 0, device_map)
        if key not in self._scalings:
            third = known if known > max(SCALING_BATCHES) else THIRD_BATCH
            runs = {batch: self.traces(config, batch, device_map) for batch in (*SCALING_BATCHES, third)}
            key = self._key(config, 0, device_map)  # only now it is known whether the card matters
            found: list[BatchScaling] | None = []
            for card in range(len(device_map.profiles)):
                one = fit_scaling({batch: traces[card] for batch, traces in runs.items()})
                if found is not None and one is not None and one.exact:
                    found.append(one)
                else:
                    found = None
            self._scalings[key] = found
        return self._scalings[key]


def _failure_text(error: BaseException) -> str:
    """What failed, in which layer, and who names the line."""
    text = error_text(error)
    if isinstance(error, RunFailed):
        text = str(error)
        if error.frame is not None and error.frame.path:
            text += f" (in '{error.frame.path}')"
    if names_cuda(error):
        return f"{text}; its code asks for CUDA itself, and devexplorer doctor names the line"
    if mixes_devices(error):
        return f"{text}; devexplorer doctor names the line that puts a tensor on the wrong one"
    return text


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile made a part of it."""
    return any(hasattr(module, "_orig_mod") for module in model.modules())


def batch_second(model: nn.Module) -> str | None:
    """The first layer for sequences that takes the batch as its second dimension; None where there is none."""
    for path, module in model.named_modules():
        if vars(module).get("batch_first") is False:
            return path or type(module).__name__
    return None


def runs_convolutions(model: nn.Module) -> bool:
    """Whether it has a layer that cuDNN works for."""
    return any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())


def runs_products(model: nn.Module) -> bool:
    """Whether it has a matrix that is neither a convolution's nor a table to look things up in."""
    others = (nn.modules.conv._ConvNd, nn.Embedding, nn.EmbeddingBag)
    held = (module for module in model.modules() if not isinstance(module, others))
    return any(parameter.dim() >= 2 for module in held for parameter in module.parameters(recurse=False))
