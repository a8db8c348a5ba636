"""How much narrower the planner's range may be on a card whose own factors are known.

    python tests/benchmarks/calibrated_range.py

Reads docs/published_steps.csv, of each step the ratio of predicted to published speed where the model had seen nothing
of the card. From each is taken what a calibration would at best find: the mean error of the same card over steps of
other models, over all of them or over those of the same precision. The figure that counts is the share of the stated
range, in logarithms, in which as many steps are then as are in the whole range before
(`CALIBRATED_SHARE` in core/virtual/device/cost.py). No device is needed; it takes a second."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

LIST = Path(__file__).parents[2] / "docs" / "published_steps.csv"
FEWEST = 3
"""Steps of other models that a card's mean is taken over."""
INSIDE = 0.85
"""Share of the steps that the range is to hold."""


class Step(NamedTuple):
    """A published step, predicted without its card."""

    card: str
    unit: str
    model: str
    error: float
    """Logarithm of predicted over published speed."""
    stated: float
    """Logarithm of the range's factor."""


class Narrowed(NamedTuple):
    """Of the steps whose card has enough others."""

    steps: int
    before: float
    """The share of the stated range that holds `INSIDE` of them."""
    after: float
    """The same once the card's mean error is taken off."""

    @property
    def share(self) -> float:
        """How wide the range may be, against now."""
        return self.after / self.before


def published() -> list[Step]:
    """Those that count: the card bound them."""
    with LIST.open(encoding="utf-8", newline="") as file:
        return [
            Step(
                row["profile"],
                {"float32": "vector", "TF32": "tf32"}.get(row["precision"], "half"),
                row["model"],
                math.log(float(row["ratio_without_card"])),
                math.log(float(row["range_factor"])),
            )
            for row in csv.DictReader(file)
            if row["ratio_without_card"] and not row["bound_by"]
        ]


def narrowed(steps: list[Step], same: Callable[[Step], object]) -> Narrowed:
    """With the mean error over the steps of other models that are the `same`."""
    groups: dict[object, list[Step]] = defaultdict(list)
    for step in steps:
        groups[same(step)].append(step)
    before, after = [], []
    for group in groups.values():
        for step in group:
            others = [other.error for other in group if other.model != step.model]
            if len(others) >= FEWEST:
                before.append(abs(step.error) / step.stated)
                after.append(abs(step.error - fmean(others)) / step.stated)
    return Narrowed(len(before), *(float(np.quantile(shares, INSIDE)) for shares in (before, after)))


def main() -> None:
    steps = published()
    print(f"{len(steps)} published steps, predicted without their card; {INSIDE:.0%} of them are inside")
    for name, same in (("card", lambda step: step.card), ("card and precision", lambda step: (step.card, step.unit))):
        found = narrowed(steps, same)
        print(
            f"mean error of the {name} taken off: {found.steps} steps, {found.after:.2f} of the stated range instead of"
            f" {found.before:.2f}, {found.share:.2f} times as wide"
        )


if __name__ == "__main__":
    main()
