"""Dtypes and the shapes of inputs as people write them: names, short forms and sizes of dtypes; `4x12`,
`2x16:int64,4x12`. Pure functions without torch, so that forms check with them; no thread."""

from __future__ import annotations

import math
import re

from devexplorer.core.base.errors import BadInput

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one element."""

AUTOCAST = ("float16", "bfloat16")
"""What `torch.autocast` can compute products in."""

SHORT_FORMS = {
    "double": "float64", "fp64": "float64", "f64": "float64",
    "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32",
    "half": "float16", "fp16": "float16", "f16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn", "float8": "float8_e4m3fn", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "long": "int64", "i64": "int64", "int": "int32", "i32": "int32", "short": "int16", "i16": "int16", "i8": "int8",
}  # fmt: skip


def parse_dtype(text: str, *, tf32: bool = False) -> str:
    """Return the canonical name of the dtype that `text` means, `tf32` only where the caller knows that mode.

    >>> parse_dtype("torch.half")
    'float16'
    """
    name = text.strip().lower().removeprefix("torch.")
    name = SHORT_FORMS.get(name, name)
    if name in ITEM_BYTES or (tf32 and name == "tf32"):
        return name
    known = ", ".join((*ITEM_BYTES, "tf32") if tf32 else ITEM_BYTES)
    raise BadInput(f"there is no dtype '{text}'; there are {known}")


def parse_model_dtype(text: str) -> str:
    """The same for a whole model, which is floating point or complex, as `Module.to` wants it."""
    dtype = parse_dtype(text)
    if dtype.startswith(("float", "bfloat", "complex")):
        return dtype
    raise BadInput(
        f"a model cannot become {dtype}: its parameters are floating point; take float32, float16, bfloat16 or float64"
    )


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a canonical dtype name (`tf32` has float32's storage)."""
    return ITEM_BYTES["float32" if dtype == "tf32" else dtype]


def product_dtype(dtype: str) -> str:
    """The dtype in which a matrix product of operands of that dtype comes out: `torch._int_mm` and float8 products
    write wider values."""
    return {"int8": "int32", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"}.get(dtype, dtype)


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
