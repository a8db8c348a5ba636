"""Sizes and durations as people write them."""

import pytest

from devexplorer.core.benchmark.spec import check_fits, operand_bytes, parse_seconds, parse_shape
from devexplorer.core.errors import BadInput, DoesNotFit
from devexplorer.core.records.benchmark import MatmulSpec


@pytest.mark.parametrize(
    ("text", "shape"),
    [("1024", (1024,) * 3), ("64x128x32", (64, 128, 32)), (" 2 × 3 × 4 ", (2, 3, 4)), ("5*6*7", (5, 6, 7))],
)
def test_sizes(text: str, shape: tuple[int, int, int]) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize("text", ["", "0", "-5", "abc", "1x2", "1x2x3x4", "3.5", "64x0x2", "9999999", "1e3", "nan", "1x2x"])
def test_wrong_sizes_are_named_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_shape(text)
    assert repr(text)[1:-1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(BadInput, match="seconds"):
        parse_seconds(text)


def test_operands_in_bytes() -> None:
    assert operand_bytes(2, 3, 4, "float32") == (32, 48, 24)
    assert operand_bytes(2, 3, 4, "int8") == (8, 12, 24)


def test_too_large_is_refused_with_the_bytes_it_needs() -> None:
    spec = MatmulSpec(device="vgpu:0", m=1024, n=1024, k=1024)
    check_fits(spec, None)
    check_fits(spec, 3 * 4 * 1024 * 1024)
    with pytest.raises(DoesNotFit, match=r"needs 12\.00 MiB") as caught:
        check_fits(spec, 1000)
    assert (caught.value.needed_bytes, caught.value.free_bytes) == (3 * 4 * 1024 * 1024, 1000)
