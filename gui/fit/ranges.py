"""Times, rates and what bounds a step, as a person reads them: ranges and words. Pure; main thread."""

from __future__ import annotations

from typing import Final

from devexplorer.core.base import MISSING, number_text, range_text, seconds_text
from devexplorer.core.records import BatchPoint, Bound, Fit, Help

BOUNDS: Final[dict[Bound, str]] = {
    "compute": "bound by the units that compute",
    "bandwidth": "bound by memory bandwidth",
    "launches": "bound by launches: a larger batch or CUDA graphs would help",
    "link": "bound by copies between cards",
}
"""What most of a step's time goes to, in words."""
NO_POWER: Final = "No power limit is known for this card: its profile has none."
NO_STEP: Final = "Text is generated: there is no step with samples."
AT_LIMIT: Final = (
    "Samples of the simulated step over the datasheet's power limit times its seconds; a card that waits for memory or"
    " for the host draws less"
)


def step_range(item: Fit | Help | BatchPoint) -> str:
    """`280 to 450 ms`: where a real card's step would be expected."""
    return range_text(seconds_text(item.step_seconds_low), seconds_text(item.step_seconds_high))


def rate_range(fit: Fit) -> str:
    """`142 to 229`, in samples a second."""
    return range_text(number_text(fit.samples_per_s_low), number_text(fit.samples_per_s_high))


def efficiency_range(fit: Fit) -> str:
    """`2.03 to 3.27`, in samples a joule."""
    return range_text(number_text(fit.samples_per_joule_low), number_text(fit.samples_per_joule_high))


def bound_text(fit: Fit) -> str:
    """Empty where there is no step."""
    return BOUNDS[fit.bound] if fit.bound is not None else ""


def has_step(fit: Fit) -> bool:
    """Whether it has samples to be counted: not where it does not fit, nor where text is generated."""
    return fit.step_seconds is not None and fit.serving is None


def efficiency_tip(fit: Fit) -> str:
    """Where the samples per joule come from, or why there are none."""
    if not has_step(fit):
        return NO_STEP if fit.fits else "What does not fit takes no energy"
    if fit.board_power_w is None:
        return NO_POWER
    return f"{AT_LIMIT}: {fit.board_power_w:g} W. Simulated."


def efficiency_text(fit: Fit) -> str:
    """A sentence for the details; empty where there is no step."""
    if not has_step(fit):
        return ""
    text = efficiency_range(fit)
    if text == MISSING:
        return NO_POWER
    return f"{text} samples/J at {fit.board_power_w:g} W."
