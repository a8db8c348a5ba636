"""Checks the cost model of virtual GPUs against every published product, and writes the table of docs/virtual_gpus.md.

    python tests/benchmarks/cost_model.py [--write]

The model is fitted to published steps and to these products together (`fit_cost_model.py`), so its own errors say how
well the two agree. What a card without a published product would be off by is shown by fits to the other products
alone. Takes no time; no device is needed."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from cost_fit import Design, Step, fit, read_priors
from fit_cost_model import NO_SHAPE, held_tflops, product_of

from devexplorer.core.base import MISSING, shape_text
from devexplorer.core.benchmark.published import Published, published
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.virtual.device.cost import Roofline, architecture

__all__ = ["NO_SHAPE", "checks", "predict", "table"]

DOCS = Path(__file__).parents[2] / "docs" / "virtual_gpus.md"
BEGIN, END = "<!-- written by tests/benchmarks/cost_model.py -->\n", "<!-- end -->"


class Check(NamedTuple):
    """One published product and its prediction."""

    row: Published
    held: float
    """What the card holds over a while, TFLOP/s."""
    tflops: float
    """Predicted."""
    error: float
    """Predicted over published, minus 1."""
    without_row: float
    """The same from a fit to the other products."""
    without_architecture: float
    """And from a fit to products of other architectures: the error to expect for cards without published figures."""


def profile_of(row: Published) -> Profile:
    """The virtual card of a row."""
    return load_profiles()[row.gpu]


def predict(row: Published) -> float:
    """TFLOP/s of the published shape on the virtual card."""
    work = product_of(row)
    return work.flop / Roofline(profile_of(row)).seconds(work) / 1e12


def _step(row: Published) -> Step:
    work = product_of(row)
    return Step(profile_of(row), work.flop / (held_tflops(row) * 1e12), [(work, 1)])


def predict_from(row: Published, others: Sequence[Published]) -> float:
    """TFLOP/s of the published shape from a fit to other rows."""
    priors = read_priors()
    fitted = fit(Design([_step(other) for other in others], priors))
    seconds = math.exp(float(Design([_step(row)], priors).logarithms(fitted.theta)[0][0]))
    return product_of(row).flop / seconds / 1e12


@cache
def checks() -> tuple[Check, ...]:
    """Every published product, in the file's order."""
    rows = list(published().values())
    found = []
    for row in rows:
        held, predicted = held_tflops(row), predict(row)
        alone = predict_from(row, [other for other in rows if other != row])
        foreign = [other for other in rows if architecture(profile_of(other)) != architecture(profile_of(row))]
        unseen = predict_from(row, foreign)
        found.append(Check(row, held, predicted, predicted / held - 1, alone / held - 1, unseen / held - 1))
    return tuple(found)


def table() -> str:
    """The table and its summary, as in the docs."""
    lines = [
        "| card | dtype | shape | published | predicted | error | without the row | without its architecture |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = checks()
    for check in found:
        row = check.row
        shape = MISSING if row.shape is None else shape_text(row.shape)
        held = f"{check.held:,.0f}{'' if row.sustained else ' †'}"
        errors = " | ".join(percent(share) for share in (check.error, check.without_row, check.without_architecture))
        lines.append(f"| {row.gpu} | {row.dtype} | {shape} | {held} | {check.tflops:,.0f} | {errors} |")
    lines += ["", " ".join((_summary("", found, lambda check: check.error),
                            _summary(" without the row", found, lambda check: check.without_row),
                            _summary(" of NVIDIA's without their architecture",
                                     [check for check in found if check.row.gpu.startswith("NVIDIA")],
                                     lambda check: check.without_architecture)))]  # fmt: skip
    return "\n".join(lines) + "\n"


def _summary(which: str, found: Sequence[Check], error: Callable[[Check], float]) -> str:
    sizes = [100 * abs(error(check)) for check in found]
    return f"Errors{which}: {statistics.median(sizes):.1f} % (median), {np.max(sizes):.1f} % (maximum)."


def percent(share: float) -> str:
    """With its sign."""
    return f"{100 * share:+.1f} %"


def main() -> None:
    """Print the table, or put it into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/virtual_gpus.md")
    if parser.parse_args().write:
        text = DOCS.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        DOCS.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
