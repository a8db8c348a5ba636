"""Names and sizes of dtypes, checked against torch's own."""

from __future__ import annotations

import pytest
import torch

from devexplorer.core.base import BadInput
from devexplorer.core.base.dtypes import ITEM_BYTES, SHORT_FORMS, item_bytes, parse_dtype


@pytest.mark.parametrize("name", ITEM_BYTES)
def test_every_name_is_one_of_torch_s_and_has_its_size(name: str) -> None:
    dtype = getattr(torch, name)
    assert str(dtype) == f"torch.{name}"
    assert dtype.itemsize == item_bytes(name)


def test_every_short_form_means_a_known_one() -> None:
    for short in SHORT_FORMS:
        assert parse_dtype(short) == SHORT_FORMS[short]
        assert SHORT_FORMS[short] in ITEM_BYTES


@pytest.mark.parametrize("short", ["double", "float", "half", "long", "int", "short"])
def test_torch_s_own_short_names_mean_what_torch_means(short: str) -> None:
    assert str(getattr(torch, short)) == f"torch.{parse_dtype(short)}"


@pytest.mark.parametrize(
    ("text", "name"),
    [("torch.float32", "float32"), (" FP16 ", "float16"), ("torch.half", "float16"), ("BF16", "bfloat16")],
)
def test_prefix_case_and_spaces_do_not_matter(text: str, name: str) -> None:
    assert parse_dtype(text) == name


def test_tf32_is_a_mode_that_only_benchmarks_know() -> None:
    assert parse_dtype("tf32", tf32=True) == "tf32"
    assert item_bytes("tf32") == 4
    with pytest.raises(BadInput, match="there is no dtype 'tf32'"):
        parse_dtype("tf32")


@pytest.mark.parametrize("text", ["", "float33", "torch.", "int128"])
def test_an_unknown_one_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(BadInput, match="there are float64, float32"):
        parse_dtype(text)
