"""Plans for generating text: the key-value cache, prefill and decode on every card. In the planner's process (its main
thread)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from devexplorer.core.base import Report, no_report
from devexplorer.core.planner.messages import calibrated
from devexplorer.core.planner.records import Fit, FitReport, FitSpec
from devexplorer.core.planner.serving import messages
from devexplorer.core.planner.serving.calculator import ServingCalculator
from devexplorer.core.planner.serving.request import checked
from devexplorer.core.planner.serving.served import make
from devexplorer.core.planner.serving.session import SessionRunner


def plan_serving(spec: FitSpec, progress: Report = no_report) -> FitReport:
    """The whole answer: the last of `serving_plans`."""
    return list(serving_plans(spec, progress))[-1]


def serving_plans(spec: FitSpec, progress: Report = no_report) -> Iterator[FitReport]:
    """Answer a request, with more cards each time. It replaces the virtual GPUs of this process.

    Raises `BadInput` where there is no such model, or it does not generate text.
    """
    serving = spec.serving
    assert serving is not None
    cards = checked(spec)
    started = time.monotonic()
    progress(0.0, f"making {spec.source}")
    made = make(spec)
    progress(0.1, f"generating with {spec.source} without values")
    runner = SessionRunner(made.served)
    calculator = ServingCalculator(made, runner, spec, lambda: time.monotonic() - started < spec.patience_seconds)
    fits: list[Fit] = []
    for index, profile in enumerate(cards):
        progress(0.3 + 0.7 * index / len(cards), f"{spec.source} on {profile.name}")
        fits.append(calculator.fit(profile))
        yield FitReport(
            spec=spec,
            fits=tuple(fits),
            late=tuple(card.name for card in cards[index + 1 :]),
            parameters=made.parameters,
            changed_tensors=made.changed,
            inputs=f"{spec.batch}x{serving.prompt}:int64",
            flop_per_step=calculator.flop() or None,
            assumptions=(
                *messages.assumptions(spec, made, runner, {profile.device for profile in cards}),
                *calibrated(cards),
                *runner.notes,
                *calculator.notes,
            ),
        )
    progress(1.0, f"done after {time.monotonic() - started:.1f} s")
