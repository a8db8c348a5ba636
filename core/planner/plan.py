"""The planner: whether a model fits cards, how fast it would be there, and what would help. In its own process
(its main thread)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import torch
from torch import nn

from devexplorer.core.base import OPTIMIZERS, BadInput, Findings, Report, Unavailable, no_report
from devexplorer.core.devices.profiles import Profile, calibrated_profiles, load_profiles, parse_planned
from devexplorer.core.models import model_dtype, parse_inputs
from devexplorer.core.models.guard import as_written
from devexplorer.core.models.samples.registry import specs_text
from devexplorer.core.planner import messages
from devexplorer.core.planner.calculator import FitCalculator, helps_for
from devexplorer.core.planner.messages import label
from devexplorer.core.planner.records import LARGEST_BATCH, ONE_GPU, BatchPoint, Fit, FitReport, FitSpec, Help, ranged
from devexplorer.core.planner.run import DeviceMap, StepConfig, sparse_layers
from devexplorer.core.planner.subject import subject_of
from devexplorer.core.planner.trace import COMPILED
from devexplorer.core.planner.trace_cache import TraceCache, batch_second, is_compiled

# Time and memory of a step over the batch, from one sample to more than the card holds. In the planner's process.

POINTS = 9
"""About so many batches: each is a run of the step without values."""


def curve_batches(batch: int, largest: int | None, *, at_least: bool) -> list[int]:
    """Powers of two up to the largest batch that fits, this one and the one that was asked for; then one that does not
    fit, unless the search ended at its limit.

    >>> curve_batches(8, 100, at_least=False)
    [1, 2, 4, 8, 16, 32, 64, 100, 200]
    """
    most = max(largest or batch, 1)
    every = max(math.ceil(math.log2(most) / (POINTS - 2)), 1) if most > 1 else 1
    powers = range(0, int(math.log2(most)) + 1, every)
    beyond = {min(2 * most, LARGEST_BATCH)} if largest is not None and not at_least else set()
    return sorted({2**power for power in powers} | {batch, most} | beyond)


def batch_curve(
    calculator: FitCalculator, profiles: Sequence[Profile], now: Fit, progress: Callable[[float, str], None]
) -> tuple[BatchPoint, ...]:
    """A point for each batch that can be run; nothing for cards that the model could not be divided over."""
    if not any(card.bytes.allocated for card in now.cards):
        return ()
    wanted = curve_batches(calculator.spec.batch, now.largest_batch, at_least=now.at_least)
    points, missing = [], []
    for index, batch in enumerate(wanted):
        progress(index / len(wanted), f"a step with a batch of {batch:,}")
        if not calculator.cache.has_time:
            missing = wanted[index:]
            break
        try:
            points.append(_point(calculator, profiles, batch))
        except (BadInput, Unavailable):  # a model that takes some batches only
            missing.append(batch)
    if missing:
        left_out = ", ".join(f"{batch:,}" for batch in missing)
        calculator.cache.notes[f"The curve over the batch lacks {left_out}: not run, or no time was left."] = None
    return tuple(points)


def _point(calculator: FitCalculator, profiles: Sequence[Profile], batch: int) -> BatchPoint:
    device_map = calculator.placed(profiles, calculator.config, batch)
    traces = calculator.cache.traces(calculator.config, batch, device_map)
    cards = calculator.cards(traces, profiles)
    fullest = max(cards, key=lambda card: card.bytes.total / card.capacity_bytes)
    seconds: dict[str, Any] = {}
    fits = all(card.fits for card in cards)
    if fits:
        step = calculator.estimate(traces, profiles)
        seconds = ranged("step_seconds", step.seconds, step.low, step.high)
    total, capacity = fullest.bytes.total, fullest.capacity_bytes
    return BatchPoint(batch=batch, total_bytes=total, capacity_bytes=capacity, fits=fits, **seconds)


DTYPES = (None, torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""What a model can be cast to for a plan. Without values nothing would say that there is no kernel for float8."""

LATER = "everything that would help"
"""What has not been tried when all cards are done."""


