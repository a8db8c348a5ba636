"""Fits the cost model of virtual GPUs and the planner to published steps and products.

    python tests/benchmarks/fit_cost_model.py [--steps FILE] [--write]

Every row of `resources/published_steps.csv` that can be built and that the card bound is traced without values, and
joined by the published products of `resources/reference_tflops.csv`. `--write` replaces the values in
`resources/cost_model.csv`; run `published_steps.py --write` after it. `--steps` keeps the traces in a file, or reads
them from there. No device is needed; tracing takes some minutes, fitting seconds."""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from cost_fit import Design, Fitted, Priors, Step, fit, left_out, read_priors
from published_steps import NEAR, TracedRow, pageable_bytes, published, same_model, traced_rows

from devexplorer.core.base import item_bytes
from devexplorer.core.benchmark.published import Published as PublishedProduct
from devexplorer.core.benchmark.published import published as published_products
from devexplorer.core.devices.profiles import load_profiles, resource_rows
from devexplorer.core.virtual.device.cost import Kind, Product, Work

RESOURCE = Path(__file__).parents[2] / "resources" / "cost_model.csv"
SUSTAINED_SHARE = 0.88
"""Of a burst's rate where only that was published: the median of the rows that have both."""


def steps_of(traced: Sequence[TracedRow]) -> list[Step]:
    """Of the rows that the model is judged by."""
    profiles = load_profiles()
    return [
        Step(
            profiles[each.row.profile],
            int(each.row.batch) / float(each.row.samples_per_s),
            each.work,
            each.calls,
            pageable_bytes(each.row),
        )
        for each in traced
    ]


NO_SHAPE = (8192, 8192, 8192)
"""For products published without a shape."""


def product_of(row: PublishedProduct) -> Work:
    """The kernel of a published product; that of float8 writes bfloat16."""
    m, n, k = row.shape or NO_SHAPE
    size = item_bytes(row.dtype)
    return Work(Kind.PRODUCT, 2 * m * n * k, (m * k + k * n) * size + 2 * m * n, row.dtype, Product(m, n, k))


def held_tflops(row: PublishedProduct) -> float:
    """What the card holds over a while."""
    return row.sustained or row.peak_burst * SUSTAINED_SHARE


def product_steps() -> Iterator[Step]:
    """Every published product whose shape is known, held over a while."""
    profiles = load_profiles()
    for row in published_products().values():
        if row.shape is not None:
            work = product_of(row)
            yield Step(profiles[row.gpu], work.flop / (held_tflops(row) * 1e12), [(work, 1)])


def steps_without(traced: Sequence[TracedRow]) -> tuple[list[float], list[float]]:
    """Seconds of each row, predicted without its model, and without its card: its published products too."""
    priors, steps, products = read_priors(), steps_of(traced), list(product_steps())
    without_model = left_out(steps, [same_model(each.row) for each in traced], priors, products)
    everything = [*steps, *products]
    without_card = left_out(everything, [step.card.name for step in everything], priors)[: len(steps)]
    return np.exp(without_model).tolist(), np.exp(without_card).tolist()


def write(fitted: Fitted, priors: Priors) -> None:
    """Replace values and uncertainties in the resource."""
    head = "".join(line for line in RESOURCE.read_text(encoding="utf-8").splitlines(True) if line.startswith("#"))
    values = dict(zip(priors.names, zip(np.exp(fitted.theta), np.exp(fitted.deviation), strict=True), strict=True))
    rows = resource_rows(RESOURCE.name)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        value, uncertainty = values[row["parameter"]]
        writer.writerow(row | {"value": f"{value:.4g}", "uncertainty": f"{uncertainty:.3g}"})
    RESOURCE.write_text(head + text.getvalue(), encoding="utf-8")


def main() -> None:
    """Fit and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=Path, help="keep the traces in this file, or read them from it")
    parser.add_argument("--write", action="store_true", help="replace the values in resources/cost_model.csv")
    given = parser.parse_args()
    traced = traced_rows(published(), given.steps, lambda text: print(text, file=sys.stderr, flush=True))
    priors = read_priors()
    steps = steps_of([each for each in traced if not each.apart])
    design = Design([*steps, *product_steps()], priors)
    fitted = fit(design)
    for name, value, deviation, prior in zip(priors.names, fitted.theta, fitted.deviation, priors.mean, strict=True):
        print(f"{name:36} {math.exp(value):10.4g}  x/ {math.exp(deviation):.2f}   prior {math.exp(prior):.4g}")
    error = (design.measured - design.logarithms(fitted.theta)[0])[: len(steps)]
    near = float(np.mean(np.abs(error) <= math.log(NEAR)))
    print(f"{len(steps)} steps, seen: median {math.exp(float(np.median(error))):.3f}, {near:.0%} within {NEAR}")
    if given.write:
        write(fitted, priors)


if __name__ == "__main__":
    main()
