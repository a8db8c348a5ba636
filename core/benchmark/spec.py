"""Shapes and specifications as people write them, checked before anything is allocated. No torch, no thread."""

from __future__ import annotations

import re

from devexplorer.core.dtypes import item_bytes
from devexplorer.core.errors import BadInput, DoesNotFit
from devexplorer.core.formats import bytes_text
from devexplorer.core.records.benchmark import MatmulSpec

LARGEST_SIDE = 1_000_000
"""Larger sides are typing errors: one such square matrix in int8 has 1 TB."""
LONGEST_SECONDS = 1e8
"""Three years; what is longer is a typing error, and more than some systems can wait."""
PRODUCTS = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8")
"""Dtypes whose product is 2·M·N·K operations and can be verified: no complex numbers (four times as many), no uint8 (it overflows)."""


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return (M, N, K) for `N` or `MxNxK` (also `M×N×K`, `M*N*K`, `M,N,K`).

    >>> parse_shape("1024"), parse_shape("64x128x32")
    ((1024, 1024, 1024), (64, 128, 32))
    """
    parts = [part.strip() for part in re.split(r"[x×X*,]", text.strip())]
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII) for part in parts):
        raise BadInput(f"size '{text}' is not a size; write one whole number (1024) or MxNxK (64x128x32)")
    sides = [int(part) for part in parts]
    if min(sides) < 1:
        raise BadInput(f"size '{text}' has a side of {min(sides)}; every side must be at least 1")
    if max(sides) > LARGEST_SIDE:
        raise BadInput(f"size '{text}' has a side of {max(sides)}; the largest side is {LARGEST_SIDE}")
    m, n, k = sides * 3 if len(sides) == 1 else sides
    return m, n, k


def parse_seconds(text: str | float, what: str = "") -> float:
    """Return a duration in seconds: above 0, at most `LONGEST_SECONDS`. `what` names it in the message."""
    name = f"{what}: " if what else ""
    try:
        seconds = float(text)
    except ValueError:
        raise BadInput(f"{name}'{text}' is not a number of seconds; write for example 2 or 0.5") from None
    if not 0 < seconds <= LONGEST_SECONDS:  # not so for nan either
        raise BadInput(f"{name}{text} seconds are no duration; write a number above 0, {LONGEST_SECONDS:.0f} at most")
    return seconds


def parse_count(text: str, what: str) -> int:
    """Return a whole number above 0; `what` names it in the message."""
    if not re.fullmatch(r"\+?\d{1,18}", text.strip(), re.ASCII) or int(text) < 1:
        raise BadInput(f"{what} '{text}' is not a whole number above 0; write for example 100")
    return int(text)


def check_product(dtype: str) -> str:
    """Return the dtype when a matmul benchmark can measure it, else raise `BadInput` with those it can."""
    if dtype not in PRODUCTS:
        raise BadInput(f"the matmul benchmark does not measure {dtype}; it measures {', '.join(PRODUCTS)}")
    return dtype


def check_limits(spec: MatmulSpec) -> None:
    """Raise `BadInput` for figures that no parser above would have let through (a specification can come over the link)."""
    findings = []
    if not all(1 <= side <= LARGEST_SIDE for side in (spec.m, spec.n, spec.k)):
        findings.append(f"a product of {spec.m}x{spec.n}x{spec.k} cannot be measured; every side is from 1 to {LARGEST_SIDE}")
    if spec.seconds is not None:
        try:
            parse_seconds(spec.seconds)
        except BadInput as error:
            findings += error.findings
    if spec.iterations is not None and spec.iterations < 1:
        findings.append(f"{spec.iterations} iterations cannot be measured; at least 1 is needed")
    if not 0.001 <= spec.block_seconds <= 60:
        findings.append(f"a block of {spec.block_seconds} s is not possible; it lasts from 0.001 to 60 s")
    if findings:
        raise BadInput(*findings)


def operand_bytes(m: int, n: int, k: int, dtype: str) -> tuple[int, int, int]:
    """Bytes of A (M×K), B (K×N) and the output (M×N; int32 for int8, bfloat16 for float8)."""
    size = item_bytes(dtype)
    out = {"int8": 4, "float8_e4m3fn": 2, "float8_e5m2": 2}.get(dtype, size)
    return m * k * size, k * n * size, m * n * out


def check_fits(spec: MatmulSpec, free_bytes: int | None) -> None:
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
