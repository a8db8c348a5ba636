"""Lists and ranges of sizes as people write them: shapes of a sweep, bytes of a copy. No torch, no thread."""

from __future__ import annotations

import itertools
import re

from devexplorer.core.base.errors import BadInput
from devexplorer.core.benchmark.spec import LARGEST_SIDE

MOST_SHAPES = 10_000
"""More than a night's worth; a larger sweep is a slip of the pen."""
MOST_BYTES = 1 << 40
BYTES_FACTOR = 4
"""Between the sizes of a range of bytes."""

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
    findings: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        sides = [side.strip() for side in re.split(r"[x×X*]", item)]
        if len(sides) not in (1, 3):
            findings.append(f"size '{item}' is not a size; write 1024, 64x128x32 or a range like 256:4096:256")
            continue
        try:
            ranges = [_sides(side) for side in sides]
        except BadInput as error:
            findings.extend(error.findings)
            continue
        product = 1
        for one in ranges:
            product *= len(one)
        if len(shapes) + product > MOST_SHAPES:
            findings.append(f"'{item}' makes more than {MOST_SHAPES:,} shapes; take a larger step")
            continue
        shapes.update(dict.fromkeys([(n, n, n) for n in ranges[0]] if len(ranges) == 1 else itertools.product(*ranges)))  # type: ignore[arg-type]
    if findings:
        raise BadInput(*findings)
    return tuple(shapes)


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


def parse_byte_sizes(text: str) -> tuple[int, ...]:
    """Sizes of copies, in bytes, each once: `4K, 1M, 1GiB` (binary units), and ranges FROM:TO, each four times the one
    before.

    >>> parse_byte_sizes("4K:64K, 1M")
    (4096, 16384, 65536, 1048576)
    """
    sizes: dict[int, None] = {}
    findings: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        try:
            ends = [_bytes(end.strip()) for end in item.split(":", 1)]
        except BadInput as error:
            findings.extend(error.findings)
            continue
        if ends[-1] < ends[0]:
            findings.append(f"the range '{item}' has nothing in it; write FROM:TO with FROM below TO, like 4K:1G")
            continue
        size = ends[0]
        while size < ends[-1]:
            sizes[size] = None
            size *= BYTES_FACTOR
        sizes[ends[-1]] = None
    if findings:
        raise BadInput(*findings)
    return tuple(sizes)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text.casefold(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise BadInput(f"'{text}' is not a number of bytes; write for example 4096, 4K, 16M or 1G (binary units)")
    size = int(match[1]) * _UNITS[match[2]]
    if not 1 <= size <= MOST_BYTES:
        raise BadInput(f"a copy of {text} cannot be measured; its size is from 1 byte to {MOST_BYTES >> 30} GiB")
    return size
