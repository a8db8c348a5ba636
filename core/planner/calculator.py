"""Works out what cards would hold, and whether that is more than they have. In the planner's process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from devexplorer.core.base.errors import BadInput, Unavailable
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner import messages
from devexplorer.core.planner.dividing import divided
from devexplorer.core.planner.largest import Room, largest
from devexplorer.core.planner.run import DeviceMap, StepConfig
from devexplorer.core.planner.trace import Trace, step_seconds
from devexplorer.core.planner.trace_cache import TraceCache, runs_convolutions, runs_products
from devexplorer.core.planner.workspaces import library_bytes
from devexplorer.core.records.planner import Fit, FitBytes, FitCard, FitSpec
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES

DIVISIONS = 5
"""How often a model is divided until every card has room."""


class FitCalculator:
    """Works out the fits of one request."""

    def __init__(self, cache: TraceCache, config: StepConfig, spec: FitSpec) -> None:
        self.cache, self.config, self.spec = cache, config, spec
        self.products, self.convolutions = runs_products(cache.subject.model), runs_convolutions(cache.subject.model)

    def fit(self, profiles: Sequence[Profile]) -> Fit:
        """The answer for one card, or for several over which the model is divided."""
        try:
            device_map = self.placed(profiles, self.config, self.spec.batch)
            traces = self.cache.traces(self.config, self.spec.batch, device_map)
        except (BadInput, Unavailable) as error:
            if len(profiles) == 1:
                raise
            return Fit(gpu=label(profiles), fits=False, cards=tuple(map(_nothing_on, profiles)), reason=str(error))
        cards = self.cards(traces, profiles)
        fits = all(card.fits for card in cards)
        seconds = step_seconds(traces, profiles) if fits else None
        result = (
            largest(self.cache, self.config, device_map, self.rooms(profiles), self.spec.batch)
            if self.spec.search
            else None
        )
        return Fit(
            gpu=label(profiles),
            fits=fits,
            cards=cards,
            largest_batch=None if result is None else result.batch,
            at_least=result is not None and result.at_least,
            step_seconds=seconds,
            samples_per_s=self.spec.batch / seconds if seconds else None,
            reason=messages.reason(cards),
        )

    def placed(self, profiles: Sequence[Profile], config: StepConfig, batch: int) -> DeviceMap:
        """Where everything is. Several cards share the parameters by their memory; where one is then too full for what
        else it holds in a run, its share shrinks and the model is divided again, a few times. Raises `BadInput`,
        `Unavailable`.
        """
        if len(profiles) == 1:
            return DeviceMap((profiles[0],))
        weights = [float(profile.memory_bytes) for profile in profiles]
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
        return tuple(
            self._card(trace, profile, room)
            for trace, profile, room in zip(traces, profiles, self.rooms(profiles), strict=True)
        )

    def _card(self, trace: Trace, profile: Profile, room: Room) -> FitCard:
        library = self.library(profile)
        replay = trace.replay(*room)
        parts = FitBytes(**replay.parts, library_workspace=library, context=CONTEXT_BYTES)
        reserved = replay.reserved + library
        return FitCard(
            gpu=profile.name,
            capacity_bytes=profile.memory_bytes,
            bytes=parts,
            reserved_bytes=reserved,
            fits=replay.fits,
        )

    def library(self, profile: Profile) -> int:
        """Bytes of workspaces on such a card."""
        return library_bytes(profile.compute_capability, products=self.products, convolutions=self.convolutions)

    def rooms(self, profiles: Sequence[Profile]) -> list[Room]:
        """What each card has, and what of it is not for tensors."""
        return [(profile.memory_bytes, CONTEXT_BYTES + self.library(profile)) for profile in profiles]


def _nothing_on(profile: Profile) -> FitCard:
    return FitCard(
        gpu=profile.name, capacity_bytes=profile.memory_bytes, bytes=FitBytes(), reserved_bytes=0, fits=False
    )


def label(profiles: Sequence[Profile]) -> str:
    """`Tesla T4`, `2x Tesla T4`, `Tesla T4, NVIDIA A10`."""
    runs = [(name, len(list(group))) for name, group in groupby(profile.name for profile in profiles)]
    return ", ".join(name if count == 1 else f"{count}x {name}" for name, count in runs)
