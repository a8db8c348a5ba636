"""Shapes and specifications as people write them, checked before anything is allocated. No torch, no thread."""

from __future__ import annotations

import math
import re

from devexplorer.core.dtypes import item_bytes
from devexplorer.core.errors import BadInput, DoesNotFit
from devexplorer.core.formats import bytes_text
from devexplorer.core.records.benchmark import BenchSpec

LARGEST_SIDE = 1_000_000
"""Larger sides are typing errors: one such square matrix in int8 has 1 TB."""


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return (M, N, K) for `N` or `MxNxK` (also `M×N×K`, `M*N*K`, `M,N,K`).

    >>> parse_shape("1024"), parse_shape("64x128x32")
    ((1024, 1024, 1024), (64, 128, 32))
    """
    parts = [part.strip() for part in re.split(r"[x×X*,]", text.strip())]
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d+", part) for part in parts):
        raise BadInput(f"size '{text}' is not a size; write one whole number (1024) or MxNxK (64x128x32)")
    sides = [int(part) for part in parts]
    if min(sides) < 1:
        raise BadInput(f"size '{text}' has a side of {min(sides)}; every side must be at least 1")
    if max(sides) > LARGEST_SIDE:
        raise BadInput(f"size '{text}' has a side of {max(sides)}; the largest side is {LARGEST_SIDE}")
    m, n, k = sides * 3 if len(sides) == 1 else sides
    return m, n, k


def parse_seconds(text: str | float) -> float:
    """Return a duration in seconds: finite and above 0."""
    try:
        seconds = float(text)
    except ValueError:
        raise BadInput(f"'{text}' is not a number of seconds; write for example 2 or 0.5") from None
    if not math.isfinite(seconds) or seconds <= 0:
        raise BadInput(f"{text} seconds cannot be measured; seconds must be a finite number above 0")
    return seconds


def operand_bytes(m: int, n: int, k: int, dtype: str) -> tuple[int, int, int]:
    """Bytes of A (M×K), B (K×N) and the output (M×N; int32 for int8, bfloat16 for float8)."""
    size = item_bytes(dtype)
    out = {"int8": 4, "float8_e4m3fn": 2, "float8_e5m2": 2}.get(dtype, size)
    return m * k * size, k * n * size, m * n * out


def check_fits(spec: BenchSpec, free_bytes: int | None) -> None:
    """Raise `DoesNotFit` when the operands need more than `free_bytes` (None: nobody knows, so nothing is refused)."""
    needed = sum(operand_bytes(spec.m, spec.n, spec.k, spec.dtype))
    if free_bytes is not None and needed > free_bytes:
        shape = f"{spec.m}x{spec.n}x{spec.k}"
        raise DoesNotFit(
            f"a {spec.dtype} product of {shape} needs {bytes_text(needed)} on {spec.device}, and {bytes_text(free_bytes)} are free; "
            "take a smaller size",
            device=spec.device,
            needed_bytes=needed,
            free_bytes=free_bytes,
        )
