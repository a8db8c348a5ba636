"""Matmul throughput that others have published, to compare with. No torch, no thread.

The figures are in `resources/reference_tflops.csv`, whose head says where they come from and what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from devexplorer.core.base import number_text, parse_dtype
from devexplorer.core.devices.profiles import name_words, resource_rows


@dataclass(frozen=True, slots=True)
class Published:
    """One row: a card and a dtype; TFLOP/s."""

    gpu: str
    """As nvidia-smi writes it."""
    dtype: str
    """As torch writes it; the published fp8 is e4m3."""
    peak_burst: float
    """The best shape, iterations queued, at boost clock."""
    sustained: float | None
    """The same, held over a steady window; None where it was not published."""
    datasheet: float
    """Dense rate."""
    shape: tuple[int, int, int] | None
    """M, N, K of the best one; None where it was not published."""
    method: str
    """`v4`, `early` (a version of v4) or `old` (the mean of 100 iterations)."""


@cache
def published() -> Mapping[tuple[str, str], Published]:
    """Every row by card and dtype, in the file's order."""
    rows = [_row(row) for row in resource_rows("reference_tflops.csv")]
    return MappingProxyType({(row.gpu, row.dtype): row for row in rows})


@cache  # a table asks row by row
def best(device_name: str, dtype: str) -> Published | None:
    """The published row of a card, however its driver spells the name, for a dtype as torch writes it; None where there
    is none.

    >>> best("H200", "bfloat16").peak_burst
    850.0
    """
    wanted = name_words(device_name)
    return next((row for row in published().values() if row.dtype == dtype and name_words(row.gpu) == wanted), None)


def verdict(median_tflops: float, datasheet: float | None, row: Published | None, mode: str = "burst") -> str:
    """What a measured median is worth: `86 % of datasheet, 98 % of the best published`; empty where there is nothing to
    compare with.

    A `sustained` median is compared with the published sustained figure where there is one.
    """
    parts = []
    if datasheet:
        parts.append(f"{number_text(100 * median_tflops / datasheet, 2)} % of datasheet")
    if row is not None:
        which = "best published"
        figure = row.peak_burst
        if mode == "sustained":
            which = "best published burst" if row.sustained is None else "best published sustained"
            figure = row.sustained or row.peak_burst
        parts.append(f"{number_text(100 * median_tflops / figure, 2)} % of the {which}")
    return ", ".join(parts)


def _row(row: dict[str, str]) -> Published:
    m_n_k = [int(side) for side in row["shape_mxnxk"].split("x") if side]
    return Published(
        gpu=row["gpu"],
        dtype=parse_dtype(row["dtype"]),
        peak_burst=float(row["peak_burst"]),
        sustained=float(row["sustained"]) if row["sustained"] else None,
        datasheet=float(row["datasheet"]),
        shape=(m_n_k[0], m_n_k[1], m_n_k[2]) if m_n_k else None,
        method=row["method"],
    )
