"""Works out what cards would hold, whether that is more than they have, and what would make a step smaller. In the
planner's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from devexplorer.core.base import BadInput, Unavailable, bytes_text, count_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner import messages
from devexplorer.core.planner.cards import Largest, Libraries, Room, by_bisection, fit_in, from_above, smallest
from devexplorer.core.planner.records import LARGEST_BATCH, Fit, FitBytes, FitCard, FitSpec, Help, ranged
from devexplorer.core.planner.run import DeviceMap, StepConfig
from devexplorer.core.planner.subject import Subject
from devexplorer.core.planner.trace import (
    GROUP_NORM,
    StepEstimate,
    Trace,
    step_estimate,
)
from devexplorer.core.planner.trace_cache import SCALING_BATCHES, TraceCache, runs_convolutions, runs_products
from devexplorer.core.split.draft import even_budget
from devexplorer.core.split.planner import Groups, ModelBlock, blocks_of, propose
from devexplorer.core.virtual.operators.kernels import has_flash

# How large the state of an 8-bit Adam is, computed: nothing here runs that optimizer. In the planner's process.
# As bitsandbytes lays it out (`Optimizer2State.init_state` in bitsandbytes/optim/optimizer.py, and its page "8-bit
# optimizers"): per parameter two states of one byte per element and, for each of them, one float32 per block of 256
# elements; parameters below 4096 elements keep two float32 states. The two code books of 256 float32 are there once
# per card. The update needs no temporary tensors.

BLOCK_ELEMENTS = 256
SMALLEST_ELEMENTS = 4096
"""Parameters with fewer elements keep 32 bits."""
CODE_BOOK_BYTES = 256 * 4


def state_sizes(model: nn.Module, device_map: DeviceMap) -> list[list[int]]:
    """Bytes of each tensor of the state, by card, for every parameter that requires a gradient."""
    where = dict(device_map.cards)
    sizes: list[list[int]] = [[] for _ in device_map.profiles]
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        card, elements = sizes[where.get(id(parameter), 0)], parameter.numel()
        if not card:
            card += [CODE_BOOK_BYTES] * 2
        if elements < SMALLEST_ELEMENTS:
            card += [4 * elements] * 2
        else:
            blocks = -(-elements // BLOCK_ELEMENTS)
            card += [elements, elements, 4 * blocks, 4 * blocks]
    return sizes


# Over which cards a model is divided, through the planner of splits. In the planner's process.

GROWTH = 1.02
"""Unequal budgets grow by so much until everything has its place."""


def divided(subject: Subject, profiles: Sequence[Profile], weights: Sequence[float]) -> DeviceMap:
    """Which card holds which block: the least budgets for parameters, in proportion to these weights, with which
    everything has its place.

    Raises `BadInput` where the model cannot be divided, `Unavailable` without accelerate.
    """
    blocks, _ = blocks_of(subject.model)
    if len(Groups(blocks).members) < 2:
        several = count_text(len(profiles), "card")
        raise BadInput(f"'{subject.title}' is one block that stays together, so it cannot be divided over {several}")
    names = [f"card {number} ({profile.name})" for number, profile in enumerate(profiles, start=1)]
    devices = _proposed(subject.title, blocks, names, weights)
    cards = {}
    for block, device in zip(blocks, devices, strict=True):
        for tensor in block.tensors:
            cards[id(tensor)] = names.index(device)
    return DeviceMap(tuple(profiles), tuple(cards.items()))


def _proposed(title: str, blocks: list[ModelBlock], names: list[str], weights: Sequence[float]) -> list[str]:
    sizes = Groups(blocks).bytes
    if len(set(weights)) == 1:
        return propose(title, blocks, dict.fromkeys(names, even_budget(sizes, len(names)))).devices
    share = sum(sizes) / sum(weights)
    while True:
        budgets = {name: int(share * weight) + 1 for name, weight in zip(names, weights, strict=True)}
        try:
            return propose(title, blocks, budgets).devices
        except BadInput:
            if max(budgets.values()) > sum(sizes):
                raise
            share *= GROWTH


DIVISIONS = 5
"""How often a model is divided until every card has room."""


class FitCalculator:
    """Works out the fits of one request."""

    def __init__(self, cache: TraceCache, config: StepConfig, spec: FitSpec) -> None:
        self.cache, self.config, self.spec = cache, config, spec
        self.products, self.convolutions = runs_products(cache.subject.model), runs_convolutions(cache.subject.model)
        self.libraries = Libraries(self.products, self.convolutions, config.train)
        model = cache.subject.model
        grouped = any(isinstance(module, nn.GroupNorm) for module in model.modules()) and self.convolutions
        self.doubts = [GROUP_NORM] if grouped else []
        """About seconds, before anything was run."""
        self._largest: dict[tuple[tuple[Room, ...], bool], Largest] = {}
        """Of single cards: those with the same room and the same kernels have the same largest batch."""

    def fit(self, profiles: Sequence[Profile]) -> Fit:
        """The answer for one card, or for several over which the model is divided."""
        try:
            device_map = self.placed(profiles, self.config, self.spec.batch)
            traces = self.cache.traces(self.config, self.spec.batch, device_map)
        except (BadInput, Unavailable) as error:
            if len(profiles) == 1:
                raise
            cards = tuple(
                FitCard(gpu=item.name, capacity_bytes=item.usable_bytes, bytes=FitBytes(), reserved_bytes=0, fits=False)
                for item in profiles
            )
            return Fit(gpu=messages.label(profiles), fits=False, cards=cards, reason=str(error))
        cards = self.cards(traces, profiles)
        found: dict[str, Any] = {}
        fits = all(card.fits for card in cards)
        if self.spec.search:
            most = self._search(profiles, device_map)
            found = {"largest_batch": most.batch, "at_least": most.at_least}
        if fits:
            step, batch = self.estimate(traces, profiles), self.spec.batch
            found |= ranged("step_seconds", step.seconds, step.low, step.high)
            found |= ranged("samples_per_s", batch / step.seconds, batch / step.high, batch / step.low)
            found |= {"bound": step.bound, "parts": step.parts}
        limits = [profile.tdp_w for profile in profiles]
        if None not in limits:
            found["board_power_w"] = sum(filter(None, limits))
        return Fit(gpu=messages.label(profiles), fits=fits, cards=cards, reason=messages.reason(cards), **found)

    def estimate(self, traces: Sequence[Trace], profiles: Sequence[Profile]) -> StepEstimate:
        """The time of a step; what made its range wider is noted."""
        step = step_estimate(traces, profiles, self.doubts, input_copy=self.spec.input_copy)
        self.cache.notes.update(dict.fromkeys(doubt.words for doubt in step.doubts))
        return step

    def _search(self, profiles: Sequence[Profile], device_map: DeviceMap) -> Largest:
        rooms = self.rooms(profiles)
        alike = tuple(rooms), has_flash(profiles[0].compute_capability)
        if len(rooms) > 1 or alike not in self._largest:
            self._largest[alike] = largest(self.cache, self.config, device_map, rooms, self.spec.batch)
        return self._largest[alike]

    def placed(self, profiles: Sequence[Profile], config: StepConfig, batch: int) -> DeviceMap:
        """Where everything is. Several cards share the parameters by their memory; where one is then too full for what
        else it holds in a run, its share shrinks and the model is divided again, a few times. Raises `BadInput`,
        `Unavailable`.
        """
        if len(profiles) == 1:
            return DeviceMap((profiles[0],))
        weights = [float(profile.usable_bytes) for profile in profiles]
        result: list[tuple[float, DeviceMap]] = []
        for _ in range(DIVISIONS):
            try:
                device_map = divided(self.cache.subject, profiles, weights)
                cards = self.cards(self.cache.traces(config, batch, device_map), profiles)
            except BadInput:
                if not result:
                    raise
                break
            fullness = [
                card.bytes.allocated / (capacity - taken)
                for card, (capacity, taken) in zip(cards, self.rooms(profiles), strict=True)
            ]
            result.append((max(fullness), device_map))
            if all(card.fits for card in cards) or not self.cache.has_time or not all(fullness):
                break
            even = sum(fullness) / len(fullness)
            weights = [weight * even / full for weight, full in zip(weights, fullness, strict=True)]
        return min(result, key=lambda item: item[0])[1]

    def cards(self, traces: Sequence[Trace], profiles: Sequence[Profile]) -> tuple[FitCard, ...]:
        """What each card would hold."""
        return tuple(self.libraries.card(trace, profile) for trace, profile in zip(traces, profiles, strict=True))

    def rooms(self, profiles: Sequence[Profile]) -> list[Room]:
        """What each card has, and what of it is not for tensors."""
        return [self.libraries.room(profile) for profile in profiles]


LEAST_SAVED = 0.01
"""What saves less than this share is no help."""


class Idea(NamedTuple):
    """Something that could help, before it was tried."""

    key: str
    title: str
    config: StepConfig
    batch: int
    cards: int = 1
    computed: bool = False
    """The optimizer's state is computed: nothing here runs that optimizer."""


