"""Checks the cost model of virtual GPUs against every published product, and writes the table of docs/virtual_gpus.md.

    python tests/benchmarks/cost_model.py [--write]

The model's factors come from five rows (`FITTED`). These are checked with factors refitted on the other eleven rows;
the other rows with the factors as they are. So a row is never predicted with its own factor. Takes no time; no device
is needed."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from devexplorer.core.base import MISSING, item_bytes, shape_text
from devexplorer.core.benchmark.published import Published, published
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.virtual.device import cost

DOCS = Path(__file__).parents[2] / "docs" / "virtual_gpus.md"
BEGIN, END = "<!-- written by tests/benchmarks/cost_model.py -->\n", "<!-- end -->"
NO_SHAPE = (8192, 8192, 8192)
"""For rows published without a shape."""
EIGHT_BIT = "8-bit"

FITTED = (
    ("NVIDIA A100 80GB PCIe", "bfloat16"),
    ("NVIDIA H200", "bfloat16"),
    ("NVIDIA H200", "float8_e4m3fn"),
    ("NVIDIA B200", "bfloat16"),
    ("AMD Instinct MI300X", "bfloat16"),
)
"""The rows that core/virtual/device/cost.py took its factors from."""

Factors = dict[str, float]
"""Share of the datasheet rate by architecture, and under `EIGHT_BIT` the share of that for 8-bit products."""


class Check(NamedTuple):
    """One published product and its prediction."""

    row: Published
    fitted: bool
    tflops: float
    """Predicted without this row."""
    error: float
    """Predicted over published, minus 1."""
    unseen_error: float
    """The same with the whole architecture left out: the error to expect for cards without published figures."""


def profile_of(row: Published) -> Profile:
    """The virtual card of a row."""
    return load_profiles()[row.gpu]


def fit(rows: Sequence[Published]) -> Factors:
    """The factors that fit the rows best (least squares of their logarithms); exact if there are as many rows as
    factors.

    An architecture without a row has none; without data, 8-bit products reach the same share as others."""
    names = list(dict.fromkeys(profile_of(row).compute_capability for row in rows))
    if any(item_bytes(row.dtype) == 1 for row in rows):
        names.append(EIGHT_BIT)
    matrix = np.zeros((len(rows), len(names)))
    for at, row in enumerate(rows):
        matrix[at, names.index(profile_of(row).compute_capability)] = 1
        if item_bytes(row.dtype) == 1:
            matrix[at, names.index(EIGHT_BIT)] = 1
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.log([reached(row) for row in rows]), rcond=None)
    assert rank == len(names), "these rows do not determine every factor"
    return {name: float(value) for name, value in zip(names, np.exp(solution), strict=True)}


def reached(row: Published) -> float:
    """Share of the datasheet rate that a published product reached, without its launch."""
    m, n, k = row.shape or NO_SHAPE
    flop = 2 * m * n * k
    return flop / (flop / (row.peak_burst * 1e12) - cost.LAUNCH_SECONDS) / (row.datasheet * 1e12)


def predict(row: Published, factors: Factors | None = None) -> float:
    """TFLOP/s of the published shape on the virtual card: as the model is, or with other factors."""
    m, n, k = row.shape or NO_SHAPE
    flop, size = 2 * m * n * k, item_bytes(row.dtype)
    nbytes = (m * k + k * n) * size + m * n * 2  # the output of float8 products is bfloat16
    profile = profile_of(row)
    if factors is None:
        return flop / cost.Roofline(profile).operation_seconds(flop, nbytes, row.dtype) / 1e12
    share = factors.get(profile.compute_capability) or other(factors)
    if size == 1:
        share *= factors.get(EIGHT_BIT, 1.0)
    compute = flop / (profile.tflops[row.dtype] * 1e12 * share)
    memory = nbytes / (profile.memory_gb_s * 1e9 * cost.MEMORY_EFFICIENCY)
    return flop / (max(compute, memory) + cost.LAUNCH_SECONDS) / 1e12


def other(factors: Factors) -> float:
    """The share for an architecture without a row: the median of NVIDIA's."""
    return statistics.median(share for name, share in factors.items() if name[0].isdigit() and name != EIGHT_BIT)


def checks() -> list[Check]:
    """Every published product, in the file's order."""
    rows = list(published().values())
    found = []
    for row in rows:
        fitted = (row.gpu, row.dtype) in FITTED
        predicted = predict(row, fit([one for one in rows if one != row])) if fitted else predict(row)
        chip = profile_of(row).compute_capability
        unseen = predict(row, fit([one for one in rows if profile_of(one).compute_capability != chip]))
        found.append(Check(row, fitted, predicted, predicted / row.peak_burst - 1, unseen / row.peak_burst - 1))
    return found


def table() -> str:
    """The table and its summary, as in the docs."""
    lines = [
        "| card | dtype | shape | published | predicted | error | architecture left out |",
        "|---|---|---|---|---|---|---|",
    ]
    found = checks()
    for check in found:
        row = check.row
        shape = MISSING if row.shape is None else shape_text(row.shape)
        predicted = f"{check.tflops:,.0f}{' †' * check.fitted}"
        errors = f"{percent(check.error)} | {percent(check.unseen_error)}"
        lines.append(f"| {row.gpu} | {row.dtype} | {shape} | {row.peak_burst:,.0f} | {predicted} | {errors} |")
    held = [100 * abs(check.error) for check in found if not check.fitted]
    left_out = [100 * abs(check.error) for check in found if check.fitted]
    unseen = [100 * abs(check.unseen_error) for check in found if check.row.gpu.startswith("NVIDIA")]
    lines += [
        "",
        (
            f"Error of the {len(held)} rows that were not used for fitting: {statistics.median(held):.1f} % (median),"
            f" {max(held):.1f} % (maximum). Error of the {len(left_out)} fitted rows, each predicted without itself:"
            f" {max(left_out):.1f} % at most. Error of NVIDIA cards with their architecture left out:"
            f" {max(unseen):.1f} % at most."
        ),
    ]
    return "\n".join(lines) + "\n"


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
