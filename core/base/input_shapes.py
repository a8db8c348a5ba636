"""Shapes of a model's inputs as people write them: `4x12`, `2x16:int64,4x12`. Pure functions, no torch: forms check
with it."""

from __future__ import annotations

import math
import re

from devexplorer.core.base.dtypes import parse_dtype
from devexplorer.core.base.errors import BadInput

LARGEST_ELEMENTS = 1 << 33
_ONE = re.compile(r"(?P<shape>\d{1,12}(x\d{1,12})*|scalar)(:(?P<dtype>\w+))?", re.ASCII)

Shapes = tuple[tuple[tuple[int, ...], str | None], ...]
"""A shape and the canonical name of a dtype for each input; no dtype: the model's own."""


def parse_input_shapes(text: str) -> Shapes:
    """`2x16:int64,4x12` -> `(((2, 16), "int64"), ((4, 12), None))`. Raises `BadInput`."""
    found = []
    for item in text.split(","):
        word = item.strip().lower().replace("×", "x").replace(" ", "")
        match = _ONE.fullmatch(word)
        if match is None:
            raise BadInput(
                f"'{item.strip()}' is no input; write shapes as 4x12 or 4x12:int64, several with commas between them"
            )
        shape = () if match["shape"] == "scalar" else tuple(map(int, match["shape"].split("x")))
        elements = math.prod(shape)
        if not 0 < elements <= LARGEST_ELEMENTS:
            most = f"{LARGEST_ELEMENTS:,} elements are the most"
            raise BadInput(f"an input of {match['shape']} has {elements:,} elements; sizes begin at 1, and {most}")
        found.append((shape, parse_dtype(match["dtype"]) if match["dtype"] else None))
    return tuple(found)
