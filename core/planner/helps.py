"""What would make a step smaller, with the figures of runs of it. In the planner's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from devexplorer.core.base.errors import BadInput, Unavailable
from devexplorer.core.base.formats import bytes_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.calculator import FitCalculator
from devexplorer.core.planner.eight_bit import state_sizes
from devexplorer.core.planner.largest import largest
from devexplorer.core.planner.run import StepConfig
from devexplorer.core.planner.trace import step_seconds
from devexplorer.core.records.planner import Fit, Help

LEAST_SAVED = 0.01
"""What saves less than this share is no help."""


class Idea(NamedTuple):
    """Something that could help, before anybody has looked whether it does."""

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
    if config.train and config.optimizer in ("adam", "adamw"):
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
    if len(profiles) == 1:
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
        traces = tuple(
            trace.with_state(sizes) for trace, sizes in zip(traces, state_sizes(subject.model, device_map), strict=True)
        )
    cards = calculator.cards(traces, profiles)
    before, after = (max(card.bytes.total for card in some) for some in (now.cards, cards))
    fits = all(card.fits for card in cards)
    searched = calculator.spec.search and not idea.computed and idea.key != "half-batch" and calculator.cache.has_time
    batch = (
        largest(calculator.cache, idea.config, device_map, calculator.rooms(profiles), idea.batch, confirm=False).batch
        if searched
        else None
    )
    seconds = step_seconds(traces, profiles) if fits and not idea.computed else None
    return Help(
        key=idea.key,
        title=idea.title[:1].upper() + idea.title[1:],
        words=_sentence(idea, before, after, fits=fits, fitted=now.fits, batch=batch),
        gpu=now.gpu,
        total_bytes=after,
        saved_bytes=before - after,
        fits=fits,
        largest_batch=batch,
        step_seconds=seconds,
    )


def _sentence(idea: Idea, before: int, after: int, *, fits: bool, fitted: bool, batch: int | None) -> str:
    where = "on the fuller of " if idea.cards > 1 else ""
    what = f"{where}{idea.title}"
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