def helps_for(
    calculator: FitCalculator, profiles: Sequence[Profile], now: Fit, progress: Callable[[float, str], None]
) -> tuple[tuple[Help, ...], tuple[str, ...]]:
    """Everything that helps, what saves most first, and titles of what there was no time for.

    Nothing for cards that the model could not be divided over.
    """
    if not any(card.bytes.allocated for card in now.cards):
        return (), ()
    ideas = list(_ideas(calculator, profiles))
    result: list[Help] = []
    untried: tuple[str, ...] = ()
    for index, idea in enumerate(ideas):
        if not calculator.cache.has_time:
            untried = tuple(idea.title for idea in ideas[index:])
            break
        progress(index / len(ideas), f"trying: {idea.title}")
        helped = _tried(calculator, profiles, now, idea)
        if helped is not None and helped.saved_bytes >= LEAST_SAVED * helped.total_bytes:
            result.append(helped)
    return tuple(sorted(result, key=lambda item: -item.saved_bytes)), untried


def _ideas(calculator: FitCalculator, profiles: Sequence[Profile]) -> Iterator[Idea]:
    config, batch = calculator.config, calculator.spec.batch
    first = next((item for item in calculator.cache.subject.model.parameters() if item.is_floating_point()), None)
    wide = first is not None and (config.dtype or first.dtype) in (torch.float32, torch.float64)
    if wide:
        narrow = replace(config, dtype=torch.bfloat16, autocast=None)
        yield Idea("bfloat16", "parameters and activations in bfloat16", narrow, batch)
    if config.train and not config.checkpointing:
        yield Idea("checkpointing", "checkpoints around repeated blocks", replace(config, checkpointing=True), batch)
    mps = profiles[0].device == "mps"  # where bitsandbytes has no kernels, and which no Mac has two of
    if config.train and config.optimizer in ("adam", "adamw") and not mps:
        plain = replace(config, optimizer="sgd")
        yield Idea(
            "adam8bit",
            f"{'AdamW' if config.optimizer == 'adamw' else 'Adam'} with its state in 8 bits",
            plain,
            batch,
            computed=True,
        )
    if config.train and config.optimizer != "sgd":
        yield Idea("sgd", "SGD without momentum", replace(config, optimizer="sgd"), batch)
    if wide and config.autocast is None:
        yield Idea("autocast", "products in bfloat16 (autocast)", replace(config, autocast=torch.bfloat16), batch)
    if batch > 1:
        yield Idea("half-batch", f"a batch of {batch // 2}", config, batch // 2)
    if len(profiles) == 1 and not mps:
        yield Idea("two-cards", "two cards", config, batch, cards=2)


def _tried(calculator: FitCalculator, profiles: Sequence[Profile], now: Fit, idea: Idea) -> Help | None:
    """None where it cannot be done with this model."""
    profiles = tuple(profiles) * idea.cards
    subject = calculator.cache.subject
    try:
        device_map = calculator.placed(profiles, idea.config, idea.batch)
        traces = calculator.cache.traces(idea.config, idea.batch, device_map)
    except (BadInput, Unavailable):
        return None
    if idea.computed:
        states = state_sizes(subject.model, device_map)
        traces = tuple(trace.with_state(sizes) for trace, sizes in zip(traces, states, strict=True))
    cards = calculator.cards(traces, profiles)
    before, after = (max(card.bytes.total for card in some) for some in (now.cards, cards))
    fits = all(card.fits for card in cards)
    found: dict[str, Any] = {}
    if calculator.spec.search and not idea.computed and idea.key != "half-batch" and calculator.cache.has_time:
        rooms = calculator.rooms(profiles)
        most = largest(calculator.cache, idea.config, device_map, rooms, idea.batch, confirm=False)
        found["largest_batch"] = most.batch
    if fits and not idea.computed:
        step = calculator.estimate(traces, profiles)
        found |= ranged("step_seconds", step.seconds, step.low, step.high)
    return Help(
        key=idea.key,
        title=idea.title[:1].upper() + idea.title[1:],
        words=_sentence(idea, before, after, fits=fits, fitted=now.fits, batch=found.get("largest_batch")),
        gpu=now.gpu,
        total_bytes=after,
        saved_bytes=before - after,
        fits=fits,
        **found,
    )


def _sentence(idea: Idea, before: int, after: int, *, fits: bool, fitted: bool, batch: int | None) -> str:
    what = f"on the fuller of {idea.title}" if idea.cards > 1 else idea.title
    sentence = f"{what[:1].upper() + what[1:]}: {bytes_text(after)} instead of {bytes_text(before)}"
    if fits != fitted:
        sentence += ", which fits" if fits else ", which does not fit"
    elif not fits:
        sentence += ", which does not fit either"
    if batch:
        sentence += f"; the largest batch would be {batch:,}"
    if idea.computed:
        sentence += "; the state is computed as bitsandbytes lays it out"
    return f"{sentence}."


# The largest batch that fits: computed by a law where one holds, and confirmed by runs.

UNCONFIRMED = (
    "Largest batches that were not run (of what would help, after the time limit, or because they could not run here)"
    " were extrapolated from small batches, between which every block grows evenly."
)


def largest(
    cache: TraceCache,
    config: StepConfig,
    device_map: DeviceMap,
    rooms: Sequence[Room],
    known: int,
    *,
    confirm: bool = True,
) -> Largest:
    """Search for it; `known` is a batch that was run already."""

    def runs(batch: int) -> bool:
        return fit_in(cache.traces(config, batch, device_map), rooms)

    sure = known if runs(known) else 1
    try:
        if not smallest(runs):
            return Largest(0, False)
        scalings = cache.scalings(config, device_map, known)
    except BadInput:  # a model that takes this batch only: what is known then is the one that ran
        return Largest(known, True) if runs(known) else Largest(0, False)
    if scalings is None:
        return by_bisection(runs, lambda: cache.has_time, sure)

    def may_fit(batch: int) -> bool:
        for scaling, (capacity, taken) in zip(scalings, rooms, strict=True):
            if scaling.at(batch).least > capacity - taken:
                return False
        return True

    def computed(batch: int) -> bool:
        if batch < min(SCALING_BATCHES):
            return runs(batch)
        return fit_in([scaling.at(batch) for scaling in scalings], rooms)

    result = from_above(computed, may_fit)
    if confirm and cache.has_time:
        try:
            if runs(result.batch) and (result.batch == LARGEST_BATCH or not runs(result.batch + 1)):
                return result
            return by_bisection(runs, lambda: cache.has_time, sure)
        except (
            BadInput
        ):  # that many cannot run here: whole numbers as large as that have no values, which the model looks at
            pass
    cache.notes[UNCONFIRMED] = None
    return result
