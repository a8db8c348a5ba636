"""Device names as users type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import BadInput
from devexplorer.core.devices.backend import choose_device, parse_device

kinds = st.sampled_from(["cuda", "vgpu", "xpu", "npu"])


@given(kinds, st.integers(0, 10**6), st.sampled_from(["", " ", "\t"]), st.booleans())
def test_kind_and_number_come_back_canonical(kind: str, number: int, space: str, upper: bool) -> None:
    text = f"{kind}:{number:02d}"
    parsed = parse_device(space + (text.upper() if upper else text) + space)
    assert parsed == f"{kind}:{number}"
    assert parse_device(parsed) == parsed


@given(st.text(max_size=12))
def test_any_text_is_a_canonical_id_or_refused(text: str) -> None:
    try:
        parsed = parse_device(text)
    except BadInput:
        return  # any other exception fails the test
    assert parse_device(parsed) == parsed


def test_a_kind_without_a_number_is_its_first_device() -> None:
    assert parse_device("cuda") == "cuda:0"


@pytest.mark.parametrize(("text", "parsed"), [("cpu", "cpu"), ("cpu:0", "cpu"), ("mps:0", "mps"), ("MPS", "mps")])
def test_there_is_one_cpu_and_one_mps(text: str, parsed: str) -> None:
    assert parse_device(text) == parsed


@pytest.mark.parametrize("text", ["cpu:1", "mps:2"])
def test_a_second_one_is_explained(text: str) -> None:
    with pytest.raises(BadInput, match="there is only one"):
        parse_device(text)


@pytest.mark.parametrize("text", ["", "cuda:", ":1", "cuda:-1", "cuda:1.5", "cuda 1", "7", "cuda:1:2"])
def test_what_is_no_device_is_named_with_what_would_be_one(text: str) -> None:
    with pytest.raises(BadInput, match="devices are written like cpu, cuda:0 or vgpu:1"):
        parse_device(text)


def test_choosing_names_what_there_is_and_whether_virtual_gpus_would_help() -> None:
    assert choose_device("CUDA", ["cpu", "cuda:0"]) == "cuda:0"
    with pytest.raises(BadInput, match="no device 'cuda:3' here; there is cpu") as caught:
        choose_device("cuda:3", ["cpu"])
    assert caught.value.virtual_helps
    with pytest.raises(BadInput, match="there are cpu, vgpu:0") as caught:
        choose_device("cuda:3", ["cpu", "vgpu:0"])
    assert not caught.value.virtual_helps
