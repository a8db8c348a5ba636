"""Lists and ranges of sizes as people write them: shapes of a sweep, bytes of a copy. No torch, no thread."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial

from devexplorer.core.base import BadInput, Findings
from devexplorer.core.benchmark.spec import LARGEST_SIDE

MOST_SHAPES = 10_000
"""More than a night's worth; a larger sweep is a typing error."""
MOST_BYTES = 1 << 40
BYTES_FACTOR = 4
"""Between the sizes of a range of bytes, where nothing else is said."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}
Shape = tuple[int, int, int]


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes (M, N, K) of a sweep, each once: sides, MxNxK, and ranges FROM:TO:STEP in place of any side, separated by
    commas.

    A range alone gives squares; ranges within MxNxK give every combination. Raises `BadInput` with everything that is
    wrong.

    >>> parse_shapes("64:128:64, 32x64:128:64x16")
    ((64, 64, 64), (128, 128, 128), (32, 64, 16), (32, 128, 16))
    """
    shapes: dict[Shape, None] = {}
    findings = Findings()
    for item in (part.strip() for part in text.split(",")):
        ranges = findings.checked(partial(_ranges, item), [])
        if len(shapes) + math.prod(map(len, ranges)) > MOST_SHAPES:
            findings.add(f"'{item}' makes more than {MOST_SHAPES:,} shapes; take a larger step")
        elif ranges:
            squares = len(ranges) == 1
            shapes |= dict.fromkeys([(n, n, n) for n in ranges[0]] if squares else itertools.product(*ranges))  # type: ignore[arg-type]
    findings.demand_none()
    return tuple(shapes)


def _ranges(item: str) -> list[range]:
    """The sides of `1024` or `64x128:256:64x32`."""
    sides = re.split(r"[x×X*]", item)
    if len(sides) not in (1, 3):
        raise BadInput(f"size '{item}' is not a size; write 1024, 64x128x32 or a range like 256:4096:256")
    return [_sides(side.strip()) for side in sides]


def _sides(text: str) -> range:
    """One side, or a range of them with both ends."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII) for part in parts):
        raise BadInput(f"size '{text}' is not a size; write a whole number (1024) or a range like 256:4096:256")
    first, last, step = (int(part) for part in (parts if len(parts) == 3 else (parts[0], parts[0], "1")))
    if first < 1:
        raise BadInput(f"size '{text}' has a side of {first}; every side must be at least 1")
    if max(first, last) > LARGEST_SIDE:
        raise BadInput(f"size '{text}' has a side of {max(first, last)}; the largest side is {LARGEST_SIDE}")
    if last < first or step < 1:
        raise BadInput(
            f"the range '{text}' has nothing in it; write FROM:TO:STEP with FROM below TO, like 256:4096:256"
        )
    return range(first, last + 1, step)


def parse_byte_sizes(text: str, factor: int = BYTES_FACTOR) -> tuple[int, ...]:
    """Sizes of copies, in bytes, each once: `4K, 1M, 1GiB` (binary units), and ranges FROM:TO, each `factor` times the
    one before.

    >>> parse_byte_sizes("4K:64K, 1M")
    (4096, 16384, 65536, 1048576)
    """
    findings = Findings()
    sizes = [findings.checked(partial(_byte_range, part.strip(), factor), []) for part in text.split(",")]
    findings.demand_none()
    return tuple(dict.fromkeys(itertools.chain.from_iterable(sizes)))


def _byte_range(item: str, factor: int) -> list[int]:
    """`4K`, or both ends of `4K:64K` and what lies between them."""
    first, *last = (_bytes(end.strip()) for end in item.split(":", 1))
    if last and last[0] < first:
        raise BadInput(f"the range '{item}' has nothing in it; write FROM:TO with FROM below TO, like 4K:1G")
    sizes = []
    while last and first < last[0]:
        sizes.append(first)
        first *= factor
    return [*sizes, *(last or [first])]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text.casefold(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise BadInput(f"'{text}' is not a number of bytes; write for example 4096, 4K, 16M or 1G (binary units)")
    size = int(match[1]) * _UNITS[match[2]]
    if not 1 <= size <= MOST_BYTES:
        raise BadInput(f"a copy of {text} cannot be measured; its size is from 1 byte to {MOST_BYTES >> 30} GiB")
    return size
