"""Lists and ranges of sizes as people write them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.spec import MOST_SHAPES, parse_byte_sizes, parse_shapes


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("64", ((64, 64, 64),)),
        ("64, 128 ,64", ((64, 64, 64), (128, 128, 128))),
        ("8x16x32", ((8, 16, 32),)),
        ("256:1024:256", tuple((n, n, n) for n in (256, 512, 768, 1024))),
        ("10:35:10", tuple((n, n, n) for n in (10, 20, 30))),
        ("7:7:1", ((7, 7, 7),)),
        ("1:2:1x5x3:4:1", ((1, 5, 3), (1, 5, 4), (2, 5, 3), (2, 5, 4))),
    ],
)
def test_shapes(text: str, shapes: tuple[tuple[int, int, int], ...]) -> None:
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a size"),
        ("64,", "is not a size"),
        ("64x64", "64x128x32"),
        ("256:4096", "256:4096:256"),
        ("256:4096:0", "nothing in it"),
        ("4096:256:256", "nothing in it"),
        ("0:64:8", "at least 1"),
        ("-4", "at least 1"),
        ("1:1000001:1000000", "the largest side"),
        ("1.5", "whole number"),
        ("²", "whole number"),
        ("1:1000000:1", f"more than {MOST_SHAPES:,} shapes"),
        ("1:999:1x1:999:1x1:999:1", "take a larger step"),
    ],
)
def test_shapes_that_are_none(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_shapes(text)


def test_everything_that_is_wrong_with_a_list_is_said() -> None:
    with pytest.raises(BadInput) as error:
        parse_shapes("0, 64, 8x8, a")
    assert len(error.value.findings) == 3


@given(st.integers(1, 500), st.integers(0, 5000), st.integers(1, 700))
def test_a_range_has_both_ends_in_reach_and_even_steps(first: int, more: int, step: int) -> None:
    sides = [m for m, _, _ in parse_shapes(f"{first}:{first + more}:{step}")]
    assert sides[0] == first
    assert first + more - step < sides[-1] <= first + more
    assert {b - a for a, b in pairwise(sides)} <= {step}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4096", (4096,)),
        ("4K, 1m,1GiB", (4096, 1 << 20, 1 << 30)),
        ("4K:64K", (4096, 16384, 65536)),
        ("4K:40K", (4096, 16384, 40960)),
        ("1:1", (1,)),
        ("16 M", (1 << 24,)),
    ],
)
def test_bytes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_byte_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a number of bytes"),
        ("4KB", "binary units"),
        ("-1", "is not a number of bytes"),
        ("0", "from 1 byte"),
        ("9999G", "from 1 byte"),
        ("1G:4K", "nothing in it"),
        ("1:2:3", "is not a number of bytes"),
    ],
)
def test_bytes_that_are_none(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_byte_sizes(text)
