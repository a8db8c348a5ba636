"""Numbers as people read them."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import (
    MISSING,
    BadInput,
    bytes_text,
    count_text,
    flops_cell_text,
    flops_text,
    left_text,
    number_text,
    parse_bytes,
    rate_texts,
    seconds_text,
    shape_text,
)

FACTORS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, MISSING),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (553_433_088, "527.79 MiB"),
        (151_397_597_184, "141.00 GiB"),
        (2**52, "4096.00 TiB"),
        (2**20 - 1, "1.00 MiB"),
        (-(2**30) + 1, "-1.00 GiB"),
        (2**40 - 1, "1.00 TiB"),
        (2**20 - 6000, "1018.14 KiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes(count: int | None, text: str) -> None:
    assert bytes_text(count) == text


@given(st.integers(0, 2**49))
def test_bytes_are_right_to_the_last_digit_shown(count: int) -> None:
    value, unit = bytes_text(count).split()
    assert abs(float(value) * FACTORS[unit] - count) <= 0.0051 * FACTORS[unit]
    assert float(value) < 1024 or unit == "TiB"


def test_fewer_digits_on_demand() -> None:
    assert bytes_text(553_433_088, digits=0) == "528 MiB"
    assert bytes_text(2**20 - 500, digits=0) == "1 MiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, MISSING),
        (math.nan, MISSING),
        (0.0, "0 ns"),
        (3.2e-8, "32 ns"),
        (4.5e-5, "45 µs"),
        (0.0431, "43.1 ms"),
        (2.0, "2 s"),
        (99.96, "100 s"),
        (1234.4, "1234 s"),
    ],
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, MISSING),
        (math.nan, MISSING),
        (0, "0"),
        (101.3, "101"),
        (8.123, "8.12"),
        (0.0123, "0.0123"),
        (12345.6, "12,346"),
        (-8.123, "-8.12"),
        (1e-9, "1.00e-09"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number_text(value) == text


@given(st.floats(1e-5, 1e9))
def test_three_significant_digits_are_kept(value: float) -> None:
    text = number_text(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)
    assert re.fullmatch(r"[\d,]+(\.\d+)?", text), "no exponent for everyday sizes"


@pytest.mark.parametrize(
    ("value", "text"), [(9.996, "10.0"), (99.96, "100"), (999.7, "1,000"), (0.09999, "0.100"), (-9.996, "-10.0")]
)
def test_what_is_rounded_up_has_no_digit_more(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("tflops", "text", "cell"),
    [
        (None, MISSING, MISSING),
        (0.0, "0 TFLOP/s", "0 T"),
        (798.0, "798 TFLOP/s", "798 T"),
        (0.1, "0.100 TFLOP/s", "0.100 T"),
        (0.0008, "0.800 GFLOP/s", "0.800 G"),
        (0.00001, "10.0 MFLOP/s", "10.0 M"),
        (1e-9, "0.00100 MFLOP/s", "0.00100 M"),
    ],
)
def test_rates_are_in_the_unit_of_their_size(tflops: float | None, text: str, cell: str) -> None:
    assert (flops_text(tflops), flops_cell_text(tflops)) == (text, cell)


def test_the_parts_of_a_spread_share_the_unit_of_the_first() -> None:
    assert rate_texts("GB/s", 0.02, 0.5, None) == ("20.0", "500", MISSING, "MB/s")
    assert rate_texts("samples/s", 0.02) == ("0.0200", "samples/s")


def test_shapes() -> None:
    assert [shape_text(shape) for shape in ((64, 3, 3), (5,), (), None)] == ["64×3×3", "5", "()", MISSING]


def test_counts() -> None:
    assert [count_text(n, "parameter") for n in (0, 1, 2, 138_357_544)] == [
        "0 parameters",
        "1 parameter",
        "2 parameters",
        "138,357,544 parameters",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512 MiB", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("64k", 65536),
        ("2 TB", 2 << 40),
        ("1,000 b", 1000),
        ("1,024,000.5 KiB", 1_048_576_512),
        (".5 KiB", 512),
    ],
)
def test_bytes_are_read_as_people_write_them(text: str, size: int):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "much", "-1", "1 MiB 2", "1e9", "1,5 GiB", "1,5000", "0,25 GiB", ",5", "1,,000", "1.000,5", "1000,000",
             "9" * 400, "１２ MiB", "inf", "nan", "1_000"],
)  # fmt: skip
def test_what_is_no_number_of_bytes_is_refused_with_an_example(text: str):
    with pytest.raises(BadInput, match="512 MiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.001, "1 s left"), (8, "8 s left"), (99.2, "100 s left"), (100, "2 min left")]
)
def test_time_left_is_in_the_unit_that_it_is_waited_in(seconds: float, text: str) -> None:
    assert left_text(seconds) == text
