"""Whether the training step of a running script would fit other cards: predicted from what one step was seen to hold,
beside the most that each device has counted. No torch; any thread.

The blocks of the step go through the allocator of each card as those of a planned step do. For another batch, blocks of
activations are taken to grow in proportion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from devexplorer.core.base import bytes_text
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner import messages
from devexplorer.core.planner.cards import Largest, Libraries, Room, fit_in, from_above
from devexplorer.core.planner.records import Fit, FitReport, FitSpec, MeasuredPeak
from devexplorer.core.planner.trace import BatchScaling, Trace
from devexplorer.core.records import Answer, Fact

SEEN = (
    "Predicted from what one step of the script was seen to hold when its backward began: parameters, buffers,"
    " optimizer state, what is saved for backward, other tensors. Gradients, and the temporary tensors of backward and"
    " of the optimizer, are added by the shapes in the graph. What forward or code between the steps takes for a"
    " moment, and activations that checkpoints compute again, are not."
)
CARDS = (
    "Other cards are taken to run the same operations. For each, the CUDA context and the workspaces of cuBLAS and"
    " cuDNN are added as for any plan; seconds are not predicted."
)
GROWS = "For the largest batch, activations are taken to grow in proportion to the batch, which is {batch:,} now."
NO_BATCH = "No largest batch: no call of a model with a tensor was seen from which the batch could be read."
OF_PROCESS = (
    "The CPU's peak is what the whole process had in memory, with Python and its libraries, and cannot be compared with"
    " the tensors alone."
)
STOPPED = "The look ended at its time limit, so that the prediction may lack something: ask once more."
NO_STATE = "The optimizer had no state yet: after its first step it takes more."
MEASURED_MORE = (
    "The measured peak is higher than the prediction: something outside of what was seen takes more. Cards are asked"
    " for the measured peak."
)
WORTH_SAYING = 0.01


class ObservedDevice(NamedTuple):
    """The step on one device."""

    device: str
    name: str
    simulated: bool
    trace: Trace
    """As it is there."""
    on_cards: Trace
    """As it would be on CUDA cards, where optimizers step over all parameters at once unless they are told."""
    growing: Sequence[int]
    """Numbers of the blocks that grow with the batch."""
    beside_bytes: int
    """What C++ alone holds there: workspaces of libraries."""
    measured_bytes: int | None = None
    """The most that was counted so far; of the CPU: of the whole process."""

    @property
    def predicted_bytes(self) -> int:
        """The most that would be allocated in the step."""
        return self.trace.without_end.peak + self.beside_bytes

    @property
    def missing_bytes(self) -> int:
        """What was measured and not predicted, where both count the same."""
        if self.device == "cpu":
            return 0
        return max(0, (self.measured_bytes or 0) - self.predicted_bytes)

    def with_measured(self) -> ObservedDevice:
        """With what was measured and not predicted, as a block that is there at the peak and grows."""
        missing = self.missing_bytes
        if not missing:
            return self
        trace, number = self.on_cards, len(self.on_cards.sizes)
        sizes = np.append(trace.sizes, missing)
        events = np.insert(trace.events, trace.fullest_at + 1, [number, ~number])
        return self._replace(on_cards=replace(trace, sizes=sizes, events=events), growing=[*self.growing, number])

    def scaling(self, batch: int) -> BatchScaling:
        """How it grows from this batch on."""
        sizes, numbers = self.on_cards.sizes, np.array(self.growing, dtype=np.int64)
        slope = np.zeros_like(sizes)
        slope[numbers] = -(-sizes[numbers] // batch)
        return BatchScaling(self.on_cards, batch, slope)


class ObservedStep(NamedTuple):
    """One step of a script on all its devices."""

    script: str
    optimizer: str
    """Its class; of several: all of them."""
    batch: int
    """0: not known."""
    parameters: int
    convolutions: bool
    stopped: bool
    """The time for the look was over before everything was seen."""
    lacks_state: bool
    """The optimizer had none yet."""
    devices: Sequence[ObservedDevice]

    def with_measured(self, peaks: Mapping[str, int | None]) -> ObservedStep:
        """With the most that was counted on its devices so far."""
        return self._replace(
            devices=[device._replace(measured_bytes=peaks.get(device.device)) for device in self.devices]
        )

    def report(self) -> FitReport:
        """On every card; where the step is on several devices, on as many cards of a kind."""
        return FitReport(
            spec=FitSpec(source=self.script, batch=self.batch, train=True, optimizer=self.optimizer, options=False),
            fits=tuple(self._fits([device.with_measured() for device in self.devices])),
            parameters=self.parameters,
            assumptions=tuple(self._assumptions()),
            measured=tuple(
                MeasuredPeak(
                    device=one.device,
                    name=one.name,
                    simulated=one.simulated,
                    predicted_bytes=one.predicted_bytes,
                    measured_bytes=one.measured_bytes,
                )
                for one in self.devices
            ),
        )

    def _fits(self, devices: Sequence[ObservedDevice]) -> Iterator[Fit]:
        libraries = Libraries(products=True, convolutions=self.convolutions, train=True)
        scalings = [device.scaling(self.batch) for device in devices] if self.batch else []

        @cache
        def traces(batch: int) -> list[Trace]:
            return [scaling.at(batch) for scaling in scalings]

        @cache
        def largest(room: Room) -> Largest:
            rooms, most = [room] * len(devices), room[0] - room[1]
            if not fit_in(traces(1), rooms):
                return Largest(0, False)
            return from_above(
                lambda batch: fit_in(traces(batch), rooms),
                lambda batch: all(trace.least <= most for trace in traces(batch)),
            )

        for profile in load_profiles().values():
            cards = tuple(libraries.card(device.on_cards, profile) for device in devices)
            found = largest(libraries.room(profile)) if self.batch else None
            yield Fit(
                gpu=profile.name if len(cards) == 1 else f"{len(cards)}x {profile.name}",
                fits=all(card.fits for card in cards),
                cards=cards,
                largest_batch=None if found is None else found.batch,
                at_least=found is not None and found.at_least,
                reason=messages.reason(cards),
            )

    def _assumptions(self) -> Iterator[str]:
        yield SEEN
        yield CARDS
        yield GROWS.format(batch=self.batch) if self.batch else NO_BATCH
        if self.stopped:
            yield STOPPED
        if self.lacks_state:
            yield NO_STATE
        if any(device.device == "cpu" for device in self.devices):
            yield OF_PROCESS
        if any(device.missing_bytes > WORTH_SAYING * device.predicted_bytes for device in self.devices):
            yield MEASURED_MORE


def observed_answer(report: FitReport) -> Answer:
    """In words; the page Fit has every card."""
    fitting = [fit for fit in report.fits if fit.fits]
    facts = [Fact(where, words) for where, words in messages.measured(report)]
    facts += [Fact(fit.gpu, _room(fit)) for fit in report.fits]
    return Answer(
        title=f"{report.spec.source} fits {len(fitting) or 'none'} of {len(report.fits)} cards",
        words="\n".join(report.assumptions),
        facts=tuple(facts),
    )


def _room(fit: Fit) -> str:
    left = fit.capacity_bytes - fit.bytes.total
    if not fit.fits:
        return f"does not fit: {fit.reason}"
    words = f"fits, {bytes_text(left)} left"
    if fit.largest_batch is not None:
        words += f", largest batch {'at least ' if fit.at_least else ''}{fit.largest_batch:,}"
    return words