def checked(spec: FitSpec) -> tuple[StepConfig, list[tuple[Profile, ...]]]:
    """How the step is done, and the cards of each fit. Raises `BadInput` with everything that is wrong; makes
    nothing."""
    findings = Findings()
    cards = [tuple(findings.checked(partial(parse_planned, text, spec.calibrations), ())) for text in spec.gpus]
    if not 1 <= spec.batch <= LARGEST_BATCH:
        findings.add(f"a batch of {spec.batch} cannot be planned for; it is from 1 to {LARGEST_BATCH}")
    if spec.optimizer not in OPTIMIZERS:
        findings.add(f"there is no optimizer '{spec.optimizer}' here; there are {', '.join(OPTIMIZERS)}")
    if spec.autocast not in (None, "float16", "bfloat16"):
        findings.add(f"autocast computes in float16 or bfloat16, not in {spec.autocast}")
    if spec.checkpointing and not spec.train:
        findings.add(
            "checkpointing reduces what backward needs, and a forward pass alone keeps nothing; plan for training"
        )
    if spec.inputs.strip():
        findings.checked(lambda: parse_inputs(spec.inputs))
    dtype = None if spec.dtype is None else findings.checked(partial(model_dtype, spec.dtype))
    for profiles in cards:
        for profile in profiles:
            if profile.device == "mps" and len(profiles) > 1:
                findings.add(ONE_GPU.format(profile.name))
            if profile.device == "mps" and dtype is torch.float64:
                findings.add(f"MPS has no float64, so it cannot be planned for on {profile.name}")
    findings.demand_none()
    if dtype not in DTYPES:
        raise BadInput(
            f"PyTorch's layers do not compute in {spec.dtype}; plan for float32, bfloat16, float16 or float64"
        )
    config = StepConfig(
        spec.train,
        spec.optimizer,
        dtype,
        None if spec.autocast is None else getattr(torch, spec.autocast),
        spec.checkpointing,
        channels_last=spec.channels_last,
        tf32=spec.tf32,
    )
    if not cards:
        cards = [(profile,) for profile in (calibrated_profiles(spec.calibrations) | load_profiles()).values()]
    return config, cards


def plan(spec: FitSpec, progress: Report = no_report) -> FitReport:
    """The whole answer: the last of `plans`."""
    return list(plans(spec, progress))[-1]


def plans(spec: FitSpec, progress: Report = no_report) -> Iterator[FitReport]:
    """Answer a request, with more cards each time. It replaces the virtual GPUs of this process, so it belongs in a
    separate one.

    Raises `BadInput` where there is no model, or it cannot run; what does not fit, or cannot be divided, is part of the
    answer.
    """
    config, wanted = checked(spec)
    compilers: dict[str, None] = {}
    with as_written(lambda what, place: compilers.update({what: None})):
        yield from _planned(spec, config, wanted, compilers, progress)


def _planned(
    spec: FitSpec, config: StepConfig, wanted: list[tuple[Profile, ...]], compilers: dict[str, None], progress: Report
) -> Iterator[FitReport]:
    progress(0.0, f"making {spec.source}")
    started = time.monotonic()
    made = subject_of(spec.source, spec.folder, spec.inputs, spec.tensors)
    cache = TraceCache(made, spec.patience_seconds - (time.monotonic() - started))
    subject = cache.subject
    calculators = {
        "cuda": FitCalculator(cache, config, spec),
        "mps": FitCalculator(cache, replace(config, fused_attention=False), spec),
    }
    calculator = calculators[wanted[0][0].device]
    progress(0.1, f"running a step of {subject.title} without values")
    first = cache.traces(calculator.config, spec.batch, DeviceMap((wanted[0][0],)))[0]
    if compilers or is_compiled(cache.subject.model):
        for each in calculators.values():
            each.doubts.append(COMPILED)
    fits: list[Fit] = []

    def so_far() -> FitReport:
        model = cache.subject.model
        assumptions = messages.assumptions(
            spec,
            devices=tuple(dict.fromkeys(profile.device for profiles in wanted for profile in profiles)),
            products=calculator.products,
            convolutions=calculator.convolutions,
            recurrent=any(isinstance(module, (nn.RNNBase, nn.RNNCellBase)) for module in model.modules()),
            compilers=tuple(compilers) or (("torch.compile",) if is_compiled(model) else ()),
            second=batch_second(model),
            output_bytes=first.output_bytes,
            changed=subject.changed,
            sparse=spec.train and bool(sparse_layers(model)),
        )
        return FitReport(
            spec=spec,
            fits=tuple(fits),
            late=tuple(label(profiles) for profiles in wanted[len(fits) :]),
            untried=(LATER,) if spec.options else (),
            parameters=subject.parameters,
            changed_tensors=subject.changed,
            inputs=specs_text(subject.inputs(spec.batch)),
            flop_per_step=first.flop or None,
            assumptions=(
                *assumptions,
                *messages.calibrated(profile for cards in wanted for profile in cards),
                *cache.notes,
            ),
        )

    for index, profiles in enumerate(wanted):
        progress(0.3 + 0.4 * index / len(wanted), f"{subject.title} on {label(profiles)}")
        fits.append(calculators[profiles[0].device].fit(profiles))
        yield so_far()

    def rest(done: float, text: str) -> None:
        progress(0.7 + 0.3 * done, text)

    curve: tuple[BatchPoint, ...] = ()
    if spec.curve:
        curve = batch_curve(calculator, wanted[0], fits[0], rest)
    rest(0.0, "working out what would help")
    found: tuple[Help, ...] = ()
    untried: tuple[str, ...] = ()
    if spec.options:
        found, untried = helps_for(calculator, wanted[0], fits[0], rest)
    progress(1.0, f"done after {time.monotonic() - started:.1f} s")
    yield msgspec.structs.replace(so_far(), helps=found, untried=untried, curve=curve)
